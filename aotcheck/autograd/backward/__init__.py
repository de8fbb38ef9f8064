"""Backwards: which results are backpropagated together, their graphs, and derivatives of those."""
