"""Class mixtures as the documentation of label shift writes them, image by image."""

from __future__ import annotations

from collections.abc import Sequence

Image = tuple[str, str]
"""(domain, class)"""


def share(images: Sequence[Image], label: str) -> float:
    return sum(1 for _, given in images if given == label) / len(images)


def label_shift(images: Sequence[Image], domain: str) -> float:
    """Total variation distance of the classes of a domain and of all others, in percent."""
    here = [image for image in images if image[0] == domain]
    others = [image for image in images if image[0] != domain]
    labels = {label for _, label in images}
    return 100 * sum(abs(share(here, c) - share(others, c)) for c in labels) / 2
