"""The rows of a summary of a data set: what a domain contains."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, NamedTuple

from oodzoo.data.spread import Spread


class ClassCount(NamedTuple):
    """A class, and its number of images."""

    label: str
    images: int


class Extent(NamedTuple):
    """Smallest, median and largest of widths or heights, in pixels."""

    smallest: int
    median: int
    largest: int


@dataclass(frozen=True)
class DomainSummary:
    """One domain, or all domains together.

    Attributes
    ----------
    domain : str
        Its name; "all" for the sum of all domains.
    images : int
    classes : int
        Number of classes, or labels, with an image; 0 for numbers.
    fewest, most : ClassCount or None
        The classes or labels with the fewest images, at least one, and with the most.
    label_shift : float or None
        Distance of its mixture of classes from that of the other domains, in percent (see
        :mod:`oodzoo.data.summary`); None for all domains together.
    n_bytes : int or None
        Size of the files; None if it is not known.
    unreadable : int or None
        Images that cannot be read or decoded. This and what follows is None if the images have not
        been opened.
    copies : int or None
        Images that are identical to an earlier one of the same domain.
    shared : int or None
        Images that are identical to an image of another domain.
    width, height : Extent or None
        In pixels, of the images that can be decoded; None if there is none.
    greyscale : float or None
        Share of the images without colour, in percent.
    numbers : dict of str to Spread, or None
        Mean, spread and range of each number, if numbers are to be predicted.
    without_label : int or None
        Images without any label, if images can have several.
    formats, modes : dict of str to int, or None
        Number of images by file format ("JPEG") and by kind of pixels in the file ("RGB", "L"), as
        Pillow names them.
    """

    domain: str
    images: int
    classes: int
    fewest: ClassCount | None
    most: ClassCount | None
    label_shift: float | None = None
    n_bytes: int | None = None
    unreadable: int | None = None
    copies: int | None = None
    shared: int | None = None
    width: Extent | None = None
    height: Extent | None = None
    greyscale: float | None = None
    formats: dict[str, int] | None = None
    modes: dict[str, int] | None = None
    numbers: dict[str, Spread] | None = None
    without_label: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the row of a JSON document."""
        row = dataclasses.asdict(self)
        for name in ("fewest", "most", "width", "height"):
            value = getattr(self, name)
            row[name] = None if value is None else value._asdict()
        if self.numbers is not None:
            row["numbers"] = {name: spread._asdict() for name, spread in self.numbers.items()}
        return row
