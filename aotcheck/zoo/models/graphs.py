"""Message passing and recommendation; a size is that of the batch or the number of nodes."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from aotcheck.zoo.model import Compiled, Kind, Place, Program, model
from aotcheck.zoo.recipes import supervised


class Edges(NamedTuple):
    """A graph's edges, as indices of nodes."""

    source: torch.Tensor
    target: torch.Tensor


def _edges(place: Place, nodes: int) -> Edges:
    source = torch.arange(nodes).repeat(2)
    return Edges(*place([source, torch.cat([(source[:nodes] + 1) % nodes, torch.randint(0, nodes, (nodes,))])]))


@model(Kind.GRAPHS, at_most=2)
def dlrm_sparse_gradients(place: Place, sizes: Sequence[int]) -> Program:
    """A recommendation model: bags of embeddings with sparse gradients, and products of each pair of features."""

    class DLRM(nn.Module):
        pairs: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.tables = nn.ModuleList(nn.EmbeddingBag(11, 4, mode="sum", sparse=True) for _ in range(2))
            self.bottom, self.top = nn.Linear(3, 4), nn.Linear(4 + 3, 1)
            self.register_buffer("pairs", torch.tril_indices(3, 3, -1))

        def forward(self, dense: torch.Tensor, sparse: torch.Tensor) -> torch.Tensor:
            bottom = F.relu(self.bottom(dense))
            features = [bottom, *(table(sparse[i]) for i, table in enumerate(self.tables))]
            stacked = torch.stack(features, 1)
            products = torch.bmm(stacked, stacked.mT)[:, self.pairs[0], self.pairs[1]]
            return self.top(torch.cat([bottom, products], 1)).squeeze(1)

    net = place(DLRM())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step(call: Compiled, batch: Any) -> Any:
        dense, sparse, clicked = batch
        output = call(dense, sparse)
        loss = F.binary_cross_entropy_with_logits(output, clicked)
        loss.backward()
        tables = [weight.grad for weight in net.tables.parameters()]
        seen = [(g.is_sparse, g.to_dense()) if g is not None else None for g in tables]
        optimizer.step()
        optimizer.zero_grad()
        return loss, output, seen

    batches = place(
        [(torch.randn(n, 3), torch.randint(0, 11, (2, n, 3)), torch.randint(0, 2, (n,)).float()) for n in sizes]
    )
    return Program(net, step, batches, {"net": net})


@model(Kind.GRAPHS, at_most=2)
def message_passing(place: Place, sizes: Sequence[int]) -> Program:
    """A graph network that sums messages along edges, which it takes as a named tuple."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.message, self.update = nn.Linear(8, 4), nn.GRUCell(4, 4)

        def forward(self, x: torch.Tensor, edges: Edges) -> torch.Tensor:
            for _ in range(len(edges)):
                message = F.relu(self.message(torch.cat([x[edges.source], x[edges.target]], 1)))
                x = self.update(torch.zeros_like(x).index_add_(0, edges.target, message), x)
            return x

    batches = [((place(torch.randn(2 * n, 4)), _edges(place, 2 * n)), place(torch.randn(2 * n, 4))) for n in sizes]
    return supervised(place(Net()), batches, F.mse_loss)


@model(Kind.GRAPHS, at_most=2)
def graph_attention(place: Place, sizes: Sequence[int]) -> Program:
    """Attention over the edges that come to a node: maxima and sums by scattering."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.score, self.head = nn.Linear(4, 4, bias=False), nn.Linear(8, 1), nn.Linear(4, 3)

        def forward(self, x: torch.Tensor, edges: Edges) -> torch.Tensor:
            h = self.linear(x)
            score = F.leaky_relu(self.score(torch.cat([h[edges.source], h[edges.target]], 1)).squeeze(1), 0.2)
            top = h.new_full((len(x),), float("-inf")).scatter_reduce(0, edges.target, score.detach(), "amax")
            weight = (score - top[edges.target]).exp()
            total = h.new_zeros(len(x)).scatter_add(0, edges.target, weight)
            out = torch.zeros_like(h).index_add(0, edges.target, h[edges.source] * weight[:, None])
            return self.head(out / total[:, None].clamp_min(1e-6))

    batches = [((place(torch.randn(2 * n, 4)), _edges(place, 2 * n)), place(torch.arange(2 * n) % 3)) for n in sizes]
    return supervised(place(Net()), batches)


class GraphBatch:
    """A batch of graphs, made anew for each call; as libraries have them, it leads to itself."""

    def __init__(self, x: torch.Tensor, edges: Edges, graph: torch.Tensor) -> None:
        self.x, self.edges, self.graph, self.itself = x, edges, graph, self
        self.cached: dict[str, torch.Tensor] = {}

    def degrees(self) -> torch.Tensor:
        """How many edges come to each node; remembered."""
        if "degrees" not in self.cached:
            ones = torch.ones_like(self.edges.target, dtype=self.x.dtype)
            self.cached["degrees"] = self.x.new_zeros(len(self.x)).index_add(0, self.edges.target, ones)
        return self.cached["degrees"]


@model(Kind.GRAPHS, at_most=2)
def graph_batch_object(place: Place, sizes: Sequence[int]) -> Program:
    """A graph network over an object that is made for each batch, leads to itself and remembers what it computed."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.head = nn.Linear(4, 4), nn.Linear(4, 2)

        def forward(self, batch: GraphBatch) -> torch.Tensor:
            source, target = batch.itself.edges
            degrees = batch.degrees().clamp_min(1.0)
            h = F.relu(self.linear(batch.x))
            h = h + torch.zeros_like(h).index_add(0, target, h[source]) / degrees[:, None]
            pooled = h.new_zeros(2, 4).index_add(0, batch.graph, h)
            return self.head(pooled)

    net = place(Net())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step(call: Compiled, batch: Any) -> Any:
        given = GraphBatch(*batch)
        optimizer.zero_grad()
        output = call(given)
        output.square().sum().backward()
        optimizer.step()
        return output, given.cached

    batches = [(place(torch.randn(n, 4)), _edges(place, n), place(torch.arange(n) % 2)) for n in sizes]
    return Program(net, step, batches, {"net": net})


@model(Kind.GRAPHS, at_most=2)
def matrix_factorization(place: Place, sizes: Sequence[int]) -> Program:
    """Embeddings of users and items with biases, whose weights are looked up by index alone."""

    class Factors(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.users, self.items = (nn.Embedding(7, 4, padding_idx=0, max_norm=None) for _ in range(2))
            self.bias = nn.Parameter(torch.zeros(7))

        def forward(self, user: torch.Tensor, item: torch.Tensor) -> torch.Tensor:
            return torch.einsum("nk,nk->n", self.users(user), self.items(item)) + self.bias[item]

    net = place(Factors())
    batches = [((torch.randint(0, 7, (n,)), torch.randint(0, 7, (n,))), torch.randn(n)) for n in sizes]
    return supervised(net, place(batches), F.mse_loss, torch.optim.Adagrad(net.parameters(), lr=0.1))
