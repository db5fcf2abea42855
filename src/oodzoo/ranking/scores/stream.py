"""Features that are read block by block, and their moments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from oodzoo.core.backend import Array, Backend, backend_of
from oodzoo.extraction.source import Shard
from oodzoo.linear.moments import Centred, Moments, blocks, merge

Shards = Callable[[str], Iterable[Shard]]
"""Features and labels of a domain, block by block."""

LARGEST_OFFSET = 30.0
"""Ratio of the mean of a feature to its spread up to which moments are as precise as the scores
need. Otherwise moments are computed again, from the features minus their mean."""

_SAME = 1e-9
"""Relative difference up to which a sample replaces the mean, so that constant features are 0."""


@dataclass(frozen=True, eq=False)
class Stream:
    """Labelled features of several domains, for scores that are invariant to translation.

    Attributes
    ----------
    moments : dict of str to Moments
        Moments by domain, of the features minus `origin`.
    total : Moments
        Their sum.
    origin : array (d,)
        Zero, or close to the mean if the mean of a feature is many times its spread.
    """

    moments: Mapping[str, Moments]
    total: Moments
    origin: Array
    shards: Shards

    @classmethod
    def of(cls, moments: Mapping[str, Moments], shards: Shards) -> Stream:
        """Make a stream of moments and shards; one more pass if the offset is large."""
        total = merge(moments.values())
        xp = backend_of(total.gram).xp
        stream = cls(moments, total, xp.zeros_like(total.feature_sum), shards)
        squares = total.mean**2
        variances = xp.linalg.diagonal(total.covariance)
        if not bool(xp.any((squares > 0) & (squares > LARGEST_OFFSET**2 * variances))):
            return stream
        first = next(block[0, :] for domain in moments for block, _ in stream.blocks(domain))
        same = xp.abs(first - total.mean) <= _SAME * xp.abs(total.mean)
        stream = cls(moments, total, xp.where(same, first, total.mean), shards)
        device = None if stream.backend.is_numpy else str(stream.backend.device)
        centred = {
            domain: Moments.stream(stream.blocks(domain), total.n_classes, device=device)
            for domain in moments
        }
        return cls(centred, merge(centred.values()), stream.origin, shards)

    @property
    def backend(self) -> Backend:
        return backend_of(self.origin)

    @property
    def centred(self) -> Centred:
        """Moments of all samples about their mean."""
        total = self.total
        return Centred(
            gram=total.n * total.covariance,
            products=total.products - total.mean[:, None] * total.label_sum[None, :],
        )

    @property
    def rounding(self) -> float:
        """Error of the centred Gram matrix, relative to the size of its features."""
        xp = self.backend.xp
        variances = xp.linalg.diagonal(self.total.covariance)
        varies = variances > 0
        ratios = self.total.mean**2 / xp.where(varies, variances, xp.ones_like(variances))
        offset = float(xp.max(xp.where(varies, ratios, xp.zeros_like(ratios))))
        sizes = max(self.total.n, self.total.n_features)
        return sizes * float(xp.finfo(xp.float64).eps) * (1 + offset)

    def blocks(self, domain: str) -> Iterator[Shard]:
        """Float64 features of a domain minus `origin`, and labels, block by block."""
        n_classes = self.total.n_classes
        for X, y in blocks(self.shards(domain), n_classes, self.backend, context=repr(domain)):
            yield X - self.origin[None, :], y

    def centred_blocks(self) -> Iterator[Shard]:
        """Float64 features of all domains minus their mean, and labels, block by block."""
        for domain in self.moments:
            for X, y in self.blocks(domain):
                yield X - self.total.mean[None, :], y
