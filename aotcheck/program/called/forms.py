"""Structured forms that programs may call: transforms of torch.func, forward mode, control flow, optimizers."""

import torch


class HasRules(torch.autograd.Function):
    """A square with a jvp, for which torch makes the vmap rule."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x * 2

    @staticmethod
    def jvp(ctx, t):
        (x,) = ctx.saved_tensors
        return t * x * 2


class HasVmap(torch.autograd.Function):
    """A sum over the last dimension with a vmap rule of its own; the gradient is made up."""

    @staticmethod
    def forward(x):
        return x.sum(-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.size = inputs[0].shape

    @staticmethod
    def backward(ctx, g):
        return (g * 3).unsqueeze(-1).expand(ctx.size)

    @staticmethod
    def vmap(info, in_dims, x):
        return HasVmap.apply(x.movedim(in_dims[0], 0)), 0


class Transform:
    """torch.func, forward mode and batched gradients while a function runs."""

    @staticmethod
    def grad(x, y):
        return torch.func.grad(lambda a: (a * a * y).sum())(x)

    @staticmethod
    def grad_and_value(x, y):
        return torch.func.grad_and_value(lambda a, b: (a * b).sum(), argnums=(0, 1))(x, y)[0]

    @staticmethod
    def vjp(x, y):
        value, pull = torch.func.vjp(lambda a, b: a * b, x, y)
        return value, *pull(value)

    @staticmethod
    def jvp(x, y):
        return torch.func.jvp(lambda a: a * a, (x,), (y,))

    @staticmethod
    def jacrev(x):
        return torch.func.jacrev(lambda a: (a * a).sum(-1))(x)

    @staticmethod
    def jacfwd(x):
        return torch.func.jacfwd(lambda a: (a * a).sum(-1))(x)

    @staticmethod
    def hessian(x):
        return torch.func.hessian(lambda a: (a * a * a).sum())(x)

    @staticmethod
    def vmap(x, y):
        return torch.func.vmap(lambda a, b: a * b.sum(0), in_dims=(0, None))(x, y)

    @staticmethod
    def vmap_columns(x, y):
        return torch.func.vmap(lambda a, b: a + b * 2, in_dims=1, out_dims=1)(x, y)

    @staticmethod
    def vmap_view(x):
        return torch.func.vmap(lambda a: a.unsqueeze(-1))(x)

    @staticmethod
    def vmap_write(x, y):
        return torch.func.vmap(lambda a, b: a.mul_(b))(x, y)

    @staticmethod
    def per_sample(x, weight):
        """The gradient of each row's loss with respect to weights that rows share."""
        loss = torch.func.grad(lambda w, a: ((a * w).sum() * 2).square())
        return torch.func.vmap(loss, in_dims=(None, 0))(weight, x)

    @staticmethod
    def dual(x, y):
        with torch.autograd.forward_ad.dual_level():
            z = torch.autograd.forward_ad.make_dual(x, y)
            return torch.autograd.forward_ad.unpack_dual(z * z * 2).tangent

    @staticmethod
    def batched(x, y):
        grads = torch.stack([y, y * 2])
        return torch.autograd.grad(x * x, x, grads, is_grads_batched=True, create_graph=True)[0]

    @staticmethod
    def jvp_rule(x, y):
        return torch.func.jvp(HasRules.apply, (x,), (y,))

    @staticmethod
    def generated_rule(x):
        return torch.func.vmap(HasRules.apply)(x)

    @staticmethod
    def vmap_rule(x):
        return torch.func.vmap(HasVmap.apply)(x)


class Control:
    """Python control flow on Python values, and torch's higher-order ops for control flow on tensors."""

    @staticmethod
    def branch(x, flag):
        if flag:
            return x * 2
        return x.unsqueeze(0)

    @staticmethod
    def loop(x, number):
        for i in range(int(number)):
            x = x * 2 + i
        return x

    @staticmethod
    def scaled(x, number):
        return x * number + int(number)

    @staticmethod
    def caught(x, y):
        try:
            z = x.reshape(-1) + y.new_ones(x.numel() + 2)
        except RuntimeError:
            z = x - y
        finally:
            x = x * 2
        return x + z

    @staticmethod
    def prints(x, text, number):
        print(text, list(x.shape), number)

    @staticmethod
    def prints_in_backward(x):
        """Register a hook on `x` that prints; all hooks print one text, since eager does not promise their order."""
        if x.grad_fn is not None or x.requires_grad:  # asked first: torch crashes where it refuses to say
            x.register_hook(lambda g: print("gradient"))

    @staticmethod
    def appends(items, x):
        """Append to a list of the caller's, twice."""
        for factor in (2, 3):
            items.append(x * factor)

    @staticmethod
    def stateful(x, y):
        """An object of the user's that the function changes."""
        state = Carried(x)
        for _ in range(2):
            state.step(y)
        return state.hidden + state.steps

    @staticmethod
    def subclassed(x):
        """Passes `x` through a tensor subclass without `__tensor_flatten__`."""
        return (x.as_subclass(Doubling) * 3 + 1).as_subclass(torch.Tensor)

    @staticmethod
    def sparse(x, y):
        return torch.sparse.mm(x.to_sparse(), y)

    @staticmethod
    def sparsely(x):
        return (x.to_sparse() * 2).coalesce().to_dense()

    @staticmethod
    def cond(x, flag):
        return torch.cond(flag, lambda a: a * 2, lambda a: a + 1, (x,))

    @staticmethod
    def cond_on_data(x):
        return torch.cond(x.sum() > 0, lambda a: a * 2, lambda a: a - 1, (x,))

    @staticmethod
    def while_loop(x):
        """Doubles `x` three times, by `while_loop`."""
        n = torch.zeros((), dtype=torch.int64, device=x.device)
        return torch.while_loop(lambda n, a: n < 3, lambda n, a: (n + 1, a * 2), (n, x))

    @staticmethod
    def mapped(x, y):
        return torch.ops.higher_order.map_impl(lambda a, b: (a * b, a + 1), (x, y), ())

    @staticmethod
    def scanned(x):
        """Sums up rows. Eager's second derivative of a product in a scan is wrong; of a sum it is zero."""
        return torch.ops.higher_order.scan(lambda c, a: (c + a, c - a * 2), (x[0] * 3,), (x,), ())

    @staticmethod
    def associated(x):
        return torch.ops.higher_order.associative_scan(lambda a, b: (a + b,), (x,), ())[0]

    @staticmethod
    def distributed(x, y):
        """A product of DTensors on one process."""
        mesh, tensors = _mesh(x.device.type), torch.distributed.tensor
        placements = [tensors.Replicate()]
        first, second = (tensors.DTensor.from_local(t, mesh, placements) for t in (x, y))
        return (first * second).to_local()


def _mesh(device):
    """A mesh of this process alone."""
    import torch.distributed.tensor  # takes a second

    if not torch.distributed.is_initialized():
        store = torch.distributed.HashStore()
        torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    return torch.distributed.device_mesh.init_device_mesh(device, (1,))


class Carried:
    """The state of a loop, as an object."""

    def __init__(self, hidden):
        self.hidden, self.steps = hidden, 0

    def step(self, x):
        self.hidden, self.steps = self.hidden * x, self.steps + 1


class Doubling(torch.Tensor):
    """Doubles the results of products."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        result = super().__torch_function__(func, types, args, kwargs or {})
        return result + result if func is torch.Tensor.mul else result


class Optimizer:
    """Steps of optimizers on a leaf, whose gradient comes from a backward inside."""

    @staticmethod
    def sgd(x, y, foreach):
        optimizer = torch.optim.SGD([x], lr=1.0, momentum=0.5, foreach=foreach)
        for _ in range(2):
            (x * y.detach()).sum().backward()
            optimizer.step()

    @staticmethod
    def adam(x, y):
        # The fused kernel for CPUs takes parameters for contiguous: of others it writes what lies between.
        optimizer = torch.optim.Adam([x], lr=0.5, fused=x.is_contiguous())
        (x * y.detach()).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    @staticmethod
    def foreach(x, y, kind, capturable):
        """One of the kinds that keep averages; capturable where graphs are captured."""
        options = {"foreach": True, "capturable": capturable and x.is_cuda}
        optimizer = getattr(torch.optim, kind)([x], lr=0.5, **options)
        (x * y.detach()).sum().backward()
        optimizer.step()

    @staticmethod
    def training(x, y):
        """A parameter made inside, trained for two steps."""
        w = y.detach().clone().requires_grad_()
        optimizer = torch.optim.SGD([w], lr=0.5, momentum=0.5, weight_decay=1.0)
        for _ in range(2):
            optimizer.zero_grad()
            (w * x.detach()).sum().backward()
            torch.nn.utils.clip_grad_value_([w], 2.0)
            optimizer.step()
        return w
