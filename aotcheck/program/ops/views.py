"""Table entries: views, and ops that look like one but copy."""

from __future__ import annotations

from aotcheck.program.ops.registry import DTypes, Group, entry

_V = Group.VIEW

entry("getitem", "self subscript", _V, ndim=(1, 6), weight=6)
entry("Tensor.view", "self view_size", _V, weight=3)
entry("Tensor.reshape", "self view_size", _V)
entry("Tensor.flatten", "self", _V)
entry("torch.ravel", "self", _V)
entry("Tensor.t", "self", _V, ndim=(0, 2))
entry("Tensor.transpose", "self dim dim2", _V, ndim=(1, 6))
entry("Tensor.swapaxes", "self dim dim2", _V, ndim=(1, 6))
entry("Tensor.permute", "self perm", _V)
entry("torch.movedim", "self dim dim2", _V, ndim=(1, 6))
entry("Tensor.T", "self", _V, attribute=True, ndim=(2, 2))
entry("Tensor.mT", "self", _V, attribute=True, ndim=(2, 6))
entry("Tensor.H", "self", _V, attribute=True, ndim=(2, 2))
entry("Tensor.mH", "self", _V, attribute=True, ndim=(2, 6))
entry("Tensor.select", "self dim position", _V, ndim=(1, 6))
entry("Tensor.narrow", "self dim start length", _V, ndim=(1, 6))
entry("Tensor.squeeze", "self", _V)
entry("Tensor.squeeze", "self dim", _V, ndim=(1, 6))
entry("Tensor.squeeze", "self dims", _V, ndim=(1, 6))
entry("Tensor.unsqueeze", "self new_dim", _V, ndim=(0, 4))
entry("Tensor.expand", "self expand_size", _V, ndim=(0, 4))
entry("Tensor.expand_as", "self peer", _V, ndim=(0, 4))
entry("Tensor.diagonal", "self", _V, ndim=(2, 6))
entry("Tensor.diagonal", "self diagonal", _V, ndim=(2, 6))
entry("Tensor.unfold", "self dim window step", _V, ndim=(1, 4))
entry("Tensor.unflatten", "self dim {(-1,1)|(1,-1)}", _V, ndim=(1, 4))
entry("Tensor.view_as", "self same", _V)
entry("torch.atleast_2d", "self", _V)
entry("torch.broadcast_to", "self expand_size", _V, ndim=(0, 4))
entry("torch.adjoint", "self", _V, ndim=(2, 6))
entry("Tensor.positive", "self", _V, dtypes=DTypes.NUMERIC)
entry("Tensor.contiguous", "self", _V)
entry("torch.ops.aten.alias.default", "self", _V)
entry("torch.ops.aten.slice.Tensor", "self dim start", _V, ndim=(1, 6), weight=1)

entry("Tensor.as_strided", "self strided_size strided_stride strided_offset", Group.STRIDED_VIEW)
entry("Tensor.as_strided", "self strided_size strided_stride", Group.STRIDED_VIEW)

_D = Group.DTYPE_VIEW
entry("Tensor.view", "self view_dtype", _D)
entry("torch.view_as_real", "self", _D, dtypes=DTypes.COMPLEX)
entry("torch.view_as_complex", "self", _D, dtypes=DTypes.FLOATING, ndim=(1, 6))
entry("Tensor.real", "self", _D, attribute=True, dtypes=DTypes.COMPLEX)
entry("Tensor.imag", "self", _D, attribute=True, dtypes=DTypes.COMPLEX)
entry("Tensor.conj", "self", _D, dtypes=DTypes.COMPLEX, weight=3)
entry("torch.resolve_conj", "self", _D, dtypes=DTypes.COMPLEX)
entry("torch.resolve_neg", "self", _D)
entry("torch.conj_physical", "self", _D, dtypes=DTypes.COMPLEX)

_M = Group.MULTI_VIEW
entry("torch.split", "self split_size dim", _M, ndim=(1, 6), results=None)
entry("torch.split", "self split_sizes {0}", _M, ndim=(1, 6), results=None)
entry("torch.chunk", "self {2|3} dim", _M, ndim=(1, 6), results=None)
entry("torch.unbind", "self dim", _M, ndim=(1, 6), results=None)
entry("torch.tensor_split", "self {2|3} dim", _M, ndim=(1, 6), results=None)
entry("torch.tensor_split", "self split_points {0}", _M, ndim=(1, 6), results=None)
entry("torch.hsplit", "self {1|2}", _M, ndim=(1, 6), results=None)
entry("torch.vsplit", "self {1|2}", _M, ndim=(2, 6), results=None)
entry("torch.broadcast_tensors", "self peer", _M, ndim=(0, 4), results=None)
entry("torch.unsafe_chunk", "self {2|3} dim", _M, ndim=(1, 6), results=None)
entry("torch.unsafe_split", "self split_size dim", _M, ndim=(1, 6), results=None)

_X = Group.DETACH
entry("Tensor.detach", "self", _X, weight=3)
entry("Tensor.data", "self", _X, attribute=True)
entry("Tensor.detach_", "self", _X, weight=1)
entry("Tensor.requires_grad_", "self {True|False}?", _X, dtypes=DTypes.DIFFERENTIABLE, weight=1)
entry("Tensor.requires_grad=", "self {True|False}", _X, dtypes=DTypes.DIFFERENTIABLE, results=0, weight=1)
entry("Tensor.retain_grad", "self", _X, dtypes=DTypes.DIFFERENTIABLE, results=0, weight=1)
