"""Ahead-of-time autograd: a function becomes functional graphs, and a caller cannot tell the result from eager."""
