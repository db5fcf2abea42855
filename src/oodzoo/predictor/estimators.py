"""Unfitted estimators of scikit-learn: to cross-validate, to search, in pipelines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from oodzoo.core.errors import InputError
from oodzoo.core.text import count
from oodzoo.predictor.fitting import fit
from oodzoo.predictor.predictor import Predictor
from oodzoo.tasks import Kind

_PARTS = 5
"""Parts of the data, which stand for domains where none are given."""


class _ZooEstimator(BaseEstimator):  # type: ignore[misc]
    """What both estimators do. The docstring of :class:`ZooClassifier` has the parameters."""

    _kind: Kind

    def __init__(
        self,
        *,
        rank_by: str = "unseen",
        combine: str = "auto",
        columns: Mapping[str, int | slice | Sequence[int]] | None = None,
        max_models: int | None = None,
        max_ms: float | None = None,
        device: str | None = None,
    ) -> None:
        self.rank_by = rank_by
        self.combine = combine
        self.columns = columns
        self.max_models = max_models
        self.max_ms = max_ms
        self.device = device

    def fit(self, X: Any, y: Any, groups: Any = None) -> Self:
        """Choose models and their combination, and train them on all domains.

        Parameters
        ----------
        X : dict or array
            Features: a dict {model: array (n, d)}, or one array (n, d) with the `columns` of each
            model.
        y : sequence
            Class or number of each row.
        groups : sequence, optional
            Domain of each row. Without it, five parts of the data, alike in `y`, stand for domains:
            the choice is then one for new data of the same domains.
        """
        features, y = self._checked(X, y)
        self.predictor_: Predictor = fit(
            features,
            y,
            _parts(y) if groups is None else groups,
            choose=self.combine,
            score=self.rank_by,
            task=self._kind,
            max_models=self.max_models,
            max_ms=self.max_ms,
            device=self.device,
        )
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict the class or number of each row."""
        check_is_fitted(self)
        return self.predictor_.predict(self._of_predictor(X))

    def _checked(self, X: Any, y: Any) -> tuple[Mapping[str, Any], NDArray[Any]]:
        if _is_named(X):
            if self.columns is not None:
                raise InputError("X is a dict, which names its models; leave columns out")
            self.n_features_in_ = sum(np.shape(array)[-1] for array in X.values())
            return X, np.asarray(y)
        X, y = validate_data(
            self, X, y, ensure_min_samples=2, y_numeric=self._kind != "classification"
        )
        return self._by_model(X), y

    def _of_predictor(self, X: Any) -> Mapping[str, Any]:
        """The features of the models that the predictor uses."""
        if not _is_named(X):
            X = self._by_model(validate_data(self, X, reset=False))
        used = {model.name for model in self.predictor_.models}
        return {name: array for name, array in X.items() if name in used}

    def _by_model(self, X: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """The columns of each model of one array."""
        if self.columns is None:
            return {"features": X}
        positions, start = np.arange(X.shape[1]), 0
        found = {}
        for model, given in self.columns.items():
            columns = slice(start, start + given) if isinstance(given, int) else given
            try:
                chosen = positions[columns]
            except IndexError:
                chosen = positions[:0]
            if not len(chosen) or (isinstance(given, int) and len(chosen) < given):
                raise InputError(
                    f"columns: {model!r} has {given!r}, but X has {count(len(positions), 'column')}"
                )
            found[model], start = X[:, chosen], int(chosen[-1]) + 1
        return found


class ZooClassifier(ClassifierMixin, _ZooEstimator):  # type: ignore[misc]
    """Choose and combine models by their features, as an unfitted classifier of scikit-learn.

    :meth:`fit` is :func:`oodzoo.fit`, and `predictor_` is what it returns. So the whole choice
    can be cross-validated on domains that it has not seen: with ``LeaveOneGroupOut``, and the
    domains both as `groups` of the split and of :meth:`fit`.

    Parameters
    ----------
    rank_by : str, default "unseen"
        The score to rank models by: `score` of :func:`oodzoo.rank`.
    combine : {"auto", "single", "pool", "ensemble", "selection"}
        How to combine the models: `choose` of :func:`oodzoo.fit`.
    columns : dict, optional
        The columns of each model, if `X` is one array: a slice, positions, or a number of columns,
        which follow those of the model before. Without it, all columns are of one model.
    max_models, max_ms : int and float, optional
        As in :func:`oodzoo.fit`.
    device : str, optional
        As in :func:`oodzoo.fit`.

    Attributes
    ----------
    predictor_ : Predictor
    classes_ : array
    n_features_in_ : int

    Examples
    --------
    >>> import numpy as np, oodzoo
    >>> from sklearn.model_selection import LeaveOneGroupOut, cross_val_score
    >>> rng = np.random.default_rng(0)
    >>> y, domains = np.tile([0, 1], 60), np.repeat(["a", "b", "c"], 40)
    >>> poor, good = (y[:, None] + rng.normal(scale=noise, size=(120, 3)) for noise in (2, 0.2))
    >>> X = np.hstack([poor, good])
    >>> estimator = oodzoo.ZooClassifier(combine="single", columns={"poor": 3, "good": 3})
    >>> folds = LeaveOneGroupOut()
    >>> cross_val_score(estimator, X, y, groups=domains, cv=folds, params={"groups": domains})
    array([1., 1., 1.])
    """

    _kind = "classification"

    def fit(self, X: Any, y: Any, groups: Any = None) -> Self:
        check_classification_targets(y)
        super().fit(X, y, groups)
        self.classes_ = self.predictor_.classes_
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Predict probabilities (n, n_classes), columns in the order of `classes_`."""
        check_is_fitted(self)
        return self.predictor_.predict_proba(self._of_predictor(X))


class ZooRegressor(RegressorMixin, _ZooEstimator):  # type: ignore[misc]
    """The same for numbers; see :class:`ZooClassifier`."""

    _kind = "regression"


def _is_named(X: Any) -> bool:
    """Whether features are given by model; a sparse matrix can be a dict, too."""
    return isinstance(X, Mapping) and not issparse(X)


def _parts(y: NDArray[Any]) -> NDArray[np.str_]:
    """Parts of the data that stand for domains, alike in `y`: neighbours go to different ones."""
    parts = np.empty(len(y), dtype=np.int64)
    parts[np.argsort(y, kind="stable")] = np.arange(len(y)) % _PARTS
    return np.array([f"part {number + 1}" for number in parts])
