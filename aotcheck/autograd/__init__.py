"""Ahead-of-time autograd: a function becomes functional graphs, and a caller cannot tell the result from eager."""

from aotcheck import _torch

_torch.require_all()
