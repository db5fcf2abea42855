"""Near-duplicate images of a feature store, and the pairs that are found."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
from joblib import cpu_count
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from PIL import Image

from oodzoo.core.events import Progress
from oodzoo.core.text import count
from oodzoo.core.threads import Prefetch
from oodzoo.data.files import ImageFile, UnreadableImageError
from oodzoo.data.pixels import read
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.leaks.search import (
    BUDGET,
    KEPT,
    USELESS,
    FeatureSpace,
    PairSearch,
    SampleColumns,
    Sketch,
    TopPairs,
    choose_models,
    list_samples,
    plan_pairs,
)

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


FLOOR, NOISE = 0.35, 10
"""Smallest similarity of near-duplicates: absolute, and relative to the noise."""

CANDIDATE_FLOOR, CANDIDATE_NOISE = 0.2, 6
"""The same for pairs of different domains that are near-duplicates if their pixels agree."""

CEILING = 0.98
"""Largest threshold."""

OTHER_PIXELS = 0.6
"""Correlation of two thumbnails below which they show different pictures."""

VERIFIED = 400
"""Most similar pairs of each kind whose pixels are compared."""


def similar_images(
    store: FeatureStore,
    *,
    models: Sequence[str] | None = None,
    pairs: str = "auto",
    files: Mapping[str, ImageFile] | None = None,
    budget: float = BUDGET,
    progress: Progress | None = None,
) -> NearDuplicates:
    r"""Find near-duplicate images in a feature store.

    The similarity of two images is the cosine of their whitened features, see
    :class:`~oodzoo.store.leaks.search.Whitening`, averaged over models. Images of different domains
    are near-duplicates if it is at least :math:`\max(0.35, 10 \sigma)`, where :math:`\sigma` is
    the noise, see :class:`~oodzoo.store.leaks.search.FeatureSpace`. Images of one domain must also
    be at least twice as close as the median nearest neighbours of that domain,
    :math:`1 - s \le \tfrac{1}{2} (1 - s_\text{median})`; those of one group are left out.

    Parameters
    ----------
    store : FeatureStore
    models : sequence of str, optional
        By default up to 8 models, from the narrowest to the widest features.
    pairs : {"auto", "all", "class"}
        Which pairs to compare, see :func:`~oodzoo.store.leaks.search.plan_pairs`.
    files : dict of str to ImageFile, optional
        Image files by their identity (SHA-256): only these images are compared, and the pixels of
        similar ones, too. Pairs of different domains are left out if their pixels differ clearly,
        and included if they are the same and the similarity is at least
        :math:`\max(0.2, 6 \sigma)`; pairs of one domain must have the same pixels.
    budget : float
        Multiplications to spend, with `pairs="auto"`.
    progress : callable, optional

    Returns
    -------
    NearDuplicates
    """
    names = choose_models(store) if models is None else tuple(models)
    samples = list_samples(store, names, None if files is None else files.keys())
    if len(samples) < 2:
        return NearDuplicates(Pairs.of([]), Pairs.of([]), len(samples), names, "all", 1.0, FLOOR)
    space = FeatureSpace(store, names, samples)
    threshold = _limited(FLOOR, NOISE, space.noise)
    low = threshold if files is None else _limited(CANDIDATE_FLOOR, CANDIDATE_NOISE, space.noise)
    sketch = Sketch.if_cheaper(space, len(samples), low)
    cost = space.width if sketch is None else sketch.cost
    plan = plan_pairs(samples.strata, cost, pairs, budget, between=space.width)
    search = PairSearch(space, samples, low, threshold, sketch)
    search.run(plan, progress)
    everywhere = np.full(len(samples), threshold)
    own = _within_limits(samples, search.nearest, threshold)
    across = _verified(search.across, samples, everywhere, files, OTHER_PIXELS)
    within = _verified(search.within, samples, own, files, SAME_PIXELS)
    return NearDuplicates(
        Pairs.of(across, not_listed=max(0, search.n_across - KEPT)),
        Pairs.of(within),
        len(samples),
        space.models,
        plan.scope,
        plan.pairs / (len(samples) * (len(samples) - 1) / 2),
        threshold,
    )


def _limited(floor: float, factor: float, noise: float) -> float:
    # features that tell nothing apart still find those that are equal
    return 0.9999 if noise > USELESS else min(max(floor, factor * noise), CEILING)


def _within_limits(
    samples: SampleColumns, nearest: NDArray[np.float32], threshold: float
) -> NDArray[np.float64]:
    """Return the smallest similarity of near-duplicates of the domain of each sample."""
    limits = np.full(len(samples), threshold)
    for domain in np.unique(samples.domains):
        own = samples.domains == domain
        known = nearest[own & samples.probes & (nearest > -1)]
        if len(known):
            limits[own] = max(threshold, min((1 + float(np.median(known))) / 2, CEILING))
    return limits


def _verified(
    top: TopPairs,
    samples: SampleColumns,
    limits: NDArray[np.float64],
    files: Mapping[str, ImageFile] | None,
    refuted: float,
) -> list[Pair]:
    """Return the near-duplicates among similar pairs, verified by their pixels if there are files.

    Those are near-duplicates that reach the limit of their samples, unless the correlation of
    their pixels is less than `refuted`; of different domains, also those with the same pixels.
    """
    found = []
    for place, similarity in zip(top.places.tolist(), top.similarities.tolist(), strict=True):
        pair = _pair(samples, place, similarity)
        likely = pair.identical or similarity >= limits[place[0]]
        if likely or pair.domains[0] != pair.domains[1]:
            found.append((pair, place, likely))
    if files is None:
        return [pair for pair, _, likely in found if likely]
    images = [[files[samples.images[at]] for at in place] for _, place, _ in found[:VERIFIED]]
    values = correlations([(first, second) for first, second in images])
    pairs = []
    for (pair, _, likely), value in itertools.zip_longest(found, values):
        verified = replace(pair, correlation=None if value is None else round(value, 4))
        if verified.evidence != "probable" or (likely and (value is None or value >= refuted)):
            pairs.append(verified)
    return pairs


def _pair(samples: SampleColumns, place: Sequence[int], similarity: float) -> Pair:
    (path, domain, label), (other, other_domain, other_label) = map(samples.place, place)
    first, second = (samples.images[at] for at in place)
    return Pair(
        (path, other),
        (domain, other_domain),
        (label, other_label),
        round(similarity, 4),
        first == second,
    )


# --- whether two images show the same picture: the correlation of small grey thumbnails ----------

SIDE = 32
"""Pixels of a thumbnail in each direction."""

_LARGER = range(SIDE, SIDE + 5)
"""Sides of thumbnails of which a part is compared with a whole one, for crops and borders."""

_FLAT = 1e-3
"""Length of the centred pixels of a thumbnail without any contrast."""

Thumbnails = list[NDArray[np.float32]]


def thumbnails(image: Image.Image) -> Thumbnails:
    """Return grey thumbnails of an image with sides of 32 to 36 pixels."""
    grey = image.convert("L")
    method = Image.Resampling.BILINEAR
    return [np.asarray(grey.resize((side, side), method), np.float32) for side in _LARGER]


def correlation(first: Thumbnails, second: Thumbnails) -> float:
    """Return the largest correlation of one whole image with a part of the other.

    A part has at least 8/9 of the width and height; the whole image is also mirrored. So crops of
    up to about a tenth, narrow borders and mirrored images have a correlation near 1.
    """
    return max(_best(first, second), _best(second, first))


def _best(whole: Thumbnails, parts: Thumbnails) -> float:
    small = whole[0]
    targets = _centred(np.stack([small.ravel(), small[:, ::-1].ravel()]))
    windows = [sliding_window_view(part, (SIDE, SIDE)).reshape(-1, SIDE**2) for part in parts]
    candidates = _centred(np.concatenate(windows))
    lengths = np.linalg.norm(candidates, axis=1)[:, None] * np.linalg.norm(targets, axis=1)
    products = candidates @ targets.T
    return float(np.max(products / np.maximum(lengths, _FLAT)))


def _centred(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    means: NDArray[np.float32] = rows.mean(axis=1, keepdims=True)
    return rows - means


def correlations(pairs: Sequence[tuple[ImageFile, ImageFile]]) -> list[float | None]:
    """Return the correlation of each pair of image files; None if one cannot be read."""
    files = list(dict.fromkeys(file for pair in pairs for file in pair))
    known = dict(
        zip(files, Prefetch(_read, [(f,) for f in files], n_threads=cpu_count()), strict=True)
    )
    found: list[float | None] = []
    for first, second in pairs:
        one, other = known[first], known[second]
        found.append(None if one is None or other is None else correlation(one, other))
    return found


def _read(file: ImageFile) -> Thumbnails | None:
    try:
        return thumbnails(read(file))
    except UnreadableImageError:
        return None
