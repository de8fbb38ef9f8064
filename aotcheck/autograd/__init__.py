"""Ahead-of-time autograd: a function becomes functional forward and backward graphs, and a caller cannot tell the result from eager."""
