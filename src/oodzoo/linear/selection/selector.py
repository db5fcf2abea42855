"""Spike-and-slab feature selection as a scikit-learn selector."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_selection import SelectorMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data

from oodzoo.core.backend import Array, Backend, backend, to_numpy
from oodzoo.core.errors import InputError
from oodzoo.core.text import count
from oodzoo.linear.moments import Moments, require_size
from oodzoo.linear.selection.spike_slab import Data, Priors, stochastic_em, variational_em
from oodzoo.linear.selection.target_scale import (
    RULES,
    ScaledProblem,
    TargetMoments,
    scale_moments,
    scale_samples,
)
from oodzoo.tasks.classification import require_two_classes

_ROUNDS = 4
"""Fits at most after the first, each with the scale that follows from the last."""


class SpikeSlabSelector(SelectorMixin, BaseEstimator):  # type: ignore[misc]
    r"""Select the informative features of a spike-and-slab linear model.

    Each weight comes from a wide slab or from a narrow spike around zero, and a variational EM
    algorithm (Section 3.3 and Appendix C of the paper) estimates the probability :math:`\pi_i` of
    the slab. A feature is kept if this exceeds `threshold` for any target. Moments of the data are
    sufficient (:meth:`fit_moments`).

    Class labels become one 0/1 target per class; real numbers are one regression target; a table
    of numbers is one target per column. The mask does not depend on the units of features and
    targets (see `scale`), and targets do not influence each other.

    Parameters
    ----------
    threshold : float, default 0.5
        Keep features with a higher inclusion probability.
    scale : {"evidence", "weights", "noise", "none"}
        How targets are rescaled for the priors: by the size of the weights in the slab where they
        are larger than the noise, else of all weights (formula:
        :mod:`oodzoo.linear.selection.target_scale`); by the precision of all weights or of the
        noise alone; or not at all, as in the paper: the mask then depends on the units.
    inclusion : float, default 0.5
        Prior probability π of the slab.
    noise, slab, spike : (float, float)
        (ν₁, ν₂) of the prior precision of the noise, of weights in the slab and of weights in the
        spike; its mean is ν₁ν₂.
    fit_intercept : bool, default True
        Whether to centre features and targets.
    task : {"auto", "classification", "regression"}
        Kind of `y`; "auto" uses scikit-learn's ``type_of_target``.
    tol : float, default 1e-3
        A target has converged when no inclusion probability differs by more from its mean over
        three iterations.
    max_iter : int, default 1000
    method : {"exact", "stochastic"}
        "stochastic" uses the paper's minibatches, which are slower and noisier; for comparison.
    batch_size : int, default 256
        Size of a minibatch; "stochastic" only.
    random_state : int, RandomState or None
        "stochastic" only.
    device : str, optional
        PyTorch device such as "cuda"; NumPy if None.

    Attributes
    ----------
    inclusion_ : array (n_targets, n_features)
        Inclusion probability of each feature for each target (class).
    target_support_ : array of bool (n_targets, n_features)
        Features kept for each target; :meth:`get_support` is their union.
    classes_ : array (n_targets,)
        The classes; classification only.
    scale_ : array (n_targets,)
        Factor of each target; NaN for a constant target.
    bounds_ : list of array
        Variational bound of each target after each iteration; with "exact" it never decreases.
    n_iter_ : int
        Largest number of iterations over targets.
    converged_ : bool
        Whether all targets converged.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Examples
    --------
    >>> import numpy as np, oodzoo
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 6))
    >>> y = 3 * X[:, 1] - X[:, 4] + rng.normal(size=200)
    >>> selector = oodzoo.SpikeSlabSelector().fit(X, y)
    >>> selector.get_support(indices=True)
    array([1, 4])
    >>> selector.set_params(threshold=0.9).fit(1000 * X, y / 7).get_support(indices=True)
    array([1, 4])
    """

    def __init__(
        self,
        *,
        threshold: float = 0.5,
        scale: str = "evidence",
        inclusion: float = 0.5,
        noise: tuple[float, float] = (1.0, 1.0),
        slab: tuple[float, float] = (1.0, 1.0),
        spike: tuple[float, float] = (5.0, 1.0),
        fit_intercept: bool = True,
        task: Literal["auto", "classification", "regression"] = "auto",
        tol: float = 1e-3,
        max_iter: int = 1000,
        method: Literal["exact", "stochastic"] = "exact",
        batch_size: int = 256,
        random_state: Any = None,
        device: str | None = None,
    ) -> None:
        self.threshold = threshold
        self.scale = scale
        self.inclusion = inclusion
        self.noise = noise
        self.slab = slab
        self.spike = spike
        self.fit_intercept = fit_intercept
        self.task = task
        self.tol = tol
        self.max_iter = max_iter
        self.method = method
        self.batch_size = batch_size
        self.random_state = random_state
        self.device = device

    def fit(self, X: Any, y: Any) -> SpikeSlabSelector:
        """Fit to features (n, d) and labels or targets (n,) or (n, C)."""
        self._check_parameters()
        X, y = validate_data(
            self, X, y, multi_output=True, dtype=[np.float64, np.float32], ensure_min_samples=2
        )
        require_size(float(np.abs(X).max()), "X")
        Y = self._targets(y)
        be = backend(self.device)
        X, Y = be.float64(X), be.float64(Y)
        # Centred before they are squared: a large mean would cost precision.
        X, Y = (self._centred(array, be) for array in (X, Y))
        shape = (int(X.shape[1]), int(Y.shape[1]))
        if X.shape[0] < X.shape[1]:  # then the samples are smaller than their moments
            problem = scale_samples(X, Y, rule=self.scale, centred=self.fit_intercept)
        else:
            moments = TargetMoments.of(X, Y, device=self.device)
            problem = scale_moments(moments, rule=self.scale, centre=self.fit_intercept)
        return self._select(problem, shape, (X, Y))

    def fit_moments(
        self,
        moments: Moments | TargetMoments,
        *,
        classes: Sequence[Any] | None = None,
        feature_names: Sequence[str] | None = None,
    ) -> SpikeSlabSelector:
        """Fit to moments, in a time that does not depend on the number of samples.

        Parameters
        ----------
        moments : Moments or TargetMoments
            Moments of class labels, or of real-valued targets.
        classes : sequence, optional
            Class names, for `classes_`.
        feature_names : sequence of str, optional
            For :meth:`get_feature_names_out`.
        """
        self._check_parameters()
        if self.method != "exact":
            raise InputError(
                f"method {self.method!r} needs samples, not moments; use fit, or method='exact'"
            )
        self._forget("classes_", "feature_names_in_")
        if isinstance(moments, Moments):
            self.classes_ = np.arange(moments.n_classes) if classes is None else np.asarray(classes)
            moments = TargetMoments.of_labels(moments)
        moments.check()
        if moments.n < 2:
            raise InputError(
                f"at least 2 samples are needed, got moments of {count(moments.n, 'sample')}"
            )
        self.n_features_in_ = int(moments.gram.shape[0])
        if feature_names is not None:
            if len(feature_names) != self.n_features_in_:
                raise InputError(
                    f"expected {count(self.n_features_in_, 'feature name')}, "
                    f"got {len(feature_names)}"
                )
            self.feature_names_in_ = np.array([str(name) for name in feature_names], dtype=object)
        moments = moments.to(self.device)
        problem = scale_moments(moments, rule=self.scale, centre=self.fit_intercept)
        return self._select(problem, (self.n_features_in_, int(moments.products.shape[1])))

    def _select(
        self,
        problem: ScaledProblem | None,
        shape: tuple[int, int],
        samples: tuple[Array, Array] | None = None,
    ) -> SpikeSlabSelector:
        d, n_targets = shape
        self.inclusion_ = np.zeros((n_targets, d))
        self.scale_ = np.full(n_targets, np.nan)
        self.bounds_: list[NDArray[np.float64]] = [np.empty(0) for _ in range(n_targets)]
        self.n_iter_, self.converged_ = 1, True
        best = 0
        if problem is not None:
            rows = np.flatnonzero(to_numpy(problem.features))
            columns = np.flatnonzero(to_numpy(problem.targets))
            priors = Priors(self.inclusion, self.noise, self.slab, self.spike)
            be = backend(self.device)
            fit = variational_em(
                problem.data, problem.start, priors, tol=self.tol, max_iter=self.max_iter
            )
            for _ in range(_ROUNDS):
                following = problem.rescaled(be.xp.mean(fit.inclusion, axis=0))
                if following is problem:
                    break
                problem = following
                fit = variational_em(
                    problem.data, problem.start, priors, tol=self.tol, max_iter=self.max_iter
                )
            if self.method == "stochastic" and samples is not None:
                batches = self._batches(*samples, problem, be)
                fit = stochastic_em(
                    batches, problem.start, priors, tol=self.tol, max_iter=self.max_iter
                )
            self.inclusion_[np.ix_(columns, rows)] = to_numpy(fit.inclusion).T
            self.scale_[columns] = to_numpy(problem.factors)
            for column, bounds in zip(columns, fit.bounds, strict=True):
                self.bounds_[column] = bounds
            self.n_iter_ = int(fit.iterations.max())
            self.converged_ = bool(fit.converged.all())
            best = int(rows[np.abs(to_numpy(problem.correlations)).max(axis=1).argmax()])
        if not self.converged_:
            warnings.warn(
                f"the inclusion probabilities have not converged after "
                f"{count(self.n_iter_, 'iteration')}; increase max_iter or tol",
                ConvergenceWarning,
                stacklevel=3,
            )
        self.target_support_ = self.inclusion_ > self.threshold
        self._support: NDArray[np.bool_] = np.any(self.target_support_, axis=0)
        if not self._support.any():
            warnings.warn(
                f"no feature has an inclusion probability above {self.threshold}; keeping feature "
                f"{best}, which is the most correlated with a target",
                UserWarning,
                stacklevel=3,
            )
            self._support[best] = True
        return self

    def _batches(self, X: Array, Y: Array, problem: ScaledProblem, be: Backend) -> Iterator[Data]:
        xp = be.xp
        (rows,), (columns,) = xp.nonzero(problem.features), xp.nonzero(problem.targets)
        X = xp.take(X, rows, axis=1) / problem.divisors[None, :]
        Y = xp.take(Y, columns, axis=1) * problem.factors[None, :]
        random = check_random_state(self.random_state)
        n = int(X.shape[0])
        size = min(self.batch_size, n)
        while True:
            some = be.asarray(random.choice(n, size, replace=False))
            x, y = xp.take(X, some, axis=0), xp.take(Y, some, axis=0)
            yield Data(be.gram(x), x.T @ y, xp.sum(y**2, axis=0), size)

    def _centred(self, array: Array, be: Backend) -> Array:
        if not self.fit_intercept:
            return array
        xp = be.xp
        mean = xp.mean(array, axis=0)
        centred = array - mean[None, :]
        # Rounding errors of a constant column must not be taken for a signal.
        noise = 8 * xp.finfo(xp.float64).eps * xp.abs(mean)
        varies = xp.max(xp.abs(centred), axis=0) > noise
        return xp.where(varies[None, :], centred, xp.zeros_like(centred))

    def _targets(self, y: NDArray[Any]) -> NDArray[np.float64]:
        task: str = self.task
        if y.ndim == 2 and y.shape[1] == 1 and task != "regression":
            y = y[:, 0]
        if task == "auto":
            kind = type_of_target(y, input_name="y")
            task = "classification" if kind in ("binary", "multiclass") else "regression"
        self._forget("classes_")
        if task == "classification":
            if y.ndim == 2:
                raise InputError(
                    f"class labels must be one column, got {y.shape[1]} columns; use "
                    "task='regression' to treat each column as a target"
                )
            self.classes_, codes = np.unique(y, return_inverse=True)
            require_two_classes(codes, self.classes_.tolist())
            return np.eye(len(self.classes_))[codes]
        try:
            Y = np.asarray(y, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(f"y must be numeric for regression, got {y.flat[0]!r}") from error
        return Y if Y.ndim == 2 else Y[:, None]

    def _forget(self, *attributes: str) -> None:
        """Remove attributes of an earlier fit."""
        for name in attributes:
            if hasattr(self, name):
                delattr(self, name)

    def _check_parameters(self) -> None:
        known = {
            "scale": tuple(RULES),
            "task": ("auto", "classification", "regression"),
            "method": ("exact", "stochastic"),
        }
        for name, values in known.items():
            if getattr(self, name) not in values:
                raise InputError(
                    f"unknown {name} {getattr(self, name)!r}; expected one of {', '.join(values)}"
                )
        if not 0 <= self.threshold < 1:
            raise InputError(
                f"threshold must be at least 0 and less than 1, got {self.threshold!r}"
            )
        if not self.tol > 0:
            raise InputError(f"tol must be positive, got {self.tol!r}")
        for name in ("max_iter", "batch_size"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be 1 or more, got {getattr(self, name)!r}")
        Priors(self.inclusion, self.noise, self.slab, self.spike)

    def _get_support_mask(self) -> NDArray[np.bool_]:
        check_is_fitted(self)
        return self._support

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        return tags
