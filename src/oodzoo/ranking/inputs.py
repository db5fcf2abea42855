r"""Moments and samples of one model: in as few coordinates as possible, without shared groups.

All that folds and transfer compute depends on the features :math:`\Phi` (n × d) only through
:math:`\Phi\Phi^\top` and the number d. With fewer samples than features, the features are replaced
by coordinates :math:`Z = U S^{1/2}` with :math:`\Phi\Phi^\top = U S U^\top`: then all matrices to
decompose have at most n rows instead of d. The published form of stability is not a function of
:math:`\Phi\Phi^\top`; for it, features are never replaced.

A group (a patient, a video) that occurs in several domains must not be trained on when one of these
domains is held out: its samples resemble each other for reasons that do not carry over.
"""

from __future__ import annotations

import functools
import hashlib
import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from oodzoo.core.backend import backend
from oodzoo.extraction.source import FeatureSource, Shard
from oodzoo.linear.moments import Moments, blocks, domain_moments, is_large_offset

TrainingMoments = Callable[[str, Sequence[str]], Moments]
"""Returns the moments of a domain without the groups of some held-out domains."""


class SharedGroups:
    """Which samples of each domain belong to groups that occur in other domains, too."""

    def __init__(self, source: FeatureSource) -> None:
        self._groups = {d: source.groups(d) for d in source.domains}
        names = {
            d: {g for g in groups or () if g is not None} for d, groups in self._groups.items()
        }
        self._shared = {
            (d, other): names[d] & names[other] for d in names for other in names if d != other
        }

    def __bool__(self) -> bool:
        """Whether any group is in two domains."""
        return any(self._shared.values())

    @property
    def settings(self) -> str:
        """Identify the groups in the key of a cache; empty if no group is in two domains."""
        if not self:
            return ""
        content = json.dumps({d: list(g) if g else None for d, g in self._groups.items()})
        return f", groups {hashlib.sha256(content.encode()).hexdigest()}"

    def rows(self, domain: str, held_out: Sequence[str]) -> NDArray[np.bool_] | None:
        """Return which samples of a domain may be trained on; None for all.

        If none may, all are used: see :meth:`warn`.
        """
        shared = set().union(*(self._shared[domain, other] for other in held_out))
        groups = self._groups[domain]
        if not shared or groups is None:
            return None
        rows = np.array([group not in shared for group in groups])
        return rows if rows.any() else None

    def warn(self, held_out_together: int) -> None:
        """Warn of domains that cannot be held out without leaving nothing of another one."""
        for domain, groups in self._groups.items():
            others = [other for other in self._groups if other != domain]
            for held_out in combinations(others, held_out_together):
                shared = set().union(*(self._shared[domain, other] for other in held_out))
                if groups is not None and shared.issuperset(groups):
                    names = " or ".join(map(repr, held_out))
                    warnings.warn(
                        f"all samples of domain {domain!r} belong to groups that occur in {names}, "
                        f"too; they are trained on although {names} is held out, so accuracies may "
                        "be too high",
                        stacklevel=3,
                    )
                    return


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
