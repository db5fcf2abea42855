"""Near-duplicate images of a feature store."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from joblib import cpu_count
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from PIL import Image

from oodzoo.core.events import Progress
from oodzoo.core.threads import Prefetch
from oodzoo.data.files import ImageFile, UnreadableImageError
from oodzoo.data.images import read
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.leaks.pairs import SAME_PIXELS, NearDuplicates, Pair, Pairs
from oodzoo.store.leaks.search import BUDGET, KEPT, Search, TopPairs, plan_pairs
from oodzoo.store.leaks.space import USELESS, FeatureSpace, Samples, choose_models, list_samples

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
    :class:`~oodzoo.store.leaks.space.Whitening`, averaged over models. Images of different domains
    are near-duplicates if it is at least :math:`\max(0.35, 10 \sigma)`, where :math:`\sigma` is
    the noise, see :class:`~oodzoo.store.leaks.space.FeatureSpace`. Images of one domain must also
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
    plan = plan_pairs(samples.strata, space.width, pairs, budget)
    search = Search(space, samples, low, threshold)
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
    samples: Samples, nearest: NDArray[np.float32], threshold: float
) -> NDArray[np.float64]:
    """Return the smallest similarity of near-duplicates of the domain of each sample."""
    limits = np.full(len(samples), threshold)
    for domain in np.unique(samples.domains):
        own = samples.domains == domain
        known = nearest[own & (nearest > -1)]
        if len(known):
            limits[own] = max(threshold, min((1 + float(np.median(known))) / 2, CEILING))
    return limits


def _verified(
    top: TopPairs,
    samples: Samples,
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


def _pair(samples: Samples, place: Sequence[int], similarity: float) -> Pair:
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
