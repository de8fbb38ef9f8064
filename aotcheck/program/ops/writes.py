"""Table entries: writes in place and through ``out=``, changes of metadata and of storages."""

from typing import Any

import torch

from aotcheck.program.ops.registry import DTypes, Group, Work, entries, entry

_I = Group.INPLACE

for _path in ("Tensor.add_", "Tensor.sub_"):
    entry(_path, "self fit alpha={2|-1|2j}?", _I, dtypes=DTypes.NUMERIC, writes=True, weight=4)
entry("Tensor.mul_", "self fit", _I, dtypes=DTypes.NUMERIC, writes=True, weight=4)
entry("Tensor.copy_", "self fit_tensor", _I, writes=True, weight=5)
for _path in ("Tensor.neg_", "Tensor.square_"):
    entry(_path, "self", _I, dtypes=DTypes.NUMERIC, writes=True)
for _path in ("Tensor.abs_", "Tensor.sign_", "Tensor.relu_"):
    entry(_path, "self", _I, dtypes=DTypes.REAL, writes=True)
for _path in ("Tensor.maximum", "Tensor.minimum"):
    entry(_path, "self peer", Group.POINTWISE, dtypes=DTypes.REAL)
entry("Tensor.clamp_", "self {-1|0} {1|2}", _I, dtypes=DTypes.REAL, writes=True)
entry("Tensor.clamp_min_", "self {0|1}", _I, dtypes=DTypes.REAL, writes=True)
entry("Tensor.addcmul_", "self fit_tensor fit_tensor value={2|-1|2j}?", _I, dtypes=DTypes.NUMERIC, writes=True)
entry("Tensor.lerp_", "self fit_tensor {0.5|1.0|2.0|2j}", _I, dtypes=DTypes.DIFFERENTIABLE, writes=True)
entry("Tensor.remainder_", "self {2|3}", _I, dtypes=DTypes.REAL, writes=True)
entry("Tensor.floor_divide_", "self {2|3}", _I, dtypes=DTypes.REAL, writes=True)
entry("Tensor.pow_", "self {2|1}", _I, dtypes=DTypes.NUMERIC, writes=True)
entry("Tensor.logical_not_", "self", _I, writes=True)
entry("Tensor.bitwise_and_", "self fit", _I, dtypes=DTypes.INTEGRAL, writes=True)
entry("Tensor.bitwise_xor_", "self fit", _I, dtypes=DTypes.INTEGRAL, writes=True)
entry("Tensor.eq_", "self fit", _I, writes=True)
entry("Tensor.gt_", "self fit", _I, dtypes=DTypes.REAL_OR_BOOL, writes=True)
entry("Tensor.conj_physical_", "self", _I, dtypes=DTypes.COMPLEX, writes=True)
entry("Tensor.real=", "self fit_tensor", _I, dtypes=DTypes.COMPLEX, results=0, writes=True)
entry("Tensor.imag=", "self fit_tensor", _I, dtypes=DTypes.COMPLEX, results=0, writes=True)
entry("Tensor.cumsum_", "self dim", _I, dtypes=DTypes.NUMERIC, ndim=(1, 6), writes=True)
entry("Tensor.tril_", "self", _I, ndim=(2, 6), writes=True)
entry("Tensor.triu_", "self diagonal", _I, ndim=(2, 6), writes=True)
entry(
    "Tensor.addmm_", "self left right alpha={2|2j}? beta={2|0|1j}?", _I, ndim=(2, 2), dtypes=DTypes.NUMERIC, writes=True
)
entry("torch.nn.functional.relu_", "self", _I, dtypes=DTypes.REAL, writes=True)
entry(
    "torch.nn.functional.dropout",
    "self p={0.0|1.0} inplace={True|False}?",
    Group.RNG,
    dtypes=DTypes.FLOATING,
    writes=True,
)
for _path in ("Tensor.sin_", "Tensor.exp_", "Tensor.sigmoid_", "Tensor.tanh_"):
    entry(_path, "self", _I, dtypes=DTypes.DIFFERENTIABLE, writes=True, work=Work.INEXACT)
entry("Tensor.div_", "self {2|4|2j}", _I, dtypes=DTypes.DIFFERENTIABLE, writes=True, work=Work.INEXACT)
entry("Tensor.clamp_max_", "self {1|2}", _I, dtypes=DTypes.REAL, writes=True, weight=1)
entry("Tensor.fmod_", "self {2|3}", _I, dtypes=DTypes.REAL, writes=True, weight=1)
entry("Tensor.nan_to_num_", "self", _I, dtypes=DTypes.NUMERIC, writes=True, weight=1)
entry("torch.nn.functional.leaky_relu_", "self {2.0|0.5}", _I, dtypes=DTypes.FLOATING, writes=True, weight=1)

_ROUNDS: dict[str, Any] = {"dtypes": DTypes.FLOATING, "work": Work.INEXACT, "writes": True, "weight": 1}
entries("Tensor.", "sqrt_ rsqrt_ log1p_ expm1_ reciprocal_", "self", _I, **_ROUNDS | {"dtypes": DTypes.DIFFERENTIABLE})
entries("Tensor.", "atan2_ hypot_", "self fit_tensor", _I, **_ROUNDS)
entry("Tensor.addcdiv_", "self fit_tensor fit_tensor value={2|-1}?", _I, **_ROUNDS)
entry("Tensor.cumprod_", "self dim", _I, ndim=(1, 6), **_ROUNDS)
entry("torch.nn.functional.elu_", "self", _I, **_ROUNDS)

_F = Group.FILL
entry("Tensor.zero_", "self", _F, writes=True, ordered=True)
entry("Tensor.fill_", "self scalar", _F, writes=True, ordered=True, weight=3)
entry("Tensor.masked_fill_", "self mask scalar", _F, writes=True, ordered=True)
entry("Tensor.fill_diagonal_", "self {0|1|2|2j}", _F, ndim=(2, 2), writes=True)
entry("setitem", "self subscript fit", _F, ndim=(1, 6), results=0, writes=True, weight=5)
entry("setitem", "self mask scalar", _F, ndim=(1, 6), results=0, writes=True, weight=2)

_S = Group.SCATTER
entry("Tensor.index_add_", "self dim index source", _S, ndim=(1, 4), dtypes=DTypes.NUMERIC, writes=True)
entry("Tensor.index_copy_", "self dim index_once source", _S, ndim=(1, 4), writes=True)
entry("Tensor.index_fill_", "self dim index {1|0|1j}", _S, ndim=(1, 4), writes=True)
entry("Tensor.index_put_", "self indices rows accumulate={True}", _S, ndim=(1, 4), dtypes=DTypes.NUMERIC, writes=True)
entry("Tensor.scatter_", "self dim index_full_once same", _S, ndim=(1, 4), writes=True)
entry("Tensor.scatter_", "self dim index_full {2|0|2j}", _S, ndim=(1, 4), writes=True)
entry("Tensor.scatter_add_", "self dim index_full same", _S, ndim=(1, 4), dtypes=DTypes.NUMERIC, writes=True)
entry("Tensor.masked_scatter_", "self mask same", _S, ndim=(1, 4), writes=True, weight=1)
entry("setitem", "self index_once rows", _S, ndim=(1, 4), results=0, writes=True, weight=1)
entry(
    "Tensor.put_", "self index source accumulate={True}", _S, ndim=(1, 1), dtypes=DTypes.NUMERIC, writes=True, weight=1
)
entry(
    "Tensor.scatter_reduce_",
    "self dim index_full same {'sum'|'amax'|'mean'|'prod'} include_self=boolean?",
    _S,
    ndim=(1, 4),
    **_ROUNDS,
)

_E = Group.FOREACH
_WEIGHTED: dict[str, Any] = {"dtypes": DTypes.FLOATING, "writes": True, "weight": 1}
entry("torch._foreach_add_", "list list_same", _E, dtypes=DTypes.NUMERIC, results=0, writes=True)
entry("torch._foreach_add_", "list {1|2|1j}", _E, dtypes=DTypes.NUMERIC, results=0, writes=True)
entry("torch._foreach_mul_", "list {2|-1|1j}", _E, dtypes=DTypes.NUMERIC, results=0, writes=True)
entry("torch._foreach_copy_", "list list_same", _E, results=0, writes=True)
entry("torch._foreach_zero_", "list", _E, results=0, writes=True)
entry("torch._foreach_neg_", "list", _E, dtypes=DTypes.NUMERIC, results=0, writes=True)
for _path in ("torch._foreach_abs_", "torch._foreach_sign_"):
    entry(_path, "list", _E, dtypes=DTypes.REAL, results=0, writes=True, weight=1)
entry("torch._foreach_clamp_min_", "list {0|1}", _E, dtypes=DTypes.REAL, results=0, writes=True, weight=1)
entry("torch._foreach_addcmul_", "list list_same list_same {1|2}", _E, results=0, **_WEIGHTED)
entry("torch._foreach_lerp_", "list list_same {0.5}", _E, results=0, **_WEIGHTED)
entry("torch._foreach_mul", "list {2|-1|1j}", _E, dtypes=DTypes.NUMERIC, results=None)

_O = Group.OUT
entry("torch.add", "self same out=out", _O, dtypes=DTypes.NUMERIC, writes=True)
entry("torch.mul", "self {2|-1|1j} out=out", _O, dtypes=DTypes.NUMERIC, writes=True)
entry("torch.neg", "self out=out", _O, dtypes=DTypes.NUMERIC, writes=True)
entry("torch.sum", "self dim out=out", _O, dtypes=DTypes.NUMERIC, ndim=(1, 4), writes=True)
entry("torch.cumsum", "self dim out=out", _O, dtypes=DTypes.NUMERIC, ndim=(1, 4), writes=True)
entry("torch.mm", "self mat out=out", _O, dtypes=DTypes.NUMERIC, ndim=(2, 2), writes=True)

_G = Group.METADATA
entry("Tensor.t_", "self", _G, ndim=(0, 2))
entry("Tensor.transpose_", "self dim dim2", _G, ndim=(1, 6))
entry("Tensor.swapaxes_", "self dim dim2", _G, ndim=(1, 6))
entry("Tensor.squeeze_", "self", _G)
entry("Tensor.squeeze_", "self dim", _G, ndim=(1, 6))
entry("Tensor.squeeze_", "self dims", _G, ndim=(1, 6))
entry("Tensor.unsqueeze_", "self new_dim", _G, ndim=(0, 4))
entry("Tensor.as_strided_", "self strided_size strided_stride strided_offset", _G)
entry("Tensor.resize_", "self resize_size", _G, weight=1, undefined=True)

entry("Tensor.set_", "self same", Group.SET, weight=3)
entry("Tensor.set_", "self storage", Group.SET, weight=1)
entry("Tensor.set_", "self storage strided_offset strided_size strided_stride", Group.SET, weight=2)
entry("Tensor.set_", "self source_tensor strided_offset strided_size strided_stride", Group.SET, weight=1)
entry("Tensor.untyped_storage", "self", Group.SET, weight=0)
entry("Tensor.set_", "self", Group.SET, weight=1)
entry("Tensor.data=", "self data", Group.SET, results=0, weight=4)
entry("torch.utils.swap_tensors", "self data", Group.SET, results=0, weight=2)

_B = Group.STORAGE


def _resize_storage(t: torch.Tensor, nbytes: int) -> torch.UntypedStorage:
    storage = t.untyped_storage()
    storage.resize_(nbytes)
    return storage


entry(
    "Tensor.untyped_storage().resize_",
    "self nbytes",
    _B,
    function=_resize_storage,
    dtypes=DTypes.NUMERIC,
    results=0,
    undefined=True,
)
entry(
    "torch.ops.inductor.resize_storage_bytes_.default",
    "self nbytes",
    _B,
    dtypes=DTypes.NUMERIC,
    results=0,
    undefined=True,
)

_C = Group.CONTAINER
entry("setitem", "container key anything", _C, results=0, weight=4)
entry("list.append", "container anything", _C, results=0)
entry("list.insert", "container {0} anything", _C, results=0)
entry("list.pop", "container {-1|0}", _C)
entry("list.reverse", "container", _C, results=0, weight=1)
entry("dict.update", "container items", _C, results=0)
entry("dict.setdefault", "container {'k0'|'n'} anything", _C, weight=1)
entry("object.hidden", "container", Group.VIEW, attribute=True, weight=0)
entry("object.scale", "container", Group.VIEW, attribute=True, weight=0)
entry("object.hidden=", "container anything", _C, results=0, weight=6)
entry("object.scale=", "container number", _C, results=0, weight=3)

_R = Group.RNG
entry("Tensor.bernoulli_", "self {0.5}", _R, writes=True, dtypes=DTypes.REAL)
entry("Tensor.random_", "self {0} {3}", _R, writes=True, dtypes=DTypes.REAL)
entry("Tensor.normal_", "self", _R, writes=True, dtypes=DTypes.DIFFERENTIABLE, work=Work.INEXACT)
entry("Tensor.uniform_", "self", _R, writes=True, dtypes=DTypes.FLOATING, work=Work.INEXACT)
entry("torch.rand_like", "self", _R, dtypes=DTypes.FLOATING, work=Work.INEXACT)
entry("torch.randn_like", "self", _R, dtypes=DTypes.FLOATING, work=Work.INEXACT)
entry("torch.randint_like", "self {3}", _R, dtypes=DTypes.REAL)
entry("torch.randint", "{0} {3} factory_size dtype=dtype device=device", _R, weight=1)
entry("torch.nn.functional.dropout", "self p={0.5}", _R, dtypes=DTypes.FLOATING)
entry("torch.nn.functional.dropout1d", "self p={0.5}", _R, dtypes=DTypes.FLOATING, ndim=(2, 3), weight=1)
entry("torch.nn.functional.dropout2d", "self p={0.5}", _R, dtypes=DTypes.FLOATING, ndim=(3, 4), weight=1)
entry("torch.nn.functional.alpha_dropout", "self p={0.5}", _R, dtypes=DTypes.FLOATING, work=Work.INEXACT, weight=1)
entries("torch.", "rand randn", "factory_size device=device", _R, work=Work.INEXACT, weight=1)
entry("torch.bernoulli", "self", _R, dtypes=DTypes.FLOATING, weight=0)
entry("torch.multinomial", "self {1}", _R, dtypes=DTypes.FLOATING, ndim=(1, 1), weight=0)
entry("torch.randperm", "{3|4} device=device", _R, weight=1)
