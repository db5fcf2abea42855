r"""What a data set contains: classes, sizes, unreadable and identical images of each domain.

The *label shift* of a domain says how far its mixture of classes is from that of the other domains
together. It is their total variation distance, in percent,

.. math:: 50 \sum_c \left| \frac{n_{dc}}{n_d} - \frac{N_c - n_{dc}}{N - n_d} \right|,

where :math:`n_{dc}` is the number of images of class c in domain d, and sums over domains and
classes are :math:`N_c, n_d, N`. That share of its images would need another class for the mixtures
to be equal: 0 if they are, 100 if the domain has no class in common with the others. Where images
can have several labels, it is the mean over the labels of the difference of the shares of images
that have the label; numbers have none, see
:func:`spreads`.

The *overlap* of the numbers of a domain is the share of its values, in percent, between the 5th and
the 95th percentile of the values of the other domains: about 90 if the domains have the same
values, 0 if they have none in common.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oodzoo.core.events import Progress
from oodzoo.core.packages import optional_package
from oodzoo.core.tables import Table
from oodzoo.core.text import count, file_size
from oodzoo.data.files import ImageFile
from oodzoo.data.issues import (
    SMALL_SIDE,
    Spread,
    constant_numbers,
    different_mixtures,
    different_ranges,
    different_sizes,
    find_identical,
    identical_images,
    listed,
    missing_classes,
    missing_labels,
    shared_groups,
    similar_classes,
    small_images,
    unreadable_images,
)
from oodzoo.data.listing import Hashes, Issue, Sample, read_contents
from oodzoo.tasks import CLASSIFICATION, Task

if TYPE_CHECKING:
    import pandas


Floats = NDArray[np.float64]


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


@dataclass(frozen=True)
class Summary:
    """What a data set contains, and its problems; as a string, a table.

    Attributes
    ----------
    domains : tuple of DomainSummary
    total : DomainSummary
        All domains together.
    counts : dict of str to dict
        Number of images by domain and class, or by domain and label.
    groups : int
        Number of groups.
    issues : tuple of Issue
        One for each kind of problem.
    unreadable : dict of str to str, or None
        Why images cannot be read or decoded, by path. None if the images have not been opened.
    identical : tuple of tuple of str, or None
        The paths of images that are identical, for each such set of images.
    task : Task
        What is predicted.
    """

    domains: tuple[DomainSummary, ...]
    total: DomainSummary
    counts: dict[str, dict[str, int]]
    groups: int
    issues: tuple[Issue, ...]
    unreadable: dict[str, str] | None = None
    identical: tuple[tuple[str, ...], ...] | None = None
    task: Task = CLASSIFICATION

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes, or the names of the labels or numbers."""
        return tuple(next(iter(self.counts.values())))

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Return the columns and rows of a table, as text; the last row is for all domains.

        Columns that are not known, and those of problems that do not occur, are left out.
        """
        return columns_and_rows((*self.domains, self.total), self.classes, self.task)

    def __str__(self) -> str:
        return Table.of(*self.table()).text()

    def __repr__(self) -> str:
        domains = count(len(self.domains), "domain")
        problems = count(len(self.issues), "problem")
        return f"Summary({count(self.total.images, 'image')}, {domains}, {problems})"

    def _repr_html_(self) -> str:
        return Table.of(*self.table(), notes=[str(issue) for issue in self.issues]).html()

    def to_dict(self) -> dict[str, Any]:
        """Return the summary as a JSON document."""
        identical = None if self.identical is None else [list(same) for same in self.identical]
        return {
            "images": self.total.images,
            "task": self.task.kind,
            "domains": list(self.counts),
            "classes": list(self.classes),
            "counts": self.counts,
            "groups": self.groups,
            "summary": [domain.to_dict() for domain in self.domains],
            "total": self.total.to_dict(),
            "unreadable": self.unreadable,
            "identical": identical,
            "warnings": [dataclasses.asdict(issue) for issue in self.issues],
        }

    def to_frame(self) -> pandas.DataFrame:
        """Return a table with one row per domain."""
        pandas = optional_package("pandas", extra="pandas", purpose="a data frame")
        return pandas.DataFrame([dataclasses.asdict(domain) for domain in self.domains])


# --- label shift ----------------------------------------------------------------------------------


def label_shift(counts: NDArray[np.integer]) -> NDArray[np.float64]:
    """Compute the label shift (n_domains,), in percent, of counts (n_domains, n_classes).

    Examples
    --------
    >>> label_shift(np.array([[10, 10], [20, 20], [40, 0]])).round(1).tolist()
    [25.0, 33.3, 50.0]
    """
    others = counts.sum(axis=0) - counts
    mixture, theirs = (part / part.sum(axis=1, keepdims=True) for part in (counts, others))
    shift: NDArray[np.float64] = 50 * np.abs(mixture - theirs).sum(axis=1)
    return shift


def shift_of_labels(
    counts: NDArray[np.integer], sizes: NDArray[np.integer]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    r"""Compute the label shift (n_domains,) of several labels, and that to expect by chance.

    Parameters
    ----------
    counts : array (n_domains, n_labels)
        Images of each domain that have a label.
    sizes : array (n_domains,)
        Images of each domain.

    Examples
    --------
    >>> shift, _ = shift_of_labels(np.array([[5, 0], [10, 10]]), np.array([10, 10]))
    >>> shift.tolist()
    [75.0, 75.0]
    """
    n = sizes[:, None]
    others = n.sum() - n
    shift: NDArray[np.float64] = 100 * np.abs(
        counts / n - (counts.sum(axis=0) - counts) / others
    ).mean(axis=1)
    q = counts.sum(axis=0) / n.sum()
    deviation = np.sqrt(q * (1 - q) * (1 / n + 1 / others))
    by_chance: NDArray[np.float64] = 100 * np.sqrt(2 / np.pi) * deviation.mean(axis=1)
    return shift, by_chance


def label_shift_by_chance(counts: NDArray[np.integer]) -> NDArray[np.float64]:
    r"""Approximate the label shift to expect of images that are drawn from one mixture q.

    The difference of two shares of a class is then about normal with the variance
    :math:`q_c (1 - q_c) (1/n_d + 1/(N - n_d))`, whose mean distance from 0 is
    :math:`\sqrt{2/\pi}` standard deviations.
    """
    total = counts.sum(axis=0)
    q = total / total.sum()
    n = counts.sum(axis=1, keepdims=True)
    deviation = np.sqrt(q * (1 - q) * (1 / n + 1 / (total.sum() - n)))
    by_chance: NDArray[np.float64] = 50 * np.sqrt(2 / np.pi) * deviation.sum(axis=1)
    return by_chance


def summarise(
    samples: Sequence[Sample],
    files: Sequence[ImageFile],
    counts: dict[str, dict[str, int]],
    inspection: Inspection | None = None,
    listing_issues: Iterable[Issue] = (),
    task: Task = CLASSIFICATION,
) -> Summary:
    """Summarise a data set; without an inspection, what shows without opening an image.

    Parameters
    ----------
    samples : sequence of Sample
        Sorted by domain.
    files : sequence of ImageFile
        Where the bytes of each sample are.
    counts : dict of str to dict
        Number of images by domain and class or label, zeros included.
    inspection : Inspection, optional
        Of these files.
    listing_issues : iterable of Issue
        What the source has found.
    task : Task
    """
    table = np.array([list(row.values()) for row in counts.values()])
    of_domain = Counter(sample.domain for sample in samples)
    sizes = np.array([of_domain[name] for name in counts])
    shifts, by_chance = _shifts(task, table, sizes, list(counts))
    opened = None if inspection is None else _Opened.of(samples, inspection)
    n_bytes = _listed_bytes(files) if inspection is None else inspection.n_bytes
    ends = [0, *np.cumsum(sizes).tolist()]
    parts = {name: slice(*ends[at : at + 2]) for at, name in enumerate(counts)}
    domains = tuple(
        replace(_describe(name, counts[name], part, n_bytes, opened), label_shift=shifts.get(name))
        for name, part in parts.items()
    )
    labels = next(iter(counts.values()))
    summed = dict(zip(labels, table.sum(axis=0).tolist(), strict=True))
    total = _describe("all", summed, slice(0, len(samples)), n_bytes, opened)
    domains, total = _with_labels(task, samples, parts, domains, total)
    issues = [
        *listed(listing_issues),
        *([] if opened is None else _issues_of_images(samples, domains, parts, opened)),
        *shared_groups(samples),
        *_issues_of_labels(task, counts, domains, shifts, by_chance),
    ]
    return Summary(
        domains,
        total,
        counts,
        len({s.group for s in samples} - {None}),
        tuple(issues),
        None if opened is None else opened.problems(samples),
        None
        if opened is None
        else tuple(tuple(samples[at].path for at in same) for same in opened.identical),
        task,
    )


def _shifts(
    task: Task, table: NDArray[np.int64], sizes: NDArray[np.int64], domains: Sequence[str]
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the label shift of each domain, and that by chance; of one domain, none."""
    if len(domains) < 2 or not task.has_probabilities:
        return {}, {}
    if not task.one_class:
        shift, by_chance = shift_of_labels(table, sizes)
    else:
        shift, by_chance = label_shift(table), label_shift_by_chance(table)
    return (
        dict(zip(domains, shift.tolist(), strict=True)),
        dict(zip(domains, by_chance.tolist(), strict=True)),
    )


def _with_labels(
    task: Task,
    samples: Sequence[Sample],
    parts: Mapping[str, slice],
    domains: tuple[DomainSummary, ...],
    total: DomainSummary,
) -> tuple[tuple[DomainSummary, ...], DomainSummary]:
    """Add what there is to say about numbers, or about several labels."""
    if not task.has_probabilities:
        by_domain, together = spreads(task, samples, parts)
        domains = tuple(_with_numbers(domain, by_domain[domain.domain]) for domain in domains)
        return domains, _with_numbers(total, together)
    if not task.one_class:
        empty = task.encode([])
        n = {name: sum(s.label == empty for s in samples[part]) for name, part in parts.items()}
        domains = tuple(replace(d, without_label=n[d.domain]) for d in domains)
        return domains, replace(total, without_label=sum(n.values()))
    return domains, total


def _with_numbers(row: DomainSummary, numbers: dict[str, Spread]) -> DomainSummary:
    return replace(row, classes=0, fewest=None, most=None, numbers=numbers)


def _issues_of_labels(
    task: Task,
    counts: Mapping[str, Mapping[str, int]],
    domains: Sequence[DomainSummary],
    shifts: Mapping[str, float],
    by_chance: Mapping[str, float],
) -> Iterator[Issue]:
    if not task.has_probabilities:
        numbers = {row.domain: row.numbers or {} for row in domains}
        yield from constant_numbers(numbers)
        yield from different_ranges(numbers)
        return
    several = {d.domain: shifts[d.domain] for d in domains if d.classes > 1 and shifts}
    if not task.one_class:
        yield from missing_labels(counts)
    else:
        yield from similar_classes(counts)
        yield from missing_classes(counts)
    yield from different_mixtures(several, by_chance, task)


def _listed_bytes(files: Sequence[ImageFile]) -> NDArray[np.int64] | None:
    """Return the sizes of remote files from their listing; None if some are local or unknown."""
    sizes = [None if file.remote is None else file.size() for file in files]
    known = [size for size in sizes if size is not None]
    return np.array(known, np.int64) if len(known) == len(sizes) else None


class _Opened(NamedTuple):
    """What shows when images are opened."""

    inspection: Inspection
    identical: list[tuple[int, ...]]
    is_copy: NDArray[np.bool_]
    is_shared: NDArray[np.bool_]

    @classmethod
    def of(cls, samples: Sequence[Sample], inspection: Inspection) -> _Opened:
        digests = list(inspection.digests)
        for at in inspection.problems:  # all empty files are identical
            digests[at] = None
        identical = find_identical(digests)
        is_copy, is_shared = np.zeros((2, len(samples)), np.bool_)
        for positions in identical:
            seen: set[str] = set()
            for at in positions:
                is_copy[at] = samples[at].domain in seen
                seen.add(samples[at].domain)
            is_shared[list(positions)] = len(seen) > 1
        return cls(inspection, identical, is_copy, is_shared)

    def problems(self, samples: Sequence[Sample]) -> dict[str, str]:
        return {samples[at].path: why for at, why in self.inspection.problems.items()}


def _describe(
    name: str,
    classes: Mapping[str, int],
    part: slice,
    n_bytes: NDArray[np.int64] | None,
    opened: _Opened | None,
) -> DomainSummary:
    present = [ClassCount(label, n) for label, n in classes.items() if n]
    row = DomainSummary(
        domain=name,
        images=part.stop - part.start,
        classes=len(present),
        fewest=min(present, key=lambda each: each.images, default=None),
        most=max(present, key=lambda each: each.images, default=None),
        n_bytes=None if n_bytes is None else int(n_bytes[part].sum()),
    )
    if opened is None:
        return row
    found = opened.inspection
    decoded = found.width[part] > 0
    kinds = Counter(found.kind[part][decoded].tolist())
    formats, modes = Counter[str](), Counter[str]()
    for number, n in kinds.items():
        formats[found.kinds[number][0]] += n
        modes[found.kinds[number][1]] += n
    return replace(
        row,
        unreadable=int((~decoded).sum()),
        copies=int(opened.is_copy[part].sum()),
        shared=int(opened.is_shared[part].sum()),
        width=_extent(found.width[part][decoded]),
        height=_extent(found.height[part][decoded]),
        greyscale=100 * float(found.is_grey[part][decoded].mean()) if decoded.any() else None,
        formats=dict(formats.most_common()),
        modes=dict(modes.most_common()),
    )


def _extent(sides: NDArray[np.int32]) -> Extent | None:
    if not len(sides):
        return None
    return Extent(int(sides.min()), round(float(np.median(sides))), int(sides.max()))


def _issues_of_images(
    samples: Sequence[Sample],
    domains: Iterable[DomainSummary],
    parts: Mapping[str, slice],
    opened: _Opened,
) -> Iterator[Issue]:
    yield from unreadable_images(opened.problems(samples))
    yield from identical_images(samples, opened.identical)
    small: list[str] = []
    for part in parts.values():
        side = np.minimum(opened.inspection.width[part], opened.inspection.height[part])
        decoded = side[side > 0]
        if len(decoded) and np.median(decoded) >= 2 * SMALL_SIDE:
            found = np.flatnonzero((side > 0) & (side < SMALL_SIDE)) + part.start
            small += [samples[at].path for at in found]
    yield from small_images(small)
    yield from different_sizes(
        {d.domain: (d.width.median, d.height.median) for d in domains if d.width and d.height}
    )


# --- what shows when images are opened ------------------------------------------------------------


@dataclass(frozen=True)
class Inspection:
    """Digests, problems and facts of images, in order; about 20 bytes for the facts of an image.

    Attributes
    ----------
    digests : tuple of str or None
        SHA-256 of each file; None if it cannot be read.
    problems : dict of int to str
        Why an image cannot be read or decoded, by its position.
    n_bytes : array (n,)
        Size of each file; 0 if it cannot be read.
    width, height : array (n,)
        Pixels of the upright image; 0 if it cannot be decoded.
    is_grey : array (n,)
    kinds : tuple of (str, str)
        Format and mode, by the numbers in `kind`.
    kind : array (n,)
    """

    digests: tuple[str | None, ...]
    problems: dict[int, str]
    n_bytes: NDArray[np.int64]
    width: NDArray[np.int32]
    height: NDArray[np.int32]
    is_grey: NDArray[np.bool_]
    kinds: tuple[tuple[str, str], ...]
    kind: NDArray[np.int16]

    def hashes(self, paths: Sequence[str]) -> Hashes:
        """Return the digests, and why those without a digest cannot be read, by path."""
        unread = {
            paths[at]: problem for at, problem in self.problems.items() if self.digests[at] is None
        }
        return Hashes(self.digests, unread)


def inspect_images(files: Sequence[ImageFile], progress: Progress | None = None) -> Inspection:
    """Read, hash and decode images in threads."""
    n = len(files)
    digests: list[str | None] = []
    problems: dict[int, str] = {}
    kinds: dict[tuple[str, str], int] = {}
    n_bytes = np.zeros(n, np.int64)
    width, height = np.zeros(n, np.int32), np.zeros(n, np.int32)
    is_grey = np.zeros(n, np.bool_)
    kind = np.zeros(n, np.int16)
    with closing(read_contents(files, decode=True, progress=progress)) as contents:
        for at, content in enumerate(contents):
            digests.append(content.digest)
            n_bytes[at] = content.n_bytes or 0
            if content.problem is not None:
                problems[at] = content.problem
            if (facts := content.facts) is not None:
                width[at], height[at], is_grey[at] = facts.width, facts.height, facts.is_grey
                kind[at] = kinds.setdefault((facts.format, facts.mode), len(kinds))
    return Inspection(tuple(digests), problems, n_bytes, width, height, is_grey, tuple(kinds), kind)


# --- the table ------------------------------------------------------------------------------------

_Cell = Callable[[DomainSummary], str]


MOST_NUMBERS = 4
"""Numbers to predict that the table of a data set shows."""


def columns_and_rows(
    rows: Sequence[DomainSummary], names: Sequence[str], task: Task = CLASSIFICATION
) -> tuple[list[str], list[list[str]]]:
    """Return the names of the columns, and the cells of each row; empty columns are left out.

    `names` are those of the classes, labels or numbers.
    """
    plural, noun = ("classes", "class") if task.one_class else ("labels", "label")
    outputs: dict[str, _Cell] = {
        plural: lambda row: f"{row.classes}/{len(names)}",
        f"per {noun}": _per_class,
        "no label": lambda row: _number(row.without_label),
    }
    if not task.has_probabilities:
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
