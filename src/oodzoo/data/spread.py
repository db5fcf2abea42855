"""Numbers to predict in each domain: mean, spread, range, and the overlap with other domains.

The *overlap* of a domain is the share of its values, in percent, between the 5th and the 95th
percentile of the values of the other domains: about 90 if the domains have the same values, 0 if
they have none in common.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from oodzoo.data.listing import Sample
from oodzoo.task import Task

Floats = NDArray[np.float64]


class Spread(NamedTuple):
    """Mean, standard deviation, smallest and largest of the values of a domain, and its overlap.

    The overlap is None for all domains together.
    """

    mean: float
    deviation: float
    smallest: float
    largest: float
    overlap: float | None = None


def spreads(
    task: Task, samples: Sequence[Sample], parts: Mapping[str, slice]
) -> tuple[dict[str, dict[str, Spread]], dict[str, Spread]]:
    """Return the spread of each number by domain, and in all domains together.

    Parameters
    ----------
    task : Task
    samples : sequence of Sample
    parts : dict of str to slice
        The samples of each domain.
    """
    values = task.decode([sample.label for sample in samples])
    by_domain: dict[str, dict[str, Spread]] = {}
    for domain, part in parts.items():
        others = np.delete(values, part, axis=0)
        by_domain[domain] = {
            name: _spread(values[part, at])._replace(
                overlap=overlap(values[part, at], others[:, at])
            )
            for at, name in enumerate(task.outputs)
        }
    return by_domain, {name: _spread(values[:, at]) for at, name in enumerate(task.outputs)}


def overlap(values: Floats, others: Floats) -> float | None:
    """Compute the overlap of a domain with the other domains, in percent; None without others.

    Examples
    --------
    >>> overlap(np.array([1.0, 2, 3, 50]), np.arange(11.0))
    75.0
    """
    if not len(others):
        return None
    low, high = np.quantile(others, [0.05, 0.95])
    return 100 * float(((values >= low) & (values <= high)).mean())


def _spread(values: Floats) -> Spread:
    return Spread(
        float(values.mean()), float(values.std()), float(values.min()), float(values.max())
    )
