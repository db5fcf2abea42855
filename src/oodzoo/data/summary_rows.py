"""The rows of a summary of a data set, and their table.

The *overlap* of the numbers of a domain is the share of its values, in percent, between the 5th and
the 95th percentile of the values of the other domains: about 90 if the domains have the same
values, 0 if they have none in common.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oodzoo.core.text import file_size
from oodzoo.data.listing import Sample
from oodzoo.tasks import CLASSIFICATION, Task

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


_Cell = Callable[[DomainSummary], str]


MOST_NUMBERS = 4
"""Numbers to predict that the table of a data set shows."""


def columns_and_rows(
    rows: Sequence[DomainSummary], names: Sequence[str], task: Task = CLASSIFICATION
) -> tuple[list[str], list[list[str]]]:
    """Return the names of the columns, and the cells of each row; empty columns are left out.

    `names` are those of the classes, labels or numbers.
    """
    plural, noun = ("classes", "class") if task.is_classification else ("labels", "label")
    outputs: dict[str, _Cell] = {
        plural: lambda row: f"{row.classes}/{len(names)}",
        f"per {noun}": _per_class,
        "no label": lambda row: _number(row.without_label),
    }
    if task.kind == "regression":
        outputs = {}
        for name in names[:MOST_NUMBERS]:
            outputs[name] = partial(_mean, name)
            outputs[f"{name} range"] = partial(_range, name)
    cells: dict[str, _Cell] = {
        "domain": lambda row: row.domain,
        "images": lambda row: f"{row.images:,}",
        **outputs,
        "shift": lambda row: _percent(row.label_shift),
        "unreadable": lambda row: _number(row.unreadable),
        "copies": lambda row: _number(row.copies),
        "shared": lambda row: _number(row.shared),
        "size": _size,
        "sides": _sides,
        "grey": lambda row: _percent(row.greyscale) if row.greyscale else "",
        "bytes": lambda row: "" if row.n_bytes is None else file_size(row.n_bytes),
    }
    table = {name: [cell(row) for row in rows] for name, cell in cells.items()}
    shown = {name: column for name, column in table.items() if any(column)}
    return list(shown), [list(row) for row in zip(*shown.values(), strict=True)]


def _per_class(row: DomainSummary) -> str:
    return _span(row.fewest.images, row.most.images) if row.fewest and row.most else "0"


def _mean(name: str, row: DomainSummary) -> str:
    """Mean and standard deviation of a number."""
    spread = (row.numbers or {})[name]
    return f"{spread.mean:.3g} ± {spread.deviation:.3g}"


def _range(name: str, row: DomainSummary) -> str:
    spread = (row.numbers or {})[name]
    return f"{spread.smallest:.3g} to {spread.largest:.3g}"


def _span(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"


def _number(n: int | None) -> str:
    return f"{n:,}" if n else ""


def _percent(value: float | None) -> str:
    if value is None:
        return ""
    return "<1 %" if 0 < value < 0.5 else f"{value:.0f} %"


def _size(row: DomainSummary) -> str:
    """Median width and height."""
    return f"{row.width.median}×{row.height.median}" if row.width and row.height else ""


def _sides(row: DomainSummary) -> str:
    """The shortest and the longest side of an image; nothing if all have the same size."""
    if row.width is None or row.height is None:
        return ""
    if row.width.smallest == row.width.largest and row.height.smallest == row.height.largest:
        return ""
    shortest = min(row.width.smallest, row.height.smallest)
    return f"{shortest}–{max(row.width.largest, row.height.largest)}"
