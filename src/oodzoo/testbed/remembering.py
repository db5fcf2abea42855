"""A feature source that keeps in memory what several rankings share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodzoo.features.cache import Arrays
from oodzoo.features.source import Facts, FeatureSource, Shard
from oodzoo.store.class_embeddings import ClassEmbeddings


class Remembering(FeatureSource):
    """A view of a source for several rankings, in which the folds of a model are computed once.

    Features in memory have no cache, and folds that give a warning are not kept in that of a store.
    Moments, which are large, are not kept in memory.
    """

    def __init__(self, source: FeatureSource) -> None:
        self._source = source
        self.models = source.models
        self.domains = source.domains
        self.classes = source.classes
        self.task = source.task
        self._results: dict[tuple[str, ...], Arrays] = {}

    def shards(self, model: str, domain: str) -> Iterator[Shard]:
        return self._source.shards(model, domain)

    def labels(self, domain: str) -> NDArray[np.int64]:
        return self._source.labels(domain)

    def groups(self, domain: str) -> Sequence[str | None] | None:
        return self._source.groups(domain)

    def logits(self, model: str, domain: str) -> NDArray[Any] | None:
        return self._source.logits(model, domain)

    def class_embeddings(self, model: str) -> ClassEmbeddings | None:
        return self._source.class_embeddings(model)

    def facts(self, model: str) -> Facts:
        return self._source.facts(model)

    @property
    def provenance(self) -> dict[str, str]:
        return self._source.provenance

    def only(self, domains: Sequence[str]) -> FeatureSource:
        return self._source.only(domains)

    def cached(
        self,
        kind: str,
        models: Sequence[str],
        compute: Callable[[], Arrays],
        *,
        domains: Sequence[str] | None = None,
        settings: str = "",
        keep: Callable[[Arrays], bool] = lambda _: True,
    ) -> Arrays:
        def read() -> Arrays:
            return self._source.cached(
                kind, models, compute, domains=domains, settings=settings, keep=keep
            )

        if kind == "moments":
            return read()
        key = (kind, settings, *models, *(domains or self.domains))
        if key not in self._results:
            self._results[key] = read()
        return self._results[key]
