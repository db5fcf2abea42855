"""Pairs of near-duplicate images: the result of a search."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from oodzoo.core.text import count

MOST = 100
"""Pairs of each kind that are listed; the others are counted."""

SAME_PIXELS = 0.97
"""Correlation of two thumbnails from which they show the same picture."""

_EVIDENCE = ("identical", "same pixels", "probable")


@dataclass(frozen=True)
class Pair:
    """Two images that are nearly the same.

    Attributes
    ----------
    paths, domains : tuple of str
        Of the two images.
    labels : tuple of str or None
        None for an image of a domain without labels.
    similarity : float
        Cosine similarity of their whitened features, averaged over models.
    identical : bool
        Whether their files have the same content.
    correlation : float or None
        Correlation of their pixels; None if the images were not compared.
    """

    paths: tuple[str, str]
    domains: tuple[str, str]
    labels: tuple[str | None, str | None]
    similarity: float
    identical: bool = False
    correlation: float | None = None

    @property
    def evidence(self) -> str:
        """Why they are taken for duplicates: "identical", "same pixels" or "probable"."""
        if self.identical:
            return "identical"
        same = self.correlation is not None and self.correlation >= SAME_PIXELS
        return "same pixels" if same else "probable"

    @property
    def evidence_in_words(self) -> str:
        """The evidence; thumbnails are compared, so that pixels are nearly the same at best."""
        return "nearly the same pixels" if self.evidence == "same pixels" else self.evidence

    @property
    def keys(self) -> tuple[str, str]:
        """Names of the two images that no others have: a path occurs once in a domain."""
        first, second = (": ".join(pair) for pair in zip(self.domains, self.paths, strict=True))
        return first, second

    @property
    def labels_differ(self) -> bool:
        return None not in self.labels and self.labels[0] != self.labels[1]


@dataclass(frozen=True)
class Pairs:
    """Near-duplicates of one kind: how many by evidence, how many labels differ, and the worst."""

    counts: dict[str, int]
    labels_differ: int
    worst: tuple[Pair, ...]

    @classmethod
    def of(cls, pairs: Sequence[Pair], not_listed: int = 0) -> Pairs:
        """Sort pairs by evidence and similarity; `not_listed` are probable ones beside them."""
        counts = Counter(pair.evidence for pair in pairs)
        counts["probable"] += not_listed
        worst = sorted(pairs, key=lambda pair: (_EVIDENCE.index(pair.evidence), -pair.similarity))
        return cls(
            {name: counts[name] for name in _EVIDENCE if counts[name]},
            sum(pair.labels_differ for pair in pairs),
            tuple(worst[:MOST]),
        )

    def __len__(self) -> int:
        return sum(self.counts.values())

    def __str__(self) -> str:
        """The number of pairs and their evidence."""
        words = {"same pixels": "with nearly the same pixels"}
        parts = ", ".join(
            f"{self.counts[k]:,} {words.get(k, k)}" for k in _EVIDENCE if k in self.counts
        )
        counted = f"{count(len(self), 'pair')} of near-duplicate images"
        return f"{counted} ({parts})" if parts else counted


@dataclass(frozen=True)
class NearDuplicates:
    """Near-duplicate images of a data set.

    Attributes
    ----------
    across, within : Pairs
        Of different domains, and of one domain.
    images : int
        Images that were compared.
    models : tuple of str
        Models whose features were compared.
    scope : str
        Which pairs were compared: "all", "class" (those of images with the same label, and those
        with an image without a label), or "part" (a random part of the latter).
    compared : float
        Share of all pairs that were compared.
    threshold : float
        Similarity from which images of different domains are taken for near-duplicates.
    """

    across: Pairs
    within: Pairs
    images: int
    models: tuple[str, ...]
    scope: str
    compared: float
    threshold: float

    def __repr__(self) -> str:
        pairs = f"{count(len(self.across), 'pair')} across domains, {len(self.within):,} within"
        return f"NearDuplicates({pairs}; {count(self.images, 'image')})"

    def to_dict(self) -> dict[str, Any]:
        """Convert to a JSON document; each pair also has its evidence."""
        document: dict[str, Any] = msgspec.to_builtins(self)
        for name, pairs in (("across", self.across), ("within", self.within)):
            document[name]["worst"] = [
                {**msgspec.to_builtins(pair), "evidence": pair.evidence} for pair in pairs.worst
            ]
        return document

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> NearDuplicates:
        """Restore the result from :meth:`to_dict`."""
        return msgspec.convert(document, cls)

    @property
    def metrics(self) -> dict[str, float]:
        return {"pairs_across_domains": len(self.across), "pairs_within_domains": len(self.within)}

    @property
    def problems(self) -> list[str]:
        """What is wrong and what to do about it, one line for each problem."""
        found = []
        if len(self.across):
            found.append(
                f"leak between domains: {self.across} in different domains; leave-one-domain-out "
                "results will be too optimistic; look at them, and remove one image of each pair"
            )
        if len(self.within):
            found.append(
                f"{self.within} in the same domain; give both the same group, so that they stay on "
                "the same side of any split, or remove one"
            )
        if differing := self.across.labels_differ + self.within.labels_differ:
            found.append(
                f"{count(differing, 'pair')} of near-duplicate images with different labels; look "
                "at them, and correct the labels"
            )
        return found

    @property
    def extent(self) -> str:
        """What was compared, as a sentence."""
        images, models = count(self.images, "image"), count(len(self.models), "model")
        if self.scope == "all":
            return f"All pairs of {images} were compared by features of {models}."
        if self.scope == "class":
            return (
                f"Only pairs with the same label ({self.compared:.1%} of all pairs of {images}) "
                f"were compared by features of {models}."
            )
        return (
            f"Only a sample of the pairs with the same label ({self.compared:.2g} of all pairs of "
            f"{images}) was compared by features of {models}."
        )
