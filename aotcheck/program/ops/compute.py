"""Table entries: computation that makes fresh tensors."""

from typing import Any

from aotcheck.program.ops.registry import DTypes, Group, Work, entries, entry

_P = Group.POINTWISE

for _path in ("torch.add", "torch.sub"):
    entry(_path, "self other alpha={2|-1|2j|1-1j}?", _P, dtypes=DTypes.NUMERIC, weight=4)
entry("torch.mul", "self other", _P, weight=4)
for _path in ("torch.neg", "torch.square"):
    entry(_path, "self", _P, dtypes=DTypes.NUMERIC)
for _path in ("torch.abs", "torch.sign", "torch.relu"):
    entry(_path, "self", _P, dtypes=DTypes.REAL)
entry("Tensor.clone", "self", _P, weight=3)
entry("torch.clamp", "self {-1|0} {1|2}", _P, dtypes=DTypes.REAL)
entry("torch.addcmul", "self peer peer value={2|-1|2j}?", _P, dtypes=DTypes.NUMERIC)
entry("torch.lerp", "self same {0.5|2.0|2j}", _P, dtypes=DTypes.DIFFERENTIABLE)
entry("torch.where", "mask peer other", _P)
entry("torch.remainder", "self {2|3}", _P, dtypes=DTypes.REAL)
entry("torch.pow", "self {2|1}", _P, dtypes=DTypes.NUMERIC)
entry("torch.rsub", "self other alpha={2|2j}?", _P, dtypes=DTypes.NUMERIC)
entry("torch.masked_fill", "self mask {0|1|1j}", _P)
entry("torch.where", "mask {0|1|1j} peer", _P, weight=1)
entry("torch.nn.functional.leaky_relu", "self {2.0|0.5}", _P, dtypes=DTypes.FLOATING)
entry("torch.nn.functional.hardtanh", "self", _P, dtypes=DTypes.FLOATING)
for _path in ("torch.sin", "torch.cos", "torch.exp", "torch.sigmoid", "torch.tanh"):
    entry(_path, "self", _P, dtypes=DTypes.DIFFERENTIABLE, work=Work.INEXACT)
entry("torch.div", "self {2|4|2j|1+1j}", _P, dtypes=DTypes.DIFFERENTIABLE, work=Work.INEXACT)
entry("Tensor.pow", "self {0.5|3|1j|1+2j}", _P, dtypes=DTypes.DIFFERENTIABLE, work=Work.INEXACT, weight=1)
entry("torch.float_power", "{2|1j|1+1j} self", _P, dtypes=DTypes.DIFFERENTIABLE, work=Work.INEXACT, weight=1)
entry("torch.nn.functional.gelu", "self", _P, dtypes=DTypes.FLOATING, work=Work.INEXACT)
entry("torch.nn.functional.silu", "self", _P, dtypes=DTypes.FLOATING, work=Work.INEXACT)
entry("torch.where", "mask peer {0|1}", _P, weight=1)
entry("torch.fmod", "self {2|3}", _P, dtypes=DTypes.REAL, weight=1)
entries("torch.", "nan_to_num sgn", "self", _P, dtypes=DTypes.NUMERIC, weight=1)
entry("torch.round", "self", _P, dtypes=DTypes.FLOATING, weight=1)
entries("torch.", "clamp_min clamp_max", "self {0|1}", _P, dtypes=DTypes.REAL, weight=1)
entries("torch.nn.functional.", "relu6 hardshrink", "self", _P, dtypes=DTypes.FLOATING, weight=1)
entry("torch.nn.functional.threshold", "self {0|1} {2|-1}", _P, dtypes=DTypes.FLOATING, weight=1)
entry("torch.nn.functional.prelu", "self channels", _P, dtypes=DTypes.FLOATING, ndim=(2, 4), weight=1)
entry("torch.sqrt", "self", _P, dtypes=DTypes.DIFFERENTIABLE, work=Work.INEXACT)

_ROUNDS: dict[str, Any] = {"dtypes": DTypes.FLOATING, "work": Work.INEXACT, "weight": 1}
_ROUNDS_COMPLEX = _ROUNDS | {"dtypes": DTypes.DIFFERENTIABLE}
entries("torch.", "rsqrt log1p expm1 reciprocal log", "self", _P, **_ROUNDS_COMPLEX)
entries("torch.", "erf exp2", "self", _P, **_ROUNDS)
entries("torch.", "atan2 logaddexp", "self peer", _P, **_ROUNDS)
entry("torch.hypot", "self same", _P, **_ROUNDS)
entry("torch.angle", "self", _P, **_ROUNDS_COMPLEX)
entry("torch.addcdiv", "self peer same value={2|-1}?", _P, **_ROUNDS_COMPLEX)
entries("torch.nn.functional.", "softplus elu hardswish hardsigmoid mish logsigmoid", "self", _P, **_ROUNDS)
entry("torch.nn.functional.gelu", "self approximate={'tanh'}", _P, **_ROUNDS)
entry("torch.nn.functional.glu", "self dim", _P, ndim=(1, 4), **_ROUNDS)

_C = Group.COMPARE
for _path in ("torch.eq", "torch.ne"):
    entry(_path, "self other", _C)
for _path in ("torch.lt", "torch.ge"):
    entry(_path, "self other", _C, dtypes=DTypes.REAL_OR_BOOL)
entries("torch.", "gt le", "self other", _C, dtypes=DTypes.REAL_OR_BOOL, weight=1)
entry("torch.logical_not", "self", _C)
entry("torch.logical_and", "self peer", _C)
entry("torch.isnan", "self", _C, weight=1)
entry("torch.bitwise_not", "self", _C, dtypes=DTypes.INTEGRAL)

_R = Group.REDUCE
entry("Tensor.sum", "self", _R, weight=4)
entry("Tensor.sum", "self dim keepdim=boolean?", _R, ndim=(1, 6), weight=3)
# Their gradients divide, and complex division rounds by the layout of its operands.
entry("torch.prod", "self dim", _R, ndim=(1, 6), weight=1, work=Work.INEXACT)
entry("torch.amax", "self dim", _R, dtypes=DTypes.REAL, ndim=(1, 6))
entry("torch.amin", "self", _R, dtypes=DTypes.REAL, weight=1)
entry("torch.max", "self dim", _R, dtypes=DTypes.REAL, ndim=(1, 6), results=None)
entry("torch.argmax", "self dim", _R, dtypes=DTypes.REAL, ndim=(1, 6))
entry("torch.any", "self", _R)
entry("torch.all", "self dim", _R, ndim=(1, 6))
entry("torch.count_nonzero", "self", _R, weight=1)
entry("torch.cumsum", "self dim", _R, ndim=(1, 6))
entry("torch.cumprod", "self dim", _R, ndim=(1, 6), weight=1, work=Work.INEXACT)
entry("torch.trace", "self", _R, dtypes=DTypes.NUMERIC, ndim=(2, 2))
entry("torch.mean", "self", _R, dtypes=DTypes.DIFFERENTIABLE, work=Work.INEXACT)
entry("torch.var", "self dim", _R, dtypes=DTypes.FLOATING, ndim=(1, 6), work=Work.INEXACT)
entry("torch.logsumexp", "self dim", _R, dtypes=DTypes.FLOATING, ndim=(1, 6), work=Work.INEXACT)
entry("torch.linalg.vector_norm", "self", _R, dtypes=DTypes.DIFFERENTIABLE, work=Work.INEXACT)
entry("torch.amin", "self dim", _R, dtypes=DTypes.REAL, ndim=(1, 6), weight=1)
entry("torch.amax", "self dims keepdim=boolean", _R, dtypes=DTypes.REAL, ndim=(1, 6), weight=1)
entry("torch.aminmax", "self dim=dim", _R, dtypes=DTypes.REAL, ndim=(1, 6), results=None, weight=1)
entries("torch.", "cummax cummin", "self dim", _R, dtypes=DTypes.REAL, ndim=(1, 6), results=None, weight=1)
entry("torch.diff", "self dim=dim", _R, dtypes=DTypes.NUMERIC, ndim=(1, 6), weight=1)
entry("torch.bincount", "index minlength={3}?", _R, weight=1)
entry("torch.mean", "self dim keepdim=boolean?", _R, ndim=(1, 6), **_ROUNDS_COMPLEX)
entry("torch.std", "self dim correction={0}?", _R, ndim=(1, 6), **_ROUNDS)
entries("torch.", "var_mean std_mean", "self dim", _R, ndim=(1, 6), results=None, **_ROUNDS)
entry("torch.logcumsumexp", "self dim", _R, ndim=(1, 6), **_ROUNDS)
entry("torch.linalg.vector_norm", "self {2|1} dim", _R, ndim=(1, 6), **_ROUNDS_COMPLEX)
entry("torch.linalg.norm", "self", _R, **_ROUNDS_COMPLEX)
entry("torch.norm", "self dim=dim?", _R, ndim=(1, 6), **_ROUNDS_COMPLEX)
entry("torch.linalg.matrix_norm", "self", _R, ndim=(2, 4), **_ROUNDS_COMPLEX)

_M = Group.MATMUL
entry("torch.mm", "self mat", _M, dtypes=DTypes.NUMERIC, ndim=(2, 2))
entry("torch.matmul", "self mat", _M, dtypes=DTypes.NUMERIC, ndim=(1, 3))
entry("torch.bmm", "self bmat", _M, dtypes=DTypes.NUMERIC, ndim=(3, 3))
entry("torch.mv", "self vec", _M, dtypes=DTypes.NUMERIC, ndim=(2, 2))
entry("torch.dot", "self vec", _M, dtypes=DTypes.NUMERIC, ndim=(1, 1))
entry("torch.outer", "self same", _M, dtypes=DTypes.NUMERIC, ndim=(1, 1))
entry("torch.nn.functional.linear", "self mat_t", _M, dtypes=DTypes.NUMERIC, ndim=(1, 3))
entry("torch.einsum", '{"ij,kj->ik"} self mat_t', _M, dtypes=DTypes.NUMERIC, ndim=(2, 2))
entry("torch.addmm", "self left right alpha={2|2j}? beta={2|0|1j}?", _M, dtypes=DTypes.NUMERIC, ndim=(2, 2))
entry("torch.vdot", "self vec", _M, dtypes=DTypes.NUMERIC, ndim=(1, 1), weight=1)
entry("torch.inner", "self same", _M, dtypes=DTypes.NUMERIC, ndim=(1, 2), weight=1)
entry("torch.kron", "self peer", _M, dtypes=DTypes.NUMERIC, ndim=(1, 2), weight=1)
entry("torch.tensordot", "self mat dims={1}", _M, dtypes=DTypes.NUMERIC, ndim=(1, 3), weight=1)
entry("torch.einsum", '{"ij->ji"|"ij->i"|"ij->"} self', _M, dtypes=DTypes.NUMERIC, ndim=(2, 2), weight=1)
entry("torch.einsum", '{"bij,bjk->bik"} self bmat', _M, dtypes=DTypes.NUMERIC, ndim=(3, 3), weight=1)
entry("torch.linalg.multi_dot", "chain", _M, dtypes=DTypes.NUMERIC, ndim=(2, 2), weight=1)
entry("torch.linalg.cross", "self same dim=dim", _M, dtypes=DTypes.NUMERIC, ndim=(1, 3), weight=1)
entry("torch.linalg.matrix_power", "self {2|3}", _M, dtypes=DTypes.NUMERIC, ndim=(2, 3), weight=1)
entries("torch.linalg.", "solve", "positive mat", _M, ndim=(2, 2), **_ROUNDS_COMPLEX)
entry("torch.linalg.solve_triangular", "positive mat upper=boolean", _M, ndim=(2, 2), **_ROUNDS_COMPLEX)
entries("torch.linalg.", "inv cholesky det eigvalsh", "positive", _M, ndim=(2, 3), **_ROUNDS_COMPLEX)
entry("torch.logdet", "positive", _M, ndim=(2, 3), **_ROUNDS)
entries("torch.linalg.", "slogdet qr", "positive", _M, ndim=(2, 3), results=None, **_ROUNDS_COMPLEX)
entry("torch.linalg.matrix_exp", "self", _M, ndim=(2, 3), **_ROUNDS_COMPLEX)

entries("torch.fft.", "fft ifft", "self dim=dim", _M, ndim=(1, 4), **_ROUNDS_COMPLEX)
entry("torch.fft.rfft", "self dim=dim", _M, ndim=(1, 4), **_ROUNDS)
entry("torch.fft.irfft", "self dim=dim", _M, ndim=(1, 4), **_ROUNDS | {"dtypes": DTypes.COMPLEX})
entry("torch.fft.fft2", "self", _M, ndim=(2, 4), **_ROUNDS_COMPLEX)
entries("torch.fft.", "fftshift ifftshift", "self dim=dim", _M, ndim=(1, 4), weight=1)
entry("torch.stft", "self {2} hop_length={1|2} return_complex={True}", _M, ndim=(1, 2), **_ROUNDS)
entry("torch.istft", "spectrum {2} hop_length={1}", _M, ndim=(1, 2), **_ROUNDS)

_N = Group.NN
entry("torch.nn.functional.conv2d", "self conv_weight padding={0|1}?", _N, dtypes=DTypes.FLOATING, ndim=(4, 4))
entry("torch.nn.functional.max_pool1d", "self {2}", _N, dtypes=DTypes.FLOATING, ndim=(2, 3))
entry("torch.nn.functional.avg_pool1d", "self {2}", _N, dtypes=DTypes.FLOATING, ndim=(2, 3))
entry("torch.nn.functional.pad", "self pads", _N, dtypes=DTypes.NUMERIC, ndim=(1, 4))
entry("torch.nn.functional.mse_loss", "self same", _N, dtypes=DTypes.FLOATING, work=Work.INEXACT)
entry("torch.softmax", "self dim", _N, dtypes=DTypes.FLOATING, ndim=(1, 4), work=Work.INEXACT)
entry("torch.log_softmax", "self dim", _N, dtypes=DTypes.FLOATING, ndim=(1, 4), work=Work.INEXACT)
entry("torch.nn.functional.layer_norm", "self normalized", _N, dtypes=DTypes.FLOATING, ndim=(1, 4), work=Work.INEXACT)
entry(
    "torch.nn.functional.batch_norm",
    "self {None} {None} training={True}",
    _N,
    dtypes=DTypes.FLOATING,
    ndim=(2, 4),
    work=Work.INEXACT,
)
entry("torch.nn.functional.embedding", "index table", _N)
_IMAGES: dict[str, Any] = {"dtypes": DTypes.FLOATING, "weight": 1}
_F = "torch.nn.functional."
entry("torch.nn.functional.max_pool2d", "image {2} stride={1}?", _N, **_IMAGES)
entry("torch.nn.functional.avg_pool2d", "image {2} stride={1}?", _N, **_IMAGES)
entry("torch.nn.functional.interpolate", "image scale_factor={2} mode={'nearest'|'bilinear'}", _N, **_ROUNDS)
entry("torch.nn.functional.adaptive_avg_pool2d", "image {1|(1,2)}", _N, **_ROUNDS)
entry("torch.nn.functional.unfold", "image {2}", _N, **_IMAGES)
entry("torch.nn.functional.fold", "columns unfolded {2}", _N, **_IMAGES)
entry("torch.nn.functional.pixel_unshuffle", "image {2}", _N, **_IMAGES)
entry("torch.nn.functional.conv1d", "self conv_weight padding={0|1}?", _N, ndim=(3, 3), **_IMAGES)
entry("torch.nn.functional.conv_transpose2d", "image conv_transpose_weight stride={1|2}?", _N, **_IMAGES)
entry("torch.nn.functional.group_norm", "self {1}", _N, ndim=(2, 4), **_ROUNDS)
entry("torch.nn.functional.instance_norm", "image", _N, **_ROUNDS)
entry("torch.nn.functional.rms_norm", "self normalized", _N, ndim=(1, 4), **_ROUNDS)
entry("torch.nn.functional.normalize", "self dim=dim", _N, ndim=(1, 4), **_ROUNDS)
entry("torch.nn.functional.cosine_similarity", "self same dim=dim?", _N, ndim=(2, 4), **_ROUNDS)
_ATTENTION = "torch.nn.functional.scaled_dot_product_attention"
entry(_ATTENTION, "self same same", _N, ndim=(2, 4), **_ROUNDS)
entry(_ATTENTION, "sequence same same is_causal={True}", _N, ndim=(2, 4), **_ROUNDS)
entry(_ATTENTION, "sequence same same attn_mask=causal", _N, ndim=(2, 4), **_ROUNDS)
_LOSS = "reduction={'sum'|'mean'|'none'}?"
entries(_F, "cross_entropy nll_loss", f"self target {_LOSS}", _N, ndim=(1, 3), **_ROUNDS)
entries(_F, "l1_loss huber_loss binary_cross_entropy_with_logits", f"self same {_LOSS}", _N, **_ROUNDS)
entry("torch.nn.functional.binary_cross_entropy", "self same", _N, **_ROUNDS | {"weight": 0})
entry("torch.nn.functional.kl_div", "self same reduction={'sum'|'batchmean'} log_target={True}", _N, **_ROUNDS)
entry("torch.nn.functional.embedding", "tokens table", _N, weight=1)
entry("torch.nn.functional.embedding_bag", "tokens table mode={'sum'|'max'}", _N, weight=1)
entry("torch.nn.functional.one_hot", "index {2|3}", _N, weight=1)

_G = Group.GATHER
entry("torch.index_select", "self dim index", _G, ndim=(1, 4))
entry("torch.gather", "self dim index_full", _G, ndim=(1, 4))
entry("torch.take_along_dim", "self index_full {0}", _G, ndim=(1, 4))
entry("torch.scatter", "self dim index_full_once same", _G, ndim=(1, 4))
entry("torch.index_add", "self dim index source", _G, ndim=(1, 4), dtypes=DTypes.NUMERIC)
entry("torch.ops.aten.slice_scatter.default", "self same dim", _G, ndim=(1, 4), weight=1)
entry("getitem", "self places", _G, ndim=(1, 4))
entry("torch.take", "self index", _G, ndim=(1, 4), weight=1)
entry("torch.index_copy", "self dim index_once source", _G, ndim=(1, 4), weight=1)
entry("torch.index_fill", "self dim index {1|0}", _G, ndim=(1, 4), weight=1)
entry("torch.index_put", "self indices rows accumulate={True}", _G, ndim=(1, 4), dtypes=DTypes.NUMERIC, weight=1)
entry("torch.masked_scatter", "self mask same", _G, ndim=(1, 4), weight=1)
entry("torch.scatter_add", "self dim index_full same", _G, ndim=(1, 4), dtypes=DTypes.NUMERIC, weight=1)
entry("torch.select_scatter", "self dim=dim index=position src=part", _G, ndim=(1, 4), weight=1)
entry("torch.slice_scatter", "self dim=dim start=start src=part", _G, ndim=(1, 4), weight=1)
entry("torch.diagonal_scatter", "self offset=diagonal src=part", _G, ndim=(2, 4), weight=1)
entry("torch.as_strided_scatter", "self size=strided_size stride=strided_stride src=part", _G, ndim=(1, 4), weight=1)
_REDUCED = "include_self=boolean?"
entry(
    "torch.scatter_reduce",
    f"self dim index_full same {{'sum'|'amax'|'mean'|'prod'}} {_REDUCED}",
    _G,
    ndim=(1, 4),
    **_ROUNDS,
)

_S = Group.SORT
entry("torch.sort", "self dim=dim stable={True}", _S, dtypes=DTypes.REAL, ndim=(1, 4), results=None)
entry("torch.topk", "self top", _S, dtypes=DTypes.REAL, ndim=(1, 4), results=None, weight=1)
entry("torch.argsort", "self dim=dim stable={True}", _S, dtypes=DTypes.REAL, ndim=(1, 4))
entry("torch.bucketize", "self sorted right=boolean?", _S, dtypes=DTypes.REAL, weight=1)
entry("torch.searchsorted", "sorted self right=boolean?", _S, dtypes=DTypes.FLOATING, ndim=(1, 4), weight=1)

_J = Group.JOIN
entry("torch.cat", "tensors", _J, ndim=(1, 4), weight=3)
entry("torch.stack", "tensors", _J, ndim=(0, 3), weight=3)
entry("torch.flip", "self dims", _J, ndim=(1, 4))
entry("torch.roll", "self shift dim", _J, ndim=(1, 4))
entry("Tensor.repeat", "self repeats", _J, ndim=(0, 3))
entry("torch.repeat_interleave", "self {2} dim", _J, ndim=(1, 3))
entry("torch.tril", "self", _J, ndim=(2, 4))
entry("torch.diag_embed", "self", _J, ndim=(1, 3))
entry("torch.diag", "self", _J, ndim=(1, 2), weight=1)
entries("torch.", "hstack vstack", "tensors", _J, ndim=(1, 4), weight=1)
entry("torch.block_diag", "self peer", _J, ndim=(1, 2), weight=1)
entry("torch.rot90", "self", _J, ndim=(2, 4), weight=1)
entry("torch.meshgrid", "self indexing={'ij'}", _J, ndim=(1, 1), results=None, weight=1)

_K = Group.CAST
entry("Tensor.to", "self dtype", _K, weight=4)
entry("Tensor.double", "self", _K)
entry("Tensor.float", "self", _K)
entry("Tensor.bool", "self", _K)
entry("Tensor.long", "self", _K, dtypes=DTypes.REAL_OR_BOOL)
entry("Tensor.type_as", "self peer", _K)
entry("Tensor.to", "self dtype copy={True}", _K)
entry("torch.complex", "self same", _K, dtypes=DTypes.FLOATING)
entry("torch.polar", "self same", _K, **_ROUNDS)

_Y = Group.FACTORY
entry("torch.zeros", "factory_size dtype=dtype device=device", _Y)
entry("torch.ones", "factory_size dtype=dtype device=device", _Y)
entry("torch.full", "factory_size {2|-1} dtype=float_dtype device=device", _Y)
entry("torch.full", "factory_size {1j|2-1j} device=device", _Y, weight=1)
entry("torch.arange", "{3|6} dtype=dtype device=device", _Y)
entry("torch.triu_indices", "{2|3} {2|3} device=device", _Y, weight=1)
entry("torch.eye", "{2|3} device=device", _Y)
entry("torch.tensor", "constant device=device", _Y)
entry("torch.empty", "factory_size dtype=dtype device=device", _Y, undefined=True, weight=1)
for _path in ("torch.zeros_like", "torch.ones_like"):
    entry(_path, "self", _Y)
entry("torch.full_like", "self {2|0|1j}", _Y)
entry("Tensor.new_full", "self factory_size {2|1j}", _Y)
entry("torch.empty_like", "self", _Y, undefined=True, weight=1)
entry("Tensor.new_zeros", "self factory_size", _Y)
entry("Tensor.new_ones", "self factory_size dtype=dtype", _Y)
