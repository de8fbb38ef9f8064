"""The lint that keeps torch's private names in one place."""

import pytest

from tools.private_names import lint

ANYWHERE = "aotcheck/oracle/compare.py"


@pytest.mark.parametrize(
    "source",
    [
        "import torch._subclasses",
        "import torch._subclasses.fake_tensor as fakes",
        "from torch._subclasses import FakeTensorMode",
        "from torch import _C",
        "from torch.utils import _pytree as pytree",
        "import torch\ntorch._C._set_view_replay_enabled(True)",
        "import torch as t\nt._dynamo.reset()",
        "from torch import nn\nnn._reduction",
        "import torch\nC = torch._C",
        "def f(x): return x._version",
        "def f(x): return x._base is None",
        "def f(x): return x.grad_fn and x.sum()._is_view()",
        "def f(x): return getattr(x, '_version')",
        "def f(op): return op._schema",
        "def f(module): return module._parameters",
        "import sys\n'torch._dynamo' in sys.modules",
    ],
)
def test_a_private_name_of_torch_is_found(source: str):
    assert len(lint(ANYWHERE, source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "import torch\ntorch.ops.aten._to_copy.default",
        "import torch\ntorch._foreach_add_([x], 1)",
        "entry('torch._foreach_add_')",
        "'in torch._dynamo it is'",
        "import torch\naten = torch.ops.aten\naten._to_copy.default",
        "def f(compiled): return getattr(compiled, '_boxed_call', False)",
        "import torch\ntorch.Tensor.__torch_function__",
        "from __future__ import annotations\nimport torch",
        "from aotcheck._torch import pytree",
        "class A:\n    def f(self): return self._base",
        "_private = 1\nprint(_private)",
        "# torch._C is where that lives\n",
    ],
)
def test_what_is_no_private_name_of_torch_passes(source: str):
    assert lint(ANYWHERE, source) == []


def test_private_names_may_be_touched_in_the_one_place():
    assert lint("aotcheck/_torch/ops.py", "import torch._subclasses") == []


@pytest.mark.parametrize(
    "source",
    [
        "from torch._functorch.aot_autograd import aot_function",
        "from torch._functorch import aot_autograd",
        "import functorch.compile",
        "import importlib\nimportlib.import_module('torch._functorch.partitioners')",
    ],
)
@pytest.mark.parametrize("path", ["aotcheck/autograd/api.py", "aotcheck/_torch/ops.py"])
def test_torchs_own_aot_autograd_may_not_be_named_by_ours(path: str, source: str):
    assert lint(path, source)


def test_torchs_own_aot_autograd_may_be_named_where_it_is_compared_with():
    assert lint("aotcheck/backends/registry.py", "from functorch.compile import aot_function") == []


def test_the_suites_own_subclasses_may_use_pytrees_and_nothing_else():
    assert lint("aotcheck/program/called/wrapped.py", "from torch.utils import _pytree") == []
    assert lint("aotcheck/program/called/wrapped.py", "import torch._subclasses") != []


def test_a_file_that_is_no_python_is_a_finding():
    (finding,) = lint(ANYWHERE, "def f(:")
    assert "is no Python" in str(finding)


def test_a_finding_says_where_and_what():
    (finding,) = lint(ANYWHERE, "import torch\n\ntorch._dynamo.reset()")
    assert str(finding) == f"{ANYWHERE}:3: uses the private name torch._dynamo.reset; move it to aotcheck/_torch"
