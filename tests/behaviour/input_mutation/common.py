"""What several tests of input_mutation use."""

from tests.behaviour.inputs import given, plain

RESHAPES = {
    "t_": lambda y: y.t_(),
    "twice": lambda y: y.t_().unsqueeze_(0),
    "written between": lambda y: y.t_().mul_(3).t_(),
}


def leaf_that_is_a_view():
    base = plain(3, 3)
    return given(base[1:].requires_grad_(), also=[base])
