"""What several tests of entry_points use."""

from collections import OrderedDict, defaultdict

from tests.behaviour.inputs import plain


class Places:
    """Where the functions above leave tensors."""

    def __init__(self):
        self.x, self.there, self.named = None, [plain(2), plain(2, seed=1), plain(2, seed=2)], {}
        self.ordered, self.numbers, self.lists = OrderedDict(), OrderedDict(), defaultdict(list)


class Holder:
    """Has a tensor."""

    def __init__(self, tensor):
        self.tensor = tensor


class _Settings:
    def __init__(self) -> None:
        self.scale = 1
        self.nested = {"factors": [1, 1]}


def write_first(x, y):
    x.mul_(2)
    return x * 3, y * 5
