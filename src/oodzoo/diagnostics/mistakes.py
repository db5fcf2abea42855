"""Images of which the class was predicted wrongly."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

MOST = 12
"""Number of mistakes that are listed."""


@dataclass(frozen=True)
class Mistake:
    """An image whose class was predicted wrongly.

    Attributes
    ----------
    path, domain : str
        As in the data.
    label, predicted : str
        Its class, and the one predicted.
    confidence : float
        Probability of the predicted class, in percent.
    """

    path: str
    domain: str
    label: str
    predicted: str
    confidence: float

    @property
    def key(self) -> str:
        """Name of the image that no other has: a path occurs once in a domain."""
        return f"{self.domain}: {self.path}"


def most_confident(mistakes: Iterable[Mistake], most: int = MOST) -> tuple[Mistake, ...]:
    """Return the mistakes of the highest confidence; equal ones in the order given."""
    return tuple(sorted(mistakes, key=lambda each: -each.confidence)[:most])
