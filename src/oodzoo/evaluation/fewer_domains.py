"""Accuracy on a test domain with one training domain fewer: would more domains help?

The head of the top model is trained without the test domain and without one other domain, each in
turn. Its regularisation is that of the head trained on all training domains, which was chosen
without the test domain.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from oodzoo.combination.heads import Heads
from oodzoo.evaluation.learning_curve import is_enough, metric_of_all, percent
from oodzoo.features.columns import Columns
from oodzoo.features.source import FeatureSource
from oodzoo.heads.kinds import PATHS


@dataclass(frozen=True)
class FewerDomains:
    """Main metric in percent with one training domain fewer, and with all.

    Attributes
    ----------
    training : int
        Number of training domains, all but the test domain.
    fewer, all : dict of str to float
        By test domain; `fewer` is the mean over the domains that are left out.
    """

    training: int
    fewer: dict[str, float]
    all: dict[str, float]

    @property
    def gains(self) -> list[float]:
        """Points that the last domain gained on each test domain."""
        return [value - self.fewer[test] for test, value in self.all.items()]

    @property
    def gain(self) -> float:
        """Points that the last domain gained, mean over the test domains."""
        return float(np.mean(self.gains))

    @property
    def error(self) -> float:
        """Standard error of the gain between test domains."""
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
    """Measure the top model without each test domain; parameters as for a learning curve."""
    fewer: dict[str, float] = {}
    for model in dict.fromkeys(models.values()):
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
    """Main metric in percent on test domains with one training domain fewer; kept in a store.

    `settings` has the position of the regularisation for each test domain.
    """

    def compute() -> dict[str, NDArray[np.float64]]:
        samples = Columns.all_of(source, [model]).samples(source, source.domains)
        numbers = {test: source.domains.index(test) for test in settings}
        every = range(len(source.domains))
        pairs = [p for p in combinations(every, 2) if set(p) & set(numbers.values())]
        found = PATHS[source.task.kind].left_out(
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
