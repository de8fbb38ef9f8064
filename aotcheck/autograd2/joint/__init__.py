"""joint: the backward of all differentiable results, recorded in the same graph as the forward."""
