"""Weights of domains in means over held-out domains."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Real

import numpy as np
from numpy.typing import NDArray

from oodzoo._text import did_you_mean
from oodzoo.errors import InputError


def normalised_weights(
    domains: Sequence[str], weights: Mapping[str, float] | None = None
) -> NDArray[np.float64]:
    """Return the weight of each domain in order; they add up to 1.

    Parameters
    ----------
    domains : sequence of str
    weights : mapping, optional
        Weight of some domains, zero or positive; that of the others is 1. Only ratios matter.

    Examples
    --------
    >>> normalised_weights(["photo", "sketch", "cartoon"], {"sketch": 2}).tolist()
    [0.25, 0.5, 0.25]
    """
    if weights is not None and not isinstance(weights, Mapping):
        raise InputError(
            f"domain_weights must be a dict {{domain: weight}}, got {type(weights).__name__}"
        )
    weights = {} if weights is None else weights
    for name, weight in weights.items():
        if name not in domains:
            hint = did_you_mean(str(name), domains) or f"expected one of {', '.join(domains)}"
            raise InputError(f"domain_weights: unknown domain {name!r}; {hint}")
        number = isinstance(weight, Real) and not isinstance(weight, bool)
        if not number or not math.isfinite(weight) or weight < 0:
            raise InputError(
                f"the weight of domain {name!r} must be a finite number of at least 0, "
                f"got {weight!r}"
            )
    if not domains:
        raise InputError("a ranking needs images with labels, got none")
    values = np.array([float(weights.get(domain, 1.0)) for domain in domains])
    if values.max() == 0:
        raise InputError("the weights of all domains are 0; give at least one a positive weight")
    values /= values.max()  # sums of huge or tiny weights stay finite and positive
    shares: NDArray[np.float64] = values / values.sum()
    return shares
