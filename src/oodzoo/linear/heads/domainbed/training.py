"""Batched training of many linear classifiers with Adam.

The runs of one draw in one trial (a group) differ only in the domains they leave out. They share
the batches of each domain and the dropout, so that a single product of a batch with the weights of
all runs is enough; each run has the same result as if trained alone. A block of groups is trained
by batched products: all groups at once on a GPU, one group at a time on a CPU, where its weights
and moments then stay in the cache.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodzoo.core.backend import Array, Backend, to_numpy
from oodzoo.linear.heads.domainbed.protocol import Hyperparameters, Split, seed_hash

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8
_EVALUATED_ROWS = 16_384


@dataclass(frozen=True)
class Group:
    """The runs of one draw in one trial, one per fold."""

    trial: int
    draw: int
    hyperparameters: Hyperparameters


@dataclass(frozen=True)
class Problem:
    """Data and settings shared by all runs."""

    backend: Backend
    features: Array  # (n, d), in float32 on the device of the backend
    labels: NDArray[np.int64]
    n_classes: int
    folds: tuple[tuple[int, ...], ...]  # the domains left out by each run of a group
    splits: Mapping[tuple[int, int], Split]  # by (trial, domain)
    domains: tuple[int, ...]
    seed: int

    @property
    def on_cuda(self) -> bool:
        return not self.backend.is_numpy and self.backend.device.type == "cuda"

    @property
    def trained(self) -> tuple[int, ...]:
        """Domains that at least one fold trains on."""
        return tuple(d for d in self.domains if any(d not in fold for fold in self.folds))


@dataclass(frozen=True)
class Checkpoint:
    """State of a block of groups after a step: accuracies on the in-split and the out-split."""

    step: int
    accuracy: NDArray[np.float64]  # (groups, folds, domains, 2)
    parameters: NDArray[np.float32]  # (groups, d + 1, folds, classes), the bias in the last row


Batches = Callable[[int, int], NDArray[np.int64]]
"""Training rows of a range of steps: (steps, groups, training domains, largest batch size)."""


def train(
    problem: Problem, groups: Sequence[Group], steps: int, checkpoint_every: int
) -> Iterator[Checkpoint]:
    """Train a block of groups; yield its state at each checkpoint of DomainBed."""
    batches = sampled_batches(problem, groups)
    block = Block(problem, groups, steps)
    advance = captured(block) if problem.on_cuda else block.advance
    start = 0
    for step in range(steps):
        if step % checkpoint_every == 0 or step == steps - 1:
            rows = problem.backend.asarray(batches(start, step + 1).reshape(step + 1 - start, -1))
            for at in range(start, step + 1):
                advance(rows[at - start], at)
            start = step + 1
            yield Checkpoint(step, block.accuracy(), block.on_host())


def sampled_batches(problem: Problem, groups: Sequence[Group]) -> Batches:
    """Sample rows with replacement from the in-split of each domain, as DomainBed's loader does.

    Each domain has its own random stream, so its batches do not depend on the other domains.
    """
    trained = problem.trained
    width = max(group.hyperparameters.batch_size for group in groups)
    streams = {
        (group, domain): np.random.default_rng(
            seed_hash(problem.seed, "batches", group.trial, group.draw, domain)
        )
        for group in groups
        for domain in trained
    }

    def rows(start: int, stop: int) -> NDArray[np.int64]:
        result = np.zeros((stop - start, len(groups), len(trained), width), np.int64)
        for at, group in enumerate(groups):
            size = group.hyperparameters.batch_size
            for place, domain in enumerate(trained):
                inside = problem.splits[group.trial, domain].inside
                drawn = streams[group, domain].integers(0, len(inside), (stop - start, size))
                result[:, at, place, :size] = inside[drawn]
        return result

    return rows


def initial_parameters(problem: Problem, groups: Sequence[Group]) -> NDArray[np.float32]:
    """Draw weights and bias (groups, d + 1, folds, classes) as PyTorch's linear layer does."""
    d = problem.features.shape[1]
    shape = (len(groups), d + 1, len(problem.folds), problem.n_classes)
    parameters = np.empty(shape, np.float32)
    for at, group in enumerate(groups):
        for place, fold in enumerate(problem.folds):
            seed = seed_hash(problem.seed, "weights", group.trial, group.draw, fold)
            uniform = np.random.default_rng(seed).random((d + 1, problem.n_classes), np.float32)
            parameters[at, :, place] = (2 * uniform - 1) / np.sqrt(d, dtype=np.float32)
    return parameters


class Block:
    """Groups that are trained together: their parameters and Adam's moments."""

    def __init__(self, problem: Problem, groups: Sequence[Group], steps: int) -> None:
        backend, xp = problem.backend, problem.backend.xp
        self.problem, self.groups = problem, groups
        self.xp, self.backend = xp, backend
        self._dim = problem.features.shape[1]
        self._onehot = backend.asarray(np.eye(problem.n_classes, dtype=np.float32)[problem.labels])
        self._labels = backend.asarray(problem.labels[:, None])
        self._members = {
            t: backend.asarray(_members(problem, t)) for t in {g.trial for g in groups}
        }
        self._weight = backend.asarray(_row_weights(problem, groups))
        columns = len(problem.folds) * problem.n_classes
        self.parameters = backend.asarray(
            initial_parameters(problem, groups).reshape(len(groups), self._dim + 1, columns)
        )
        self.first = xp.zeros_like(self.parameters)
        self.second = xp.zeros_like(self.parameters)
        self._gradient = xp.zeros_like(self.parameters)
        self._set_hyperparameters(steps)
        dropout = np.array([group.hyperparameters.dropout for group in groups])
        self.noise = Noise(problem, groups, self._weight.shape[1]) if dropout.any() else None
        self._scale = self._per_group(1 / (1 - dropout))
        kept = np.round((1 - dropout) * 2**16 - 2**15 - 1).astype(np.int16)
        self._kept = backend.asarray(kept[:, None, None])

    def _per_group(self, values: NDArray[np.float64]) -> Array:
        return self.backend.asarray(values.astype(np.float32)[:, None, None])

    def _set_hyperparameters(self, steps: int) -> None:
        # With m and v stored as m / (1 - β1) and v / (1 - β2), Adam's step is
        # size * m / (sqrt(v) + floor), which saves one pass per moment.
        lr = np.array([group.hyperparameters.lr for group in self.groups])
        decay = np.array([group.hyperparameters.weight_decay for group in self.groups])
        done = np.arange(1, steps + 1)
        root = np.sqrt((1 - BETA2**done) / (1 - BETA2))
        sizes = (1 - BETA1) / (1 - BETA1**done) * root
        self.sizes = self.backend.asarray(np.outer(sizes, lr).astype(np.float32)[:, :, None, None])
        self.floors = self.backend.asarray((EPSILON * root).astype(np.float32)[:, None, None, None])
        self._decay = self._per_group(decay) if decay.any() else None

    def advance(self, rows: Array, step: int) -> None:
        """Take one step of Adam on the given rows of the features."""
        noise = None if self.noise is None else self.noise.drawn()
        self.update(rows, self.sizes[step], self.floors[step], noise)

    @property
    def rows(self) -> int:
        """Number of rows per step, including padding."""
        return int(self._weight.shape[0] * self._weight.shape[1])

    def update(self, rows: Array, size: Array, floor: Array, noise: Array | None) -> None:
        """Update the parameters; uses fixed arrays only, so that a CUDA graph can record it."""
        xp, dim = self.xp, self._dim
        shape = self._weight.shape
        x = xp.take(self.problem.features, rows, axis=0).reshape(*shape[:2], dim)
        if noise is not None:
            x *= noise <= self._kept
        z = xp.matmul(x, self.parameters[:, :dim])
        if noise is not None:
            z *= self._scale
        z += self.parameters[:, dim:]
        z = z.reshape(*shape[:2], len(self.problem.folds), self.problem.n_classes)
        z -= xp.max(z, axis=-1, keepdims=True)
        z = xp.exp(z)
        z /= xp.sum(z, axis=-1, keepdims=True)
        z -= xp.take(self._onehot, rows, axis=0).reshape(*shape[:2], 1, -1)
        z *= self._weight
        z = z.reshape(*shape[:2], -1)
        g = self._gradient
        g[:, dim] = xp.sum(z, axis=1)
        if noise is not None:
            z *= self._scale
        xp.matmul(xp.permute_dims(x, (0, 2, 1)), z, out=g[:, :dim])
        self._adam(g, size, floor)

    def _adam(self, g: Array, size: Array, floor: Array) -> None:
        if self._decay is not None:
            g += self._decay * self.parameters
        self.first *= BETA1
        self.first += g
        g *= g
        self.second *= BETA2
        self.second += g
        change = self.xp.sqrt(self.second)
        change += floor
        change = self.first / change
        change *= size
        self.parameters -= change

    def accuracy(self) -> NDArray[np.float64]:
        """Compute the accuracy per group, fold, domain and split."""
        problem, xp = self.problem, self.xp
        counts = []
        for at, group in enumerate(self.groups):
            weights, bias = self.parameters[at, : self._dim], self.parameters[at, self._dim]
            count: Array = 0
            for top in range(0, len(problem.labels), _EVALUATED_ROWS):
                rows = slice(top, top + _EVALUATED_ROWS)
                z = xp.matmul(problem.features[rows], weights) + bias
                z = z.reshape(-1, len(problem.folds), problem.n_classes)
                right = xp.astype(xp.argmax(z, axis=-1) == self._labels[rows], xp.float32)
                count = count + xp.matmul(self._members[group.trial][:, rows], right)
            counts.append(count)
        right = to_numpy(xp.stack(counts)).astype(np.float64)
        sizes = np.array([[len(part) for part in _parts(problem, g.trial)] for g in self.groups])
        share: NDArray[np.float64] = (right / sizes[:, :, None]).transpose(0, 2, 1)
        return share.reshape(*share.shape[:2], len(problem.domains), 2)

    def on_host(self) -> NDArray[np.float32]:
        """Copy the parameters (groups, d + 1, folds, classes) to the host."""
        shape = (len(self.groups), self._dim + 1, len(self.problem.folds), self.problem.n_classes)
        return to_numpy(self.parameters).reshape(shape)


class Noise:
    """16 random bits per feature and row of a step, for dropout.

    NumPy and PyTorch draw different bits from the same seed; this is the only difference between
    the two backends.
    """

    def __init__(self, problem: Problem, groups: Sequence[Group], rows: int) -> None:
        runs = [(group.trial, group.draw) for group in groups]
        seed = seed_hash(problem.seed, "dropout", runs)
        self._shape = (len(groups), rows, problem.features.shape[1])
        self._raw: Any = None
        if problem.backend.is_numpy:
            self._raw = np.random.SFC64(seed).random_raw
        else:
            import torch

            device = problem.backend.device
            self._bits = torch.empty(self._shape, dtype=torch.int16, device=device)
            self._generator = torch.Generator(device).manual_seed(seed)

    def drawn(self) -> Array:
        """Draw new integers from -2¹⁵ to 2¹⁵ - 1."""
        if self._raw is not None:
            size = int(np.prod(self._shape))
            return self._raw(-(-size // 4)).view(np.int16)[:size].reshape(self._shape)
        return self._bits.random_(-(2**15), 2**15, generator=self._generator)


def _row_weights(problem: Problem, groups: Sequence[Group]) -> NDArray[np.float32]:
    """Weights of the rows of a batch in the loss of each fold: (groups, rows, folds, 1).

    The loss is the mean over the rows of all training domains; rows of held-out domains and
    padding have zero weight.
    """
    width = max(group.hyperparameters.batch_size for group in groups)
    weights = np.zeros((len(groups), len(problem.trained), width, len(problem.folds)), np.float32)
    for at, group in enumerate(groups):
        size = group.hyperparameters.batch_size
        for place, fold in enumerate(problem.folds):
            use = [position for position, d in enumerate(problem.trained) if d not in fold]
            weights[at, use, :size, place] = 1 / (size * len(use))
    return weights.reshape(len(groups), -1, len(problem.folds), 1)


def _parts(problem: Problem, trial: int) -> list[NDArray[np.int64]]:
    """Rows of the in-split and out-split of each domain."""
    return [part for domain in problem.domains for part in problem.splits[trial, domain]]


def _members(problem: Problem, trial: int) -> NDArray[np.float32]:
    """Membership of samples in parts, 0 or 1, (parts, n)."""
    parts = _parts(problem, trial)
    members = np.zeros((len(parts), len(problem.labels)), np.float32)
    for place, part in enumerate(parts):
        members[place, part] = 1
    return members


def captured(block: Block) -> Callable[[Array, int], None]:
    """Return a replacement for ``block.advance`` that replays a CUDA graph: forty kernels at once.

    If the device cannot record a graph, return ``block.advance`` itself.
    """
    import torch

    cuda: Any = torch.cuda
    state = (block.parameters, block.first, block.second)
    saved = [array.clone() for array in state]
    rows = torch.zeros(block.rows, dtype=torch.int64, device=block.parameters.device)
    size, floor = block.sizes[0].clone(), block.floors[0].clone()
    bits = None if block.noise is None else block.noise.drawn()
    graph: Any = None
    with cuda.device(rows.device), contextlib.suppress(RuntimeError):
        warm_up = cuda.Stream()
        warm_up.wait_stream(cuda.current_stream())
        with cuda.stream(warm_up):  # warm up: first calls allocate, which a graph must not do
            for _ in range(3):
                block.update(rows, size, floor, bits)
        cuda.current_stream().wait_stream(warm_up)
        recorded = cuda.CUDAGraph()
        with cuda.graph(recorded):
            block.update(rows, size, floor, bits)
        graph = recorded
    for array, before in zip(state, saved, strict=True):
        array.copy_(before)
    if graph is None:
        return block.advance

    def advance(batch: Array, step: int) -> None:
        rows.copy_(batch)
        size.copy_(block.sizes[step])
        floor.copy_(block.floors[step])
        if block.noise is not None:
            block.noise.drawn()  # refills the array that the graph reads
        graph.replay()

    return advance
