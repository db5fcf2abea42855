"""Models with class embeddings: their zero-shot heads, and the features of their heads in a pool.

A zero-shot head is linear in features of unit length. All heads of a pool are added up as one
linear head, so all heads of such a model in a pool act on features of unit length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from oodzoo.features.columns import Columns
from oodzoo.features.source import FeatureSource
from oodzoo.heads.linear import LinearHead
from oodzoo.heads.zero_shot import zero_shot_head


def find_zero_shot(source: FeatureSource, model: str) -> LinearHead | None:
    """Return the zero-shot head of a model, of features of unit length; None without one."""
    found = source.class_embeddings(model)
    return None if found is None else zero_shot_head(found.embeddings, found.scale, found.bias)


def pool_columns(source: FeatureSource, models: Sequence[str]) -> Columns:
    """All features of models, as the heads of a pool take them."""
    normalised = [model for model in models if source.class_embeddings(model) is not None]
    return replace(Columns.all_of(source, models), normalised=frozenset(normalised))
