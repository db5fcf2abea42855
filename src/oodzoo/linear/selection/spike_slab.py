r"""Variational EM for a spike-and-slab linear model (Section 3.3 and Appendix C), by Gauss-Seidel.

Each weight comes from the slab, :math:`w_i \sim N(0, \alpha_{i1}^{-1})`, if :math:`z_i = 1`, which
has probability :math:`\pi_i`, and from the spike, :math:`N(0, \alpha_{i2}^{-1})`, otherwise; the
noise has precision β. The paper's Gamma(ν₁, ν₂) prior of a precision is a one-dimensional Wishart
distribution: :math:`E\alpha = \nu_1\nu_2` and :math:`E\ln\alpha = \psi(\nu_1/2) + \ln 2\nu_2`.

An iteration over all data only needs :math:`G = \Phi^\top\Phi`, :math:`b = \Phi^\top y`,
:math:`y^\top y` and n, so its cost does not depend on n and the paper's minibatches are not needed.
(With fewer samples than features, Φ and y themselves are smaller: :class:`SampleData`.) Where the
updates printed in the paper contradict its model, these follow the model:

.. math::

    1/\tilde\nu_{02} &= 1/\nu_{02} + y^\top y - 2m^\top b + m^\top G m + \sum_i G_{ii}/\lambda_i,
    \qquad \tilde\nu_{01} = \nu_{01} + n \\
    \operatorname{logit}\tilde\pi_i &= \operatorname{logit}\pi_i
    + \tfrac12 E\ln(\alpha_{i1}/\alpha_{i2}) - \tfrac12 E(\alpha_{i1} - \alpha_{i2})\,E w_i^2,
    \qquad E w_i^2 = m_i^2 + 1/\lambda_i \\
    \tilde\nu_{i1} &= \nu_{i1} + \tilde\pi_i, \qquad
    1/\tilde\nu_{i2} = 1/\nu_{i2} + \tilde\pi_i\,E w_i^2
    \qquad\text{(the spike with } 1 - \tilde\pi_i\text{)} \\
    \lambda_i &= G_{ii}\,E\beta + \tilde\pi_i E\alpha_{i1} + (1 - \tilde\pi_i) E\alpha_{i2}, \qquad
    m_i = E\beta\,\bigl(b_i - \textstyle\sum_{j\ne i} G_{ij} m_j\bigr)/\lambda_i

and then :math:`\pi \leftarrow \tilde\pi, \nu \leftarrow \tilde\nu`. (The paper prints the opposite
sign of m, a product instead of the sum in the denominator of π̃, no ½ before E ln α, and
:math:`(E w^2)^{-1}` instead of :math:`E w^2` in ν̃.) Each update maximises the variational bound in
its own variables, so the bound never decreases: :attr:`Fit.bounds`.

A sweep updates the weights one after the other, for all targets at once. The features are split
into blocks: the influence between blocks is a matrix product, and inside a block one triangular
system is solved per target. Two implementations give the same weights:

- :class:`GramSweeps` uses :math:`G = \Phi^\top\Phi` and :math:`b = \Phi^\top y`. A sweep takes
  d² operations per target, independent of the number of samples.
- :class:`SampleSweeps` uses Φ and y, and updates the residual y - Φm. A sweep takes 2·n·d
  operations per target and reads n × d numbers instead of d × d, which is cheaper for n < d.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from oodzoo.core.backend import Array, Backend, backend_of, to_numpy
from oodzoo.core.errors import InputError


class Sweeps(Protocol):
    """Regressions whose weights are updated sweep by sweep; the caller holds the weights (d, C)."""

    diagonal: Array
    """Diagonal of G, (d,)."""

    def restart(self, mean: Array) -> None:
        """Recompute the residual from these weights, without accumulated rounding errors."""
        ...

    def sweep(self, ridge: Array, mean: Array) -> Array:
        """Return the weights after one sweep.

        `ridge` (d, C) is the prior precision of each weight divided by that of the noise; `mean`
        are the weights passed to :meth:`restart` or returned by the last sweep.
        """
        ...

    def misfit(self, mean: Array) -> Array:
        """Return |y - Φ mean|² of each target, (C,)."""
        ...

    def keep(self, columns: Array) -> None:
        """Drop all targets but these."""
        ...


class GramSweeps:
    """Regressions given by their moments G (d, d), Φᵀy (d, C) and yᵀy (C,)."""

    def __init__(self, gram: Array, products: Array, squares: Array, mean: Array) -> None:
        self.backend = backend_of(gram)
        self.diagonal = self.backend.xp.linalg.diagonal(gram)
        self.gram, self.products, self.squares = gram, products, squares
        self.restart(mean)

    def restart(self, mean: Array) -> None:
        self.residual = self.products - self.gram @ mean

    def keep(self, columns: Array) -> None:
        xp = self.backend.xp
        self.products, self.residual = (
            xp.take(array, columns, axis=1) for array in (self.products, self.residual)
        )
        self.squares = xp.take(self.squares, columns)

    def misfit(self, mean: Array) -> Array:
        xp = self.backend.xp
        fitted = xp.sum(mean * (self.products + self.residual), axis=0)
        # yᵀy - 2mᵀb + mᵀGm can be slightly negative where the target is fitted exactly.
        return xp.clip(self.squares - fitted, min=0.0)

    def sweep(self, ridge: Array, mean: Array) -> Array:
        """Return the weights after one sweep.

        Recursive: update the first half of the features, apply the change to the second half with
        one matrix product, update the second half, apply that change to the first half. In total
        this is one d × d by d × C product in large pieces.
        """
        backend, gram, residual = self.backend, self.gram, self.residual
        diagonals = self.diagonal[:, None] + ridge
        pull = ridge * mean
        step = backend.xp.zeros_like(mean)

        def update(first: int, end: int) -> None:
            if end - first <= backend.sweep_rows:
                rows = slice(first, end)
                right = residual[rows, :] - pull[rows, :]
                step[rows, :] = backend.solve_lower(gram[rows, rows], diagonals[rows, :], right)
                residual[rows, :] -= gram[rows, rows] @ step[rows, :]
                return
            middle = (first + end) // 2
            one, two = slice(first, middle), slice(middle, end)
            update(first, middle)
            residual[two, :] -= gram[two, one] @ step[one, :]
            update(middle, end)
            residual[one, :] -= gram[one, two] @ step[two, :]

        update(0, gram.shape[0])
        return mean + step


class SampleSweeps:
    """Regressions given by their samples Φ (n, d) and y (n, C)."""

    def __init__(self, features: Array, targets: Array, mean: Array) -> None:
        self.backend = backend = backend_of(features)
        xp = backend.xp
        n, d = features.shape
        # Transposed, so that a block of features is contiguous in memory.
        transposed = xp.empty((d, n), dtype=xp.float64, device=backend.device)
        transposed[:, :] = features.T
        starts = range(0, d, backend.sweep_rows)
        self.rows = [slice(first, min(first + backend.sweep_rows, d)) for first in starts]
        self.blocks = [transposed[rows, :] for rows in self.rows]
        self.squares = [backend.gram(block.T) for block in self.blocks]
        self.diagonal = xp.concat([xp.linalg.diagonal(square) for square in self.squares])
        self.targets = targets
        self.restart(mean)

    def restart(self, mean: Array) -> None:
        self.residual = self.backend.xp.asarray(self.targets, copy=True)
        for rows, block in zip(self.rows, self.blocks, strict=True):
            self.residual -= block.T @ mean[rows, :]

    def keep(self, columns: Array) -> None:
        xp = self.backend.xp
        self.targets, self.residual = (
            xp.take(array, columns, axis=1) for array in (self.targets, self.residual)
        )

    def misfit(self, mean: Array) -> Array:
        return self.backend.xp.sum(self.residual**2, axis=0)

    def sweep(self, ridge: Array, mean: Array) -> Array:
        backend = self.backend
        diagonals = self.diagonal[:, None] + ridge
        pull = ridge * mean
        step = backend.xp.zeros_like(mean)
        for rows, block, square in zip(self.rows, self.blocks, self.squares, strict=True):
            right = block @ self.residual - pull[rows, :]
            step[rows, :] = backend.solve_lower(square, diagonals[rows, :], right)
            self.residual -= block.T @ step[rows, :]
        return mean + step


_MIN_SQUARE = 1e-12
"""Lower limit of m² at the start, where λ = 1/m²: a weight can be exactly zero."""

_REFRESH_EVERY = 50
"""Iterations after which b - Gm or y - Φm is recomputed, to remove accumulated rounding errors."""


@dataclass(frozen=True)
class Priors:
    """Initial hyper-parameters, by default those of the paper (table in Appendix C.6).

    Attributes
    ----------
    inclusion : float
        π, the probability of the slab.
    noise, slab, spike : (float, float)
        (ν₁, ν₂) of the precision of the noise, of the slab and of the spike.
    """

    inclusion: float = 0.5
    noise: tuple[float, float] = (1.0, 1.0)
    slab: tuple[float, float] = (1.0, 1.0)
    spike: tuple[float, float] = (5.0, 1.0)

    def __post_init__(self) -> None:
        if not 0 < self.inclusion < 1:
            raise InputError(f"the prior inclusion must be between 0 and 1, got {self.inclusion!r}")
        for name in ("noise", "slab", "spike"):
            pair = getattr(self, name)
            if len(pair) != 2 or not all(0 < value < math.inf for value in pair):
                raise InputError(f"the prior {name} must be two positive numbers, got {pair!r}")


@dataclass(frozen=True, eq=False)
class Data:
    """Moments of the data: G (d, d), b (d, C), yᵀy (C,) and n."""

    gram: Array
    products: Array
    squares: Array
    n: int

    def scaled(self, factors: Array) -> Data:
        """The data with each target multiplied by a factor (C,)."""
        return Data(self.gram, self.products * factors, self.squares * factors**2, self.n)

    def sweeps(self, mean: Array) -> Sweeps:
        """Gauss-Seidel sweeps that start from these weights."""
        return GramSweeps(self.gram, self.products, self.squares, mean)


@dataclass(frozen=True, eq=False)
class SampleData:
    """The data as Φ (rows, d) and y (rows, C), for fewer samples than features.

    n is that of the formulae; there may be more rows (one more, after centring) or fewer (where
    they were reconstructed from moments).
    """

    features: Array
    targets: Array
    n: int

    def scaled(self, factors: Array) -> SampleData:
        """The data with each target multiplied by a factor (C,)."""
        return SampleData(self.features, self.targets * factors, self.n)

    def sweeps(self, mean: Array) -> Sweeps:
        """Gauss-Seidel sweeps that start from these weights."""
        return SampleSweeps(self.features, self.targets, mean)


@dataclass(frozen=True, eq=False)
class Fit:
    """Result for each feature and target.

    Attributes
    ----------
    inclusion : array (d, C)
        Inclusion probability π: that the weight comes from the slab.
    weights : array (d, C)
        Posterior mean m of the weight.
    noise : array (C,)
        E β.
    iterations : array of int (C,)
    converged : array of bool (C,)
    bounds : list of array
        Variational bound of each target after each of its iterations, in nats.
    """

    inclusion: Array
    weights: Array
    noise: Array
    iterations: NDArray[np.int64]
    converged: NDArray[np.bool_]
    bounds: list[NDArray[np.float64]]


def variational_em(
    data: Data | SampleData,
    start: Array,
    priors: Priors | None = None,
    *,
    tol: float = 1e-3,
    max_iter: int = 1000,
) -> Fit:
    """Run the exact algorithm for all targets at once.

    Parameters
    ----------
    data : Data or SampleData
        Both give the same result, up to rounding.
    start : array (d, C)
        Initial m. It matters for n close to d, where a ridge solution works and least squares does
        not.
    priors : Priors
    tol : float
        A target has converged when none of its π differs by more than this from its mean over the
        last three iterations. Targets are independent, and a converged target is dropped.
    max_iter : int

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 3))
    >>> y = X @ [[2.0], [0.0], [-1.5]] + rng.normal(size=(100, 1))
    >>> data = Data(X.T @ X, X.T @ y, (y**2).sum(axis=0), 100)
    >>> fit = variational_em(data, start=X.T @ y / 101)
    >>> fit.inclusion[:, 0].round(2)
    array([1., 0., 1.])
    """
    backend = backend_of(start)
    history = History(backend, *start.shape)
    iterations = Iterations(backend, data, Posterior.start(start, priors or Priors(), backend.xp))
    for iteration in range(1, max_iter + 1):
        if iteration % _REFRESH_EVERY == 0:
            iterations.refresh()
        iterations.step()
        done = history.add(iterations, iteration, tol, last=iteration == max_iter)
        if done.all():
            break
        if done.any():
            iterations.keep(backend.asarray(np.flatnonzero(~done)))
    return history.fit()


def stochastic_em(
    batches: Iterator[Data],
    start: Array,
    priors: Priors | None = None,
    *,
    tol: float = 1e-3,
    max_iter: int = 1000,
) -> Fit:
    """Run the paper's stochastic algorithm: each iteration uses a random minibatch.

    For comparison only. An iteration costs more than one of :func:`variational_em`, and the
    bound, which is that of the minibatch, fluctuates.
    """
    data = next(batches)
    backend = backend_of(start)
    history = History(backend, *start.shape)
    iterations = Iterations(backend, data, Posterior.start(start, priors or Priors(), backend.xp))
    for iteration in range(1, max_iter + 1):
        iterations.step()
        # Targets share their minibatches, so they run until all have converged.
        if history.add(iterations, iteration, tol, last=iteration == max_iter, together=True).all():
            break
        iterations.use(next(batches))
    return history.fit()


@dataclass(eq=False)
class Posterior:
    """Variational distribution of several targets.

    The hyper-parameters equal it after each iteration, so they are not stored separately.
    """

    mean: Array
    precision: Array
    log_odds: Array
    slab_count: Array  # ν₁
    slab_rate: Array  # 1/ν₂
    spike_count: Array
    spike_rate: Array
    noise_count: Array
    noise_rate: Array

    @classmethod
    def start(cls, mean: Array, priors: Priors, xp: Any) -> Posterior:
        one, row = xp.ones_like(mean), xp.ones_like(mean[0, :])
        return cls(
            mean=xp.asarray(mean, copy=True),
            precision=1 / xp.clip(mean**2, min=_MIN_SQUARE),
            log_odds=math.log(priors.inclusion / (1 - priors.inclusion)) * one,
            slab_count=priors.slab[0] * one,
            slab_rate=one / priors.slab[1],
            spike_count=priors.spike[0] * one,
            spike_rate=one / priors.spike[1],
            noise_count=priors.noise[0] * row,
            noise_rate=row / priors.noise[1],
        )

    def keep(self, columns: Array, xp: Any) -> Posterior:
        arrays = [getattr(self, field.name) for field in fields(self)]
        return Posterior(*(xp.take(array, columns, axis=-1) for array in arrays))


class Iterations:
    """Iterations of the targets that have not converged."""

    def __init__(self, backend: Backend, data: Data | SampleData, posterior: Posterior) -> None:
        self.backend = backend
        self.posterior = posterior
        self.use(data)

    def use(self, data: Data | SampleData) -> None:
        """Continue with these data."""
        self.n = data.n
        self.sweeps = data.sweeps(self.posterior.mean)
        self.diagonal = self.sweeps.diagonal[:, None]
        self._expect()

    def refresh(self) -> None:
        """Remove accumulated rounding errors."""
        self.sweeps.restart(self.posterior.mean)
        self._expect()

    def keep(self, columns: Array) -> None:
        """Drop all targets but these."""
        self.posterior = self.posterior.keep(columns, self.backend.xp)
        self.sweeps.keep(columns)
        self._expect()

    def step(self) -> None:
        """Run one E-step and one M-step."""
        q = self.posterior
        q.noise_count = q.noise_count + self.n
        q.noise_rate = q.noise_rate + self.residual
        q.log_odds = q.log_odds + 0.5 * (
            self.log_slab - self.log_spike - (self.slab - self.spike) * self.second_moment
        )
        inclusion = self.inclusion
        share = inclusion * self.second_moment
        q.slab_count = q.slab_count + inclusion
        q.slab_rate = q.slab_rate + share
        q.spike_count = q.spike_count + (1 - inclusion)
        q.spike_rate = q.spike_rate + (self.second_moment - share)
        slab, spike = q.slab_count / q.slab_rate, q.spike_count / q.spike_rate
        prior = spike + inclusion * (slab - spike)
        noise = q.noise_count / q.noise_rate
        q.precision = noise * self.diagonal + prior
        q.mean = self.sweeps.sweep(prior / noise, q.mean)
        self._expect()

    @property
    def inclusion(self) -> Array:
        # The logistic function, written with tanh to avoid overflow.
        return 0.5 + 0.5 * self.backend.xp.tanh(0.5 * self.posterior.log_odds)

    def _expect(self) -> None:
        """Compute the expectations shared by the bound and the next step."""
        q, xp, digamma = self.posterior, self.backend.xp, self.backend.digamma
        self.second_moment = q.mean**2 + 1 / q.precision
        self.slab, self.spike = q.slab_count / q.slab_rate, q.spike_count / q.spike_rate
        self.log_slab = digamma(q.slab_count / 2) + math.log(2) - xp.log(q.slab_rate)
        self.log_spike = digamma(q.spike_count / 2) + math.log(2) - xp.log(q.spike_rate)
        spread = xp.sum(self.diagonal / q.precision, axis=0)
        self.residual = self.sweeps.misfit(q.mean) + spread

    def bound(self) -> Array:
        r"""Return the variational bound of each target after the M-step, (C,).

        The hyper-parameters equal the posterior, so the divergences of π, α and β vanish, and
        :math:`E\ln p(y|w,\beta) + E\ln p(w|z,\alpha) - E\ln q(w)` remains.
        """
        q, xp = self.posterior, self.backend.xp
        inclusion = self.inclusion
        log_noise = self.backend.digamma(q.noise_count / 2) + math.log(2) - xp.log(q.noise_rate)
        likelihood = self.n * (log_noise - math.log(2 * math.pi))
        likelihood = likelihood - q.noise_count / q.noise_rate * self.residual
        slab = self.log_slab - self.slab * self.second_moment
        spike = self.log_spike - self.spike * self.second_moment
        weights = 1 + spike + inclusion * (slab - spike) - xp.log(q.precision)
        return 0.5 * (likelihood + xp.sum(weights, axis=0))


class History:
    """Bounds of each target, and its result once it has converged."""

    def __init__(self, backend: Backend, d: int, n_targets: int) -> None:
        self.backend = backend
        xp = backend.xp
        new = functools.partial(xp.empty, dtype=xp.float64, device=backend.device)
        self.inclusion, self.weights = new((d, n_targets)), new((d, n_targets))
        self.noise = new((n_targets,))
        self.iterations = np.zeros(n_targets, dtype=np.int64)
        self.converged = np.zeros(n_targets, dtype=np.bool_)
        self.bounds: list[list[float]] = [[] for _ in range(n_targets)]
        self.running = np.arange(n_targets)
        self.last: list[Array] = []

    def add(
        self, state: Iterations, iteration: int, tol: float, *, last: bool, together: bool = False
    ) -> NDArray[np.bool_]:
        """Add an iteration, and return which of the running targets end with it."""
        xp = self.backend.xp
        for target, bound in zip(self.running, to_numpy(state.bound()).tolist(), strict=True):
            self.bounds[target].append(bound)
        inclusion = state.inclusion
        self.last = [*self.last[-2:], inclusion]
        settled = np.zeros(len(self.running), dtype=np.bool_)
        if len(self.last) == 3:
            change = xp.abs(inclusion - (self.last[0] + self.last[1] + inclusion) / 3)
            settled = to_numpy(xp.max(change, axis=0)) < tol
        self.converged[self.running] = settled
        done = np.full_like(settled, last or settled.all()) if together else settled | last
        columns = self.backend.asarray(np.flatnonzero(done))
        ended = self.running[done]
        if ended.size:
            places = self.backend.asarray(ended)
            self.inclusion[:, places] = inclusion[:, columns]
            self.weights[:, places] = state.posterior.mean[:, columns]
            noise = state.posterior.noise_count / state.posterior.noise_rate
            self.noise[places] = noise[columns]
            self.iterations[ended] = iteration
            left = self.backend.asarray(np.flatnonzero(~done))
            self.last = [xp.take(array, left, axis=1) for array in self.last]
            self.running = self.running[~done]
        return done

    def fit(self) -> Fit:
        return Fit(
            self.inclusion,
            self.weights,
            self.noise,
            self.iterations,
            self.converged,
            [np.array(bounds) for bounds in self.bounds],
        )
