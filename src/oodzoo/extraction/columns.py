"""Feature columns of several models, concatenated."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oodzoo.core.backend import to_numpy
from oodzoo.core.errors import InputError

if TYPE_CHECKING:  # heads work on arrays, without importing stores
    from oodzoo.extraction.features import FeatureSource

_RANGES = re.compile(r"(?:\d{1,9}(?:-\d{1,9})?(?:,\d{1,9}(?:-\d{1,9})?)*)?", re.ASCII)
_LARGEST = 10**7
"""More features than any model has; a damaged file must not fill the memory."""


class Samples(NamedTuple):
    """Features (n, d) with the class, (n,), or the labels, (n, C), and the domain of each row."""

    features: NDArray[np.float32]
    labels: NDArray[Any]
    domains: NDArray[np.int64]


@dataclass(frozen=True)
class Columns:
    """A choice of feature columns from several models.

    Attributes
    ----------
    by_model : dict
        Column numbers of each model; concatenated in this order.
    normalised : frozenset of str
        Models whose features are divided by their norm before columns are chosen.
    """

    by_model: dict[str, NDArray[np.int64]]
    normalised: frozenset[str] = frozenset()

    @classmethod
    def all_of(cls, source: FeatureSource, models: Sequence[str]) -> Columns:
        """Choose all features of the models."""
        return cls({m: np.arange(source.facts(m).feature_dim) for m in models})

    @classmethod
    def by_mask(
        cls, source: FeatureSource, models: Sequence[str], mask: NDArray[np.bool_]
    ) -> Columns:
        """Choose columns by a mask over the concatenated features of the models."""
        ends = np.cumsum([source.facts(m).feature_dim for m in models])
        if len(mask) != ends[-1]:
            raise InputError(
                f"the mask has {len(mask)} values, {list(models)} have {ends[-1]} features"
            )
        parts = np.split(mask, ends[:-1])
        return cls({m: np.flatnonzero(part) for m, part in zip(models, parts, strict=True)})

    def to_dict(self) -> dict[str, str]:
        """Write the columns of each model as ranges, for JSON.

        Examples
        --------
        >>> Columns({"resnet": np.array([0, 1, 2, 7])}).to_dict()
        {'resnet': '0-2,7'}
        """
        return {model: _ranges(columns) for model, columns in self.by_model.items()}

    @classmethod
    def from_dict(cls, document: Mapping[str, str], source: FeatureSource) -> Columns:
        """Restore columns of models of a source from :meth:`to_dict`."""
        found = {}
        for model, text in document.items():
            if model not in source.models:
                known = ", ".join(source.models)
                raise InputError(f"there are no features of the model {model!r}, but of {known}")
            width = source.facts(model).feature_dim
            columns = _parsed(text)
            if columns is None or (len(columns) and columns[-1] >= width):
                raise InputError(
                    f"the columns of the model {model!r} must be ascending numbers and ranges "
                    f"below {width}, such as 0-2,7; got {text!r}"
                )
            found[model] = columns
        return cls(found)

    @property
    def models(self) -> tuple[str, ...]:
        """The models with at least one chosen column."""
        return tuple(m for m, columns in self.by_model.items() if len(columns))

    def __len__(self) -> int:
        return sum(map(len, self.by_model.values()))

    def of(self, model: str, features: NDArray[Any]) -> NDArray[Any]:
        """Choose the columns of a model from its features (n, d)."""
        if model in self.normalised:
            features = normalise(features)
        return features[:, self.by_model[model]]

    def samples(self, source: FeatureSource, domains: Sequence[str]) -> Samples:
        """Load the chosen columns of some domains; domains are numbered in the order given."""
        labels = [source.labels(domain) for domain in domains]
        features = np.empty((sum(map(len, labels)), len(self)), np.float32)
        right = 0
        for model in self.models:
            left, right = right, right + len(self.by_model[model])
            bottom = 0
            for domain in domains:
                for shard, _ in source.shards(model, domain):
                    top, bottom = bottom, bottom + len(shard)
                    features[top:bottom, left:right] = self.of(model, to_numpy(shard))
        numbers = np.repeat(np.arange(len(domains)), [len(part) for part in labels])
        return Samples(features, np.concatenate(labels), numbers)


def _ranges(columns: NDArray[np.int64]) -> str:
    """Write ascending numbers as ranges."""
    if not len(columns):
        return ""
    runs = np.split(columns, np.flatnonzero(np.diff(columns) != 1) + 1)
    return ",".join(f"{r[0]}" if len(r) == 1 else f"{r[0]}-{r[-1]}" for r in runs)


def _parsed(text: object) -> NDArray[np.int64] | None:
    """Read what :func:`_ranges` writes; None for anything else."""
    if not isinstance(text, str) or not _RANGES.fullmatch(text):
        return None
    numbers: list[int] = []
    for part in filter(None, text.split(",")):
        first, *rest = map(int, part.split("-"))
        last = rest[0] if rest else first
        if not first <= last <= _LARGEST:
            return None
        numbers += range(first, last + 1)
    columns = np.array(numbers, np.int64)
    return columns if (np.diff(columns) > 0).all() else None


def normalise(features: NDArray[Any]) -> NDArray[np.float32]:
    """Divide features (n, d) by their norm; those without any stay zero."""
    values = features.astype(np.float32, copy=False)
    norms = np.linalg.norm(values.astype(np.float64), axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):  # infinite features become NaN, and are found as such
        unit: NDArray[np.float32] = (values / np.where(norms > 0, norms, 1)).astype(np.float32)
    return unit
