"""What several tests of subclasses use."""

import pytest
import torch

from tests.behaviour.harness import attempt_later, backward, differentiable
from tests.behaviour.wrappers import extra, nested, tagged, two

every_class = pytest.mark.parametrize("make", [two, extra, tagged, nested], ids=lambda make: make.__name__)


def with_its_view(function, make, observed=None):
    """A session of ``function`` of what is computed of a leaf, and of a view of that."""

    def session(compile):
        root = make(2, 2, grad=True)
        x = root * 1
        y = x.view(4)
        results = compile(function)(x, y)
        yield results, x, y
        for t in differentiable((results, x, y)):
            yield attempt_later(lambda t=t: backward([t], retain_graph=True)), root, results, x, y

    return session


nested_of = torch.nested.nested_tensor_from_jagged

CLASSES = [two, extra, tagged, nested]

every_class_and_jagged = pytest.mark.parametrize("make", CLASSES, ids=lambda make: make.__name__)
