"""What several tests of input_aliasing use."""

from tests.behaviour.inputs import Given, given, leaf, plain


def _read(x, y):
    return x * 2, y * 3, (x.sum() + y.sum()) * 1


def _double_first(x, y):
    x.mul_(2)
    return x * 3, y * 5


def _write_second(x, y):
    z = x * 2
    y.add_(1)
    return z, x * 3, y * 5


def _write_both(x, y):
    x.mul_(2)
    y.add_(1)
    x.sub_(3)
    return x * 1, y * 1


def _return_aliases(x, y):
    return x.view(-1), y[...], x.as_strided((2,), (1,))


def _write_and_return(x, y):
    y.mul_(2)
    return x, y, x[...], y.detach()


BODIES = [_read, _double_first, _write_second, _write_both, _return_aliases, _write_and_return]


def of_plain(*views):
    """Views of one plain base that is looked at as well."""

    def make() -> Given:
        base = plain(8)
        return given(*[view(base) for view in views], also=[base])

    return make


def of_leaf(*views):
    def make() -> Given:
        base = leaf(8)
        return given(*[view(base) for view in views], also=[base])

    return make


def of_detached(*views):
    """Views whose base is unknown to autograd: `_base` is None."""

    def make() -> Given:
        base = plain(8)
        return given(*[view(base).detach() for view in views], also=[base])

    return make
