r"""Moments and samples of one model, in as few coordinates as possible.

All that folds and transfer compute depends on the features :math:`\Phi` (n × d) only through
:math:`\Phi\Phi^\top` and the number d. With fewer samples than features, the features are replaced
by coordinates :math:`Z = U S^{1/2}` with :math:`\Phi\Phi^\top = U S U^\top`: then all matrices to
decompose have at most n rows instead of d. The published form of stability is not a function of
:math:`\Phi\Phi^\top`; for it, features are never replaced.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oodzoo.backend import backend
from oodzoo.features.source import FeatureSource, Shard
from oodzoo.moments import Moments, blocks, domain_moments, is_large_offset
from oodzoo.ranking.groups import SharedGroups


@dataclass(frozen=True)
class Inputs:
    """Moments of each domain of one model, and the samples behind them.

    Attributes
    ----------
    moments : dict
        Moments of each domain.
    shards : callable
        Returns the features and labels of a domain; called once per fold.
    n_features : int
        Number of features of the model; the moments may have fewer coordinates.
    groups : SharedGroups
    device : str or None
    """

    moments: dict[str, Moments]
    shards: Callable[[str], Iterable[Shard]]
    n_features: int
    groups: SharedGroups
    device: str | None

    def training(self, domain: str, held_out: Sequence[str]) -> Moments:
        """Return the moments of a domain without the groups of some held-out domains."""
        rows = self.groups.rows(domain, held_out)
        if rows is None:
            return self.moments[domain]
        return Moments.stream(
            _taken(self.shards(domain), rows),
            self.moments[domain].n_classes,
            device=self.device,
            context=f"domain {domain!r}",
        )


def read_inputs(
    source: FeatureSource, model: str, device: str | None, *, compact: bool = True
) -> Inputs:
    """Read the features of a model; replace them by coordinates if `compact` and n < d."""
    n_features = source.facts(model).feature_dim
    groups = SharedGroups(source)
    shards = functools.partial(source.shards, model)
    n = sum(len(source.labels(domain)) for domain in source.domains)
    if compact and n < n_features:
        samples = _coordinates(source, model, device)
        if samples is not None:
            n_classes = len(source.classes)
            moments = {
                domain: Moments.of(*sample, n_classes, device=device)
                for domain, sample in samples.items()
            }
            return Inputs(moments, lambda d: [samples[d]], n_features, groups, device)
    return Inputs(domain_moments(source, model, device), shards, n_features, groups, device)


def _coordinates(source: FeatureSource, model: str, device: str | None) -> dict[str, Shard] | None:
    """Coordinates and labels of the samples of each domain.

    None for features with a large offset, whose products would hide the spread in rounding, and
    for features that are all zero.
    """
    on = backend(device)
    xp = on.xp
    parts = {
        domain: list(
            blocks(
                source.shards(model, domain),
                len(source.classes),
                on,
                context=f"model {model!r}, domain {domain!r}",
            )
        )
        for domain in source.domains
    }
    features = xp.concat([block for part in parts.values() for block, _ in part])
    mean = xp.mean(features, axis=0)
    spread = float(xp.sum((features - mean[None, :]) ** 2)) / features.shape[0]
    if is_large_offset(float(xp.sum(mean**2)), spread):
        return None
    eigenvalues, vectors = on.eigh(on.gram(features.T))
    rounding = max(features.shape) * xp.finfo(xp.float64).eps * eigenvalues[-1]
    (varying,) = xp.nonzero(eigenvalues > rounding)
    if not len(varying):
        return None
    scales = xp.sqrt(xp.take(eigenvalues, varying))
    coordinates = xp.take(vectors, varying, axis=1) * scales[None, :]
    samples, start = {}, 0
    for domain, part in parts.items():
        labels = xp.concat([codes for _, codes in part])
        samples[domain] = coordinates[start : start + labels.shape[0]], labels
        start += labels.shape[0]
    return samples


def _taken(shards: Iterable[Shard], rows: NDArray[np.bool_]) -> Iterator[Shard]:
    """The samples at some rows of all shards together."""
    start = 0
    for features, labels in shards:
        part = np.flatnonzero(rows[start : start + len(labels)])
        start += len(labels)
        if len(part):
            yield features[part], labels[part]
