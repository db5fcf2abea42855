"""Would more images, or more domains, help?

The top model without each held-out domain is evaluated again with heads that are trained on parts
of the training domains. The parts are random, have the same share of each class of each domain, and
are nested: a smaller one is within the larger ones. Everything is as for all images: the
regularisation is chosen on held-out training domains, of which only the part is known, and the head
is tested on all images of the held-out domain.

For fewer domains, the head is trained without the held-out domain and without one other domain,
each in turn, with the regularisation of the head of all training domains.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from oodzoo.combining.evaluation.rows import mean_of
from oodzoo.combining.predictions import Heads
from oodzoo.combining.statements import NOISE, is_enough
from oodzoo.core.events import tracked
from oodzoo.extraction.columns import Columns
from oodzoo.extraction.features import FeatureSource, groups_of
from oodzoo.linear.heads.kinds import PATHS, ByDomain, split_without
from oodzoo.linear.heads.samples import group_numbers

SHARES = (1 / 8, 1 / 4, 1 / 2)
"""Shares of the training images, besides all of them."""

DRAWS = 2
"""Parts of each size: the second one has the images that the first one takes last."""

_FEWER = 0.75
"""A part that is not smaller than this share of the next larger one is left out."""


@dataclass(frozen=True)
class CurvePoint:
    """Results with heads that are trained on some of the images.

    Attributes
    ----------
    images_per_class : float
        Number of training images per class, all training domains together; for other tasks than
        classes, the number of training images. Mean over held-out domains.
    average : float
        Main metric in percent, mean over the held-out domains.
    domains : dict of str to float
        By held-out domain; mean over the parts of this size.
    """

    images_per_class: float
    average: float
    domains: dict[str, float]


@dataclass(frozen=True)
class LearningCurve:
    """Main metric of the top model against the number of training images.

    Attributes
    ----------
    points : tuple of CurvePoint
        At least two, by ascending number of images; the last one is of all images.
    model : str
        The top model without each held-out domain; several are separated by commas.
    metric : str
        "accuracy", or the main metric of another task.
    """

    points: tuple[CurvePoint, ...]
    model: str
    metric: str = "accuracy"

    def __post_init__(self) -> None:
        if len(self.points) < 2:
            raise ValueError(f"a curve needs two points or more, got {len(self.points)}")

    @property
    def gain(self) -> float:
        """Points that the last step gained, about a doubling of the images."""
        return self.points[-1].average - self.points[-2].average

    @property
    def error(self) -> float:
        """Standard error of the gain between held-out domains."""
        before, after = self.points[-2].domains, self.points[-1].domains
        gains = np.array([after[domain] - before[domain] for domain in after])
        return float(gains.std(ddof=1)) / math.sqrt(len(gains)) if len(gains) > 1 else math.inf

    @property
    def helps(self) -> bool:
        """Whether more images would probably help."""
        return is_enough(self.gain) and self.gain > self.error

    @property
    def text(self) -> str:
        """Whether more images would help, in a sentence."""
        before, after = (each.images_per_class for each in self.points[-2:])
        images = "training images per class" if self.metric == "accuracy" else "training images"
        what = self.metric.replace("_", " ")
        steps = f"From {before:.0f} to {after:.0f} {images}, the {what} of the top model"
        rose = "rose" if self.gain >= 0 else "fell"
        moved = f"{steps} {rose} by {abs(self.gain):.1f} points"
        if self.helps:
            return f"{moved}: more images would probably help."
        if is_enough(self.gain):
            return f"{moved}, {NOISE}: it is unclear whether more images would help."
        return f"{moved}: more images of the same domains would hardly help."

    def to_dict(self) -> dict[str, Any]:
        """Convert to a JSON document, with the gain and the text that follow from the points."""
        document: dict[str, Any] = msgspec.to_builtins(self)
        return {"gain": self.gain, "error": self.error, "text": self.text} | document


class Part(NamedTuple):
    """A part of the training images to train heads of a model on, for some held-out domains."""

    model: str
    tests: tuple[str, ...]
    share: float
    draw: int


def parts_of(source: FeatureSource, models: Mapping[str, str]) -> list[Part]:
    """List the parts that a curve needs; `models` are the top ones without each held-out domain."""
    shares = _distinct_shares(source)
    return [
        Part(model, tuple(test for test, top in models.items() if top == model), share, draw)
        for model in dict.fromkeys(models.values())
        for share in shares
        for draw in range(DRAWS)
    ]


def learning_curve(
    source: FeatureSource,
    models: Mapping[str, str],
    heads: Mapping[str | None, Heads],
    *,
    device: str | None = None,
) -> LearningCurve | None:
    """Measure the curve; None if there are too few images to take parts of them.

    Parameters
    ----------
    source : FeatureSource
    models : dict of str to str
        The top model without each held-out domain.
    heads : dict of str or None to Heads
        For each held-out domain; those of all images are the last point of the curve.
    device : str, optional
    """
    by_share: dict[float, dict[str, list[float]]] = {}
    parts = list(parts_of(source, models))
    for part in tracked(parts, weights=[part.share for part in parts]):
        found = by_share.setdefault(part.share, {})
        for test, value in metrics_of(source, part, device=device).items():
            found.setdefault(test, []).append(value)
    if not by_share:
        return None
    points = {
        share: {test: float(np.mean(found[test])) for test in models}
        for share, found in by_share.items()
    }
    points[1.0] = {test: metric_of_all(source, heads[test], test, models[test]) for test in models}
    return LearningCurve(
        tuple(
            CurvePoint(_images(source, share), mean_of(domains), domains)
            for share, domains in sorted(points.items())
        ),
        ", ".join(dict.fromkeys(models.values())),
        source.task.metric,
    )


def metrics_of(source: FeatureSource, part: Part, *, device: str | None = None) -> dict[str, float]:
    """Main metric in percent on each held-out domain of a part; kept in a store."""

    def compute() -> dict[str, NDArray[np.float64]]:
        return {"metrics": np.array(_metrics(source, part, device))}

    settings = json.dumps([part, groups_of(source, source.domains)])
    arrays = source.cached("learning_curves", [part.model], compute, settings=settings)
    return dict(zip(part.tests, arrays["metrics"].tolist(), strict=True))


def _metrics(source: FeatureSource, part: Part, device: str | None) -> list[float]:
    task = source.task
    samples = Columns.all_of(source, [part.model]).samples(source, source.domains)
    kept, groups = _kept(source, part.share, part.draw), groups_of(source, source.domains)
    tests = [source.domains.index(test) for test in part.tests]
    splits = [split_without(task, samples, groups, test, kept) for test in tests]
    found = PATHS[task.link].predict(samples, len(source.classes), splits, device=device)
    metrics = []
    for test, split, outputs in zip(tests, splits, found, strict=True):
        setting = ByDomain.of(samples, split, outputs).best_setting(task)
        rows = samples.domains == test
        predicted = outputs.rest[setting][rows[~split.training]]
        metrics.append(percent(source, predicted, samples.labels[rows]))
    return metrics


def metric_of_all(source: FeatureSource, heads: Heads, test: str, model: str) -> float:
    """Main metric in percent on a held-out domain, of a head that is trained on all images."""
    outputs = heads.alone[model].test
    if outputs is None:
        raise ValueError("the heads have no predictions for a held-out domain")
    return percent(source, outputs, source.labels(test))


def percent(source: FeatureSource, outputs: NDArray[Any], labels: NDArray[Any]) -> float:
    """Main metric in percent of the outputs (n, C) of a head."""
    return 100 * source.task.score(outputs, labels)


def _kept(source: FeatureSource, share: float, draw: int) -> NDArray[np.bool_]:
    """Which samples of all domains are in a part."""
    return np.concatenate([places(source, domain, draw) < share for domain in source.domains])


def places(source: FeatureSource, domain: str, draw: int) -> NDArray[np.float64]:
    """The place of each sample in the random order of its stratum in a domain, from 0 up to 1.

    The samples below a share are a part of about that share, at least one of each stratum. Samples
    of a group are next to each other.
    """
    labels = source.labels(domain)
    rng = np.random.default_rng([len(labels), source.domains.index(domain)])
    numbers = group_numbers(source.groups(domain), len(labels))
    if numbers is None:
        numbers = np.arange(len(labels))
    order = rng.permutation(int(numbers.max()) + 1)[numbers]
    if draw % 2:
        order = -order
    found = np.empty(len(labels))
    kinds = source.task.strata(labels)
    for stratum in np.unique(kinds):
        rows = np.flatnonzero(kinds == stratum)
        rows = rows[np.argsort(order[rows], kind="stable")]
        found[rows] = np.arange(len(rows)) / len(rows)
    return found


def _images(source: FeatureSource, share: float) -> float:
    """Training images of a part, per class if there are any; mean over held-out domains."""
    sizes = {d: int((places(source, d, 0) < share).sum()) for d in source.domains}
    found = []
    for test in source.domains:
        others = [domain for domain in source.domains if domain != test]
        n = sum(sizes[domain] for domain in others)
        n_classes = len(source.only(others).classes) if source.task.one_class else 1
        found.append(n / n_classes)
    return float(np.mean(found))


def _distinct_shares(source: FeatureSource) -> list[float]:
    """The shares whose parts are clearly smaller than the next larger ones."""
    larger, shares = _images(source, 1.0), []
    for share in sorted(SHARES, reverse=True):
        images = _images(source, share)
        if images <= _FEWER * larger:
            larger = images
            shares.append(share)
    return shares[::-1]


@dataclass(frozen=True)
class FewerDomains:
    """Main metric in percent with one training domain fewer, and with all.

    Attributes
    ----------
    training : int
        Number of training domains, all but the held-out domain.
    fewer, all : dict of str to float
        By held-out domain; `fewer` is the mean over the domains that are left out.
    """

    training: int
    fewer: dict[str, float]
    all: dict[str, float]

    @property
    def gains(self) -> list[float]:
        """Points that the last domain gained on each held-out domain."""
        return [value - self.fewer[test] for test, value in self.all.items()]

    @property
    def gain(self) -> float:
        """Points that the last domain gained, mean over the held-out domains."""
        return float(np.mean(self.gains))

    @property
    def error(self) -> float:
        """Standard error of the gain between held-out domains."""
        return float(np.std(self.gains, ddof=1)) / math.sqrt(len(self.gains))

    @property
    def helps(self) -> bool:
        """Whether a further domain would probably help."""
        return is_enough(self.gain) and self.gain > self.error


def with_fewer_domains(
    source: FeatureSource,
    models: Mapping[str, str],
    heads: Mapping[str | None, Heads],
    *,
    device: str | None = None,
) -> FewerDomains:
    """Measure the top model without each held-out domain; parameters as for a learning curve."""
    fewer: dict[str, float] = {}
    for model in tracked(list(dict.fromkeys(models.values()))):
        settings = {
            test: heads[test].alone[model].setting for test, top in models.items() if top == model
        }
        fewer |= metrics_without_one(source, model, settings, device=device)
    return FewerDomains(
        len(source.domains) - 1,
        {test: fewer[test] for test in models},
        {test: metric_of_all(source, heads[test], test, model) for test, model in models.items()},
    )


def metrics_without_one(
    source: FeatureSource, model: str, settings: Mapping[str, int], *, device: str | None = None
) -> dict[str, float]:
    """Main metric in percent on held-out domains with one training domain fewer; kept in a store.

    `settings` has the position of the regularisation for each held-out domain.
    """

    def compute() -> dict[str, NDArray[np.float64]]:
        samples = Columns.all_of(source, [model]).samples(source, source.domains)
        numbers = {test: source.domains.index(test) for test in settings}
        every = range(len(source.domains))
        pairs = [p for p in combinations(every, 2) if set(p) & set(numbers.values())]
        found = PATHS[source.task.link].left_out(
            samples, len(source.classes), [set(pair) for pair in pairs], device=device
        )
        metrics: dict[str, list[float]] = {test: [] for test in settings}
        for pair, path in zip(pairs, found, strict=True):
            both = samples.domains[np.isin(samples.domains, pair)]
            for test, number in numbers.items():
                if number in pair:
                    outputs = path[settings[test]][both == number]
                    metrics[test].append(percent(source, outputs, source.labels(test)))
        return {"metrics": np.array([np.mean(metrics[test]) for test in settings])}

    arrays = source.cached("fewer_domains", [model], compute, settings=json.dumps(settings))
    return dict(zip(settings, arrays["metrics"].tolist(), strict=True))
