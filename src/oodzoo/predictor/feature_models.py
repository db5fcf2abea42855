"""Models of a predictor that oodzoo does not run: only their features are known."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import numpy as np

from oodzoo.backend import to_numpy
from oodzoo.errors import InputError
from oodzoo.features.source import FeatureSource
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.manifest import StoredModel


@dataclass(frozen=True)
class FeatureModel:
    """A model whose features are given, or computed by a Python function."""

    name: str
    feature_dim: int
    fingerprint: str
    """Of the training features."""
    parameters: int | None = field(default=None, compare=False)
    milliseconds: float | None = field(default=None, compare=False)
    """Time per sample, if it was measured."""

    def __post_init__(self) -> None:
        if self.feature_dim < 1:
            raise InputError(
                f"model {self.name!r} must have one feature or more, got {self.feature_dim}"
            )

    @property
    def bytes(self) -> None:
        """Size of its files: unknown."""
        return


def has_features_only(stored: StoredModel) -> bool:
    """Whether a store has features of a model, but not the model: it cannot be loaded."""
    return stored.source in ("import", "python")


def stored_feature_model(store: FeatureStore, name: str) -> FeatureModel:
    """Return the model of features in a store."""
    stored = store.model(name)
    milliseconds = store.milliseconds_per_image(name)
    return FeatureModel(
        name, stored.feature_dim, stored.fingerprint, stored.parameters, milliseconds
    )


def array_feature_model(
    source: FeatureSource, name: str, milliseconds: float | None = None
) -> FeatureModel:
    """Return the model of features in memory."""
    digest = hashlib.sha256()
    for domain in source.domains:
        for features, _ in source.shards(name, domain):
            digest.update(np.ascontiguousarray(to_numpy(features), np.float32).tobytes())
    dimension = source.facts(name).feature_dim
    return FeatureModel(name, dimension, digest.hexdigest(), milliseconds=milliseconds)
