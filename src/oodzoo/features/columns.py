"""The features that a head sees: some columns of some models, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oodzoo.backend import to_numpy
from oodzoo.errors import InputError

if TYPE_CHECKING:  # heads work on arrays, without stores and images
    from oodzoo.features.source import FeatureSource


class Samples(NamedTuple):
    """Features (n, d) with the class and the domain of each row, as positions."""

    features: NDArray[np.float32]
    labels: NDArray[np.int64]
    domains: NDArray[np.int64]


@dataclass(frozen=True)
class Columns:
    """Which columns of which models, in the order in which they stand.

    Attributes
    ----------
    by_model : dict
        The columns of each model; those of the first model come first.
    """

    by_model: dict[str, NDArray[np.int64]]

    @classmethod
    def all_of(cls, source: FeatureSource, models: Sequence[str]) -> Columns:
        """Every feature of some models."""
        return cls({m: np.arange(source.facts(m).feature_dim) for m in models})

    @classmethod
    def by_mask(
        cls, source: FeatureSource, models: Sequence[str], mask: NDArray[np.bool_]
    ) -> Columns:
        """Those that a mask over the concatenated features of some models keeps."""
        ends = np.cumsum([source.facts(m).feature_dim for m in models])
        if len(mask) != ends[-1]:
            raise InputError(f"a mask of {len(mask)} for {ends[-1]} features of {list(models)}")
        parts = np.split(mask, ends[:-1])
        return cls({m: np.flatnonzero(part) for m, part in zip(models, parts, strict=True)})

    @property
    def models(self) -> tuple[str, ...]:
        """The models that have any feature kept."""
        return tuple(m for m, columns in self.by_model.items() if len(columns))

    def __len__(self) -> int:
        return sum(map(len, self.by_model.values()))

    def samples(self, source: FeatureSource, domains: Sequence[str]) -> Samples:
        """The kept features of some domains; domains are numbered as they are given."""
        labels = [source.labels(domain) for domain in domains]
        features = np.empty((sum(map(len, labels)), len(self)), np.float32)
        right = 0
        for model in self.models:
            columns = self.by_model[model]
            left, right = right, right + len(columns)
            bottom = 0
            for domain in domains:
                for shard, _ in source.shards(model, domain):
                    top, bottom = bottom, bottom + len(shard)
                    features[top:bottom, left:right] = to_numpy(shard)[:, columns]
        numbers = np.repeat(np.arange(len(domains)), [len(part) for part in labels])
        return Samples(features, np.concatenate(labels), numbers)
