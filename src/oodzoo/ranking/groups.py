"""Groups of samples that occur in several domains.

A group (a patient, a video) that occurs in several domains must not be trained on when one of these
domains is held out: its samples resemble each other for reasons that do not carry over.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from oodzoo.features.source import FeatureSource
from oodzoo.moments import Moments

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
