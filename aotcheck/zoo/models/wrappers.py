"""Parameters that are more than tensors: parametrized, tied, shared, wrapped; a size is the batch's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations

from aotcheck.backends import Promise
from aotcheck.zoo.model import Compiled, Kind, Place, Program, Schedule, model
from aotcheck.zoo.models.sequences import WORDS, texts
from aotcheck.zoo.models.training import examples, mlp
from aotcheck.zoo.recipes import supervised


@model(Kind.WRAPPERS, at_most=2)
def weight_norm(place: Place, sizes: Sequence[int]) -> Program:
    """Weights as a direction and a length, by a parametrization."""
    layers = parametrizations.weight_norm(nn.Linear(4, 6)), parametrizations.weight_norm(nn.Linear(6, 3))
    return supervised(place(nn.Sequential(layers[0], nn.ReLU(), layers[1])), examples(place, sizes))


@model(Kind.WRAPPERS, at_most=2)
def spectral_norm(place: Place, sizes: Sequence[int]) -> Program:
    """Weights divided by their largest singular value, which buffers estimate better with each call."""
    layers = parametrizations.spectral_norm(nn.Linear(4, 6)), parametrizations.spectral_norm(nn.Linear(6, 3))
    return supervised(place(nn.Sequential(layers[0], nn.ReLU(), layers[1])), examples(place, sizes))


@model(Kind.WRAPPERS, at_most=2)
def orthogonal_weights(place: Place, sizes: Sequence[int]) -> Program:
    """A recurrent matrix that a parametrization keeps orthogonal, by a matrix exponential."""

    class Rotating(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.turn = parametrizations.orthogonal(nn.Linear(4, 4, bias=False), orthogonal_map="matrix_exp")
            self.head = nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(3):
                x = torch.tanh(self.turn(x))
            return self.head(x)

    return supervised(place(Rotating()), examples(place, sizes))


@model(Kind.WRAPPERS, at_most=2)
def tied_weights(place: Place, sizes: Sequence[int]) -> Program:
    """Embedding and head are one parameter, and one block is used twice."""

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(WORDS, 6), nn.Linear(6, WORDS, bias=False)
            self.head.weight = self.embed.weight
            block = nn.Sequential(nn.Linear(6, 6), nn.GELU())
            self.blocks = nn.ModuleList([block, block])

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            x = self.embed(ids)
            for block in self.blocks:
                x = x + block(x)
            return self.head(x)

    return supervised(place(Tied()), texts(place, [(n, 5) for n in sizes]))


@model(Kind.WRAPPERS, at_most=2)
def flat_buffer_parameters(place: Place, sizes: Sequence[int]) -> Program:
    """All parameters are views of one buffer, and so are their gradients: one write moves them all."""
    net = place(nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)))
    parameters = list(net.parameters())
    flat = torch.cat([p.detach().flatten() for p in parameters])
    gradient, start = torch.zeros_like(flat), 0
    for p in parameters:
        p.data = flat[start : start + p.numel()].view_as(p)
        p.grad = gradient[start : start + p.numel()].view_as(p)
        start += p.numel()

    def step(call: Compiled, batch: Any) -> Any:
        gradient.zero_()
        loss = F.cross_entropy(call(batch[0]), batch[1])
        loss.backward()
        flat.add_(gradient, alpha=-0.1)
        return loss

    return Program(net, step, examples(place, sizes), {"flat": flat, "gradient": gradient, "net": net})


class QuantizedWeight(torch.Tensor):
    """A weight in int8 with a scale for each row: a wrapper subclass, as quantization libraries have them."""

    @staticmethod
    def __new__(cls, values: torch.Tensor, scale: torch.Tensor) -> QuantizedWeight:
        """A tensor with the dtype of ``scale``."""
        return torch.Tensor._make_wrapper_subclass(cls, values.shape, dtype=scale.dtype, device=values.device)

    def __init__(self, values: torch.Tensor, scale: torch.Tensor) -> None:
        self.values_, self.scale_ = values, scale

    @classmethod
    def of(cls, weight: torch.Tensor) -> QuantizedWeight:
        """``weight`` in int8."""
        scale = weight.abs().amax(1, keepdim=True) / 127
        return cls((weight / scale).round().to(torch.int8), scale)

    def dequantized(self) -> torch.Tensor:
        """The weight as a plain tensor."""
        return self.values_.to(self.scale_.dtype) * self.scale_

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["values_", "scale_"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, torch.Tensor], meta: None, size: Any, stride: Any) -> QuantizedWeight:
        return QuantizedWeight(inner["values_"], inner["scale_"])

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"QuantizedWeight({self.values_.shape})"

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        aten = torch.ops.aten
        if func in (aten.detach.default, aten.alias.default, aten.clone.default):
            return cls(func(args[0].values_), func(args[0].scale_))

        def plain(value: Any) -> Any:
            return value.dequantized() if isinstance(value, cls) else value

        return func(*map(plain, args), **{key: plain(value) for key, value in (kwargs or {}).items()})


@model(Kind.WRAPPERS, at_most=2, needs={Promise.SUBCLASSES})
def quantized_weights(place: Place, sizes: Sequence[int]) -> Program:
    """Frozen weights of a wrapper subclass in int8 below adapters that are trained."""

    class Quantized(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            weight = place(torch.randn(6, 4) / 2)
            self.weight = nn.Parameter(QuantizedWeight.of(weight), requires_grad=False)
            self.adapter, self.head = place(nn.Linear(4, 6)), place(nn.Linear(6, 3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(torch.tanh(F.linear(x, self.weight) + self.adapter(x)))

    return supervised(Quantized(), examples(place, sizes))


@model(Kind.WRAPPERS, at_most=1, schedule=Schedule.STATIC, needs={Promise.SUBCLASSES})
def weight_with_a_function_of_its_own(place: Place, sizes: Sequence[int]) -> Program:
    """A captured weight of a subclass whose ``__torch_function__`` changes what ``linear`` does."""

    class Doubled(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            plain = [a.as_subclass(torch.Tensor) if isinstance(a, cls) else a for a in args]
            out = func(*plain, **(kwargs or {}))
            return out * 2 if func is F.linear else out

    weight = place(torch.randn(3, 4)).as_subclass(Doubled)
    bias = place(torch.zeros(3, requires_grad=True))

    def target(x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, weight) + bias

    def step(call: Compiled, batch: Any) -> Any:
        bias.grad = None
        output = call(batch[0])
        F.cross_entropy(output, batch[1]).backward()
        return output

    return Program(target, step, examples(place, sizes), {"bias": bias})


@model(Kind.WRAPPERS, at_most=1, schedule=Schedule.STATIC, needs={Promise.SUBCLASSES})
def distributed_tensors_on_one_process(place: Place, sizes: Sequence[int]) -> Program:
    """Tensors that are distributed over a mesh of one device, in and out."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    dist: Any = torch.distributed  # which does not export its stores to type checkers
    if not dist.is_initialized():
        dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
    mesh = init_device_mesh(place.device.type, (1,))
    weight = distribute_tensor(place(torch.randn(4, 3)), mesh, [Replicate()]).requires_grad_()

    def target(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (x @ w).sin() * 2

    def step(call: Compiled, batch: Any) -> Any:
        weight.grad = None
        output = call(distribute_tensor(batch[0], mesh, [Shard(0)]), weight)
        output.to_local().square().sum().backward()
        return output.to_local(), weight.grad.to_local() if weight.grad is not None else None

    return Program(target, step, examples(place, sizes))


@model(Kind.FUNCTIONS, at_most=2)
def functional_call(place: Place, sizes: Sequence[int]) -> Program:
    """A module called as a function of parameters that are held elsewhere; buffers come back."""
    net = mlp(place)
    parameters = {name: p.detach().clone().requires_grad_() for name, p in net.named_parameters()}
    buffers = dict(net.named_buffers())

    def loss_of(parameters: Any, buffers: Any, x: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(torch.func.functional_call(net, (parameters, buffers), (x,)), wanted)

    def step(call: Compiled, batch: Any) -> Any:
        loss = call(parameters, buffers, *batch)
        gradients = torch.autograd.grad(loss, list(parameters.values()))
        with torch.no_grad():
            for p, g in zip(parameters.values(), gradients, strict=True):
                p.sub_(g, alpha=0.1)
        return loss, gradients

    return Program(loss_of, step, examples(place, sizes), {"parameters": parameters, "buffers": buffers})


@model(Kind.FUNCTIONS, at_most=2)
def vmapped_ensemble(place: Place, sizes: Sequence[int]) -> Program:
    """An ensemble: one network mapped over stacked parameters, by ``vmap``."""
    nets = [place(nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))) for _ in range(3)]
    parameters, buffers = torch.func.stack_module_state(nets)
    base = nets[0]

    def predict(parameters: Any, buffers: Any, x: torch.Tensor) -> torch.Tensor:
        def one(parameters: Any, buffers: Any) -> torch.Tensor:
            return torch.func.functional_call(base, (parameters, buffers), (x,))

        return torch.func.vmap(one)(parameters, buffers)

    optimizer = torch.optim.SGD(parameters.values(), lr=0.1)

    def step(call: Compiled, batch: Any) -> Any:
        optimizer.zero_grad()
        scores = call(parameters, buffers, batch[0])
        loss = F.cross_entropy(scores.flatten(0, 1), batch[1].repeat(3))
        loss.backward()
        optimizer.step()
        return loss, scores

    return Program(predict, step, examples(place, sizes), {"parameters": parameters})


@model(Kind.FUNCTIONS, at_most=2)
def gradients_for_each_example(place: Place, sizes: Sequence[int]) -> Program:
    """Differential privacy: ``vmap`` of ``grad``, clipped for each example, with noise."""
    net = place(nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)))
    parameters = {name: p.detach() for name, p in net.named_parameters()}

    def loss_of(parameters: Any, x: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(torch.func.functional_call(net, parameters, (x[None],)), wanted[None])

    def private(parameters: Any, x: torch.Tensor, wanted: torch.Tensor) -> Any:
        each = torch.func.vmap(torch.func.grad(loss_of), (None, 0, 0))(parameters, x, wanted)
        norms = torch.stack([g.flatten(1).square().sum(1) for g in each.values()]).sum(0).sqrt()
        factor = (1.0 / norms).clamp_max(1.0)
        return {name: torch.tensordot(factor, g, 1) + 0.1 * torch.randn_like(g[0]) for name, g in each.items()}

    def step(call: Compiled, batch: Any) -> Any:
        gradients = call(parameters, *batch)
        for name, g in gradients.items():
            parameters[name] -= 0.1 * g
        return gradients

    return Program(private, step, examples(place, sizes), {"parameters": parameters})


@model(Kind.FUNCTIONS, at_most=2)
def jacobian_of_a_network(place: Place, sizes: Sequence[int]) -> Program:
    """A penalty on the Jacobian of each example, by ``vmap`` of ``jacrev``, and a directional derivative by ``jvp``."""
    net = place(nn.Sequential(nn.Linear(4, 5), nn.Softplus(), nn.Linear(5, 3)))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def penalties(x: torch.Tensor, direction: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        jacobians = torch.func.vmap(torch.func.jacrev(net))(x)
        moved = torch.func.jvp(net, (x,), (direction,))[1]
        return jacobians, moved

    def step(call: Compiled, batch: Any) -> Any:
        optimizer.zero_grad()
        jacobians, moved = call(batch[0], torch.ones_like(batch[0]))
        (jacobians.square().mean() + moved.square().mean()).backward()
        optimizer.step()
        return jacobians, moved

    return Program(penalties, step, examples(place, sizes), {"net": net})
