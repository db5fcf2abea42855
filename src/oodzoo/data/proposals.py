r"""Domains proposed by further columns of a table: camera, site, hospital, date.

A column is cut into *values*: itself, or for dates the year, the quarter, the month or four periods
with equally many images. Values with fewer than 20 images, or with images of a single class, are
put together. A column can be used if 2 to 20 values remain, and if these have on average at least
half of the classes. Columns that can be used are sorted by

.. math:: \text{classes} \cdot \text{evenness} \cdot \text{separability},

where *classes* is the mean share of the classes that a value has, and *evenness* is the entropy of
the numbers of images divided by its maximum, :math:`-\sum_v p_v \log p_v / \log k`. *Separability*,
known only with features, is how much better than chance a linear model tells the values of images
that it has not seen (:mod:`oodzoo.ranking.clusters`).
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from typing import Any, NamedTuple

from oodzoo.core.errors import InputError
from oodzoo.core.text import count, did_you_mean, printable
from oodzoo.data.listing import Listing
from oodzoo.data.sources.column_roles import ONE_DOMAIN
from oodzoo.tasks import Task

MIN_IMAGES = 20
MAX_DOMAINS = 20
MIN_CLASSES = 0.5
"""Smallest mean share of the classes."""

OTHER = "other"
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Candidate:
    """Domains proposed by a column, or the reason why there are none.

    Attributes
    ----------
    name : str
        The column, with the period of dates: "camera", "date:year".
    assignment : tuple of str
        The domain of each sample; empty if the column cannot be used.
    values : int
        Number of different values of the column.
    domains : dict of str to int
        Number of images of each proposed domain.
    classes : float
        Mean share of the classes that a domain has.
    evenness : float
        Entropy of the numbers of images, divided by its maximum.
    missing : int
        Images without a value.
    reason : str
        Why the column cannot be used; empty if it can.
    separability : float or None
        How well features tell the domains apart, from 0 (chance) to 1; None without features.
    kind : str
        "column"; proposals of another kind (clusters) come from :mod:`oodzoo.ranking.proposing`.
    """

    name: str
    assignment: tuple[str, ...] = field(default=(), repr=False)
    values: int = 0
    domains: dict[str, int] = field(default_factory=dict)
    classes: float = 0.0
    evenness: float = 0.0
    missing: int = 0
    reason: str = ""
    separability: float | None = None
    kind: str = "column"

    @property
    def score(self) -> float:
        """What candidates are sorted by, higher is better; 0 if the column cannot be used."""
        known = 1.0 if self.separability is None else self.separability
        return 0.0 if self.reason else self.classes * self.evenness * known

    def to_dict(self) -> dict[str, Any]:
        """Return the candidate as a JSON document, without the domain of each sample."""
        return {
            "name": self.name,
            "kind": self.kind,
            "usable": not self.reason,
            "reason": self.reason or None,
            "values": self.values,
            "domains": self.domains,
            "classes": self.classes,
            "evenness": self.evenness,
            "separability": self.separability,
            "missing": self.missing,
            "score": self.score,
        }


def as_table(
    found: Sequence[Candidate], chosen: str | None, mark: str
) -> tuple[list[str], list[list[str]]]:
    """Return the columns and rows of a table of those that can be used; the chosen one is marked.

    What nothing is known of is left out: separability without features, and missing values if there
    are none.
    """
    header = ["proposal", "domains", "smallest", "classes", "evenness", "separable", "missing", ""]
    usable = [each for each in found if not each.reason]
    rows = [_cells(each, mark if each.name == chosen else "") for each in usable]
    unknown = {
        "separable": all(each.separability is None for each in usable),
        "missing": not any(each.missing for each in usable),
    }
    kept = [at for at, name in enumerate(header) if not unknown.get(name, False)]
    return [header[at] for at in kept], [[row[at] for at in kept] for row in rows]


def reasons(found: Sequence[Candidate]) -> list[str]:
    """Return a line for each column that cannot be used."""
    return [f"{each.name} cannot be used: {each.reason}." for each in found if each.reason]


def _cells(each: Candidate, mark: str) -> list[str]:
    return [
        each.name,
        str(len(each.domains)),
        f"{min(each.domains.values()):,}",
        f"{100 * each.classes:.0f} %",
        f"{each.evenness:.2f}",
        "-" if each.separability is None else f"{each.separability:.2f}",
        f"{each.missing:,}",
        mark,
    ]


def candidates(
    metadata: Mapping[str, Sequence[str | None]], labels: Sequence[Collection[str]]
) -> list[Candidate]:
    """Return the candidates of all columns, the best first, and those that cannot be used last.

    Parameters
    ----------
    metadata : dict of str to sequence
        Columns; None for a missing value.
    labels : sequence of collections of str
        The labels of each sample; none if the target is numeric.
    """
    found = [each for column in metadata for each in of_column(column, metadata[column], labels)]
    return in_order(_without_copies(found))


def in_order(found: Sequence[Candidate]) -> list[Candidate]:
    """Sort candidates by score, rounded to one decimal.

    Among equals, columns whose name says so (camera, site) come first, then those with more
    domains, of which at most six count.
    """
    return sorted(
        found,
        key=lambda each: (
            bool(each.reason),
            -round(each.score, 1),
            not _NAMES.search(each.name.partition(":")[0].lower()),
            -min(len(each.domains), 6),
            -each.score,
        ),
    )


_NAMES = re.compile(
    "camera|site|hospital|clinic|location|place|device|scanner|sensor|station|source|region|city"
    "|country|lab$|cent(er|re)"
)


def of_column(
    column: str, values: Sequence[str | None], labels: Sequence[Collection[str]]
) -> list[Candidate]:
    """Return the candidates of a column: one, or several if it has dates."""
    dates = read_dates(values)
    if dates is None or len(set(values) - {None}) < 2:
        return [_candidate(column, values, labels)]
    cuts = {
        f"{column}:{period}": [None if day is None else period_of(day, period) for day in dates]
        for period in PERIODS
    }
    cuts[f"{column}:{PARTS}"] = equal_parts(dates, PARTS)
    return [_candidate(name, cut, labels) for name, cut in cuts.items()]


def find_candidate(name: str, found: Sequence[Candidate], source: str) -> Candidate:
    """Return the candidate of a name, or the best one of a column of dates.

    Raises
    ------
    InputError
        If there is none, with near names, or if it cannot be used, with the reason.
    """
    same = [each for each in found if name in (each.name, each.name.rpartition(":")[0])]
    if not same:
        names = [each.name for each in found]
        known = ", ".join(map(repr, names)) or "none"
        advice = printable(did_you_mean(name, names))
        raise InputError(
            f"{source!r} has no column {name!r} to take domains from; it has {known}"
            + (f"; {advice}" if advice else "")
        )
    if same[0].reason:  # the best comes first
        raise InputError(
            f"the column {same[0].name!r} of {source!r} cannot be used for domains: "
            f"{same[0].reason}; name another one, or use clusters of features"
        )
    return same[0]


def assess(
    name: str,
    domains: Sequence[str],
    labels: Sequence[Collection[str]],
    *,
    kind: str = "column",
    separability: float | None = None,
) -> Candidate:
    """Return the candidate of domains that are large enough."""
    counts = dict(sorted(Counter(domains).items()))
    shares = [number / len(domains) for number in counts.values()]
    evenness = -sum(p * math.log(p) for p in shares) / math.log(max(len(shares), 2))
    return Candidate(
        name,
        tuple(domains),
        len(counts),
        counts,
        _class_share(domains, labels),
        evenness,
        separability=separability,
        kind=kind,
    )


def _candidate(
    name: str, values: Sequence[str | None], labels: Sequence[Collection[str]]
) -> Candidate:
    n, n_missing = len(values), sum(value is None for value in values)
    n_values = len(set(values) - {None})

    def unusable(reason: str) -> Candidate:
        return Candidate(name, values=n_values, missing=n_missing, reason=reason)

    if n_missing > n / 2:
        return unusable(f"no value for {n_missing:,} of {count(n, 'image')}")
    if n_values < 2:
        return unusable("the same value for all images")
    if n_values == n - n_missing:
        return unusable("another value for each image")
    domains, n_kept = _merge_small_values([UNKNOWN if v is None else v for v in values], labels)
    if n_kept < 2:
        return unusable(
            f"fewer than two of {n_values:,} values have {MIN_IMAGES} images and two classes"
        )
    found = assess(name, domains, labels)
    if len(found.domains) > MAX_DOMAINS:
        n_domains = len(found.domains)
        return unusable(f"{n_domains:,} values, more than {MAX_DOMAINS} are too many domains")
    if found.classes < MIN_CLASSES:
        return unusable(f"a value has {100 * found.classes:.0f} % of the classes on average")
    return replace(found, values=n_values, missing=n_missing)


def _merge_small_values(
    values: Sequence[str], labels: Sequence[Collection[str]]
) -> tuple[list[str], int]:
    """Put small values together; also return the number of values that are large enough."""
    rows: dict[str, list[int]] = defaultdict(list)
    for row, value in enumerate(values):
        rows[value].append(row)
    has_classes = any(labels)
    large = {
        value
        for value, at in rows.items()
        if len(at) >= MIN_IMAGES
        and not (has_classes and len({label for row in at for label in labels[row]}) < 2)
    }
    rest = [row for row, value in enumerate(values) if value not in large]
    rest_classes = {label for row in rest for label in labels[row]}
    names = {value: value if value in large else OTHER for value in rows}
    if large and rest and (len(rest) < MIN_IMAGES or (has_classes and len(rest_classes) < 2)):
        smallest = min(sorted(large), key=lambda value: len(rows[value]))
        names = {v: v if v in large - {smallest} else f"{smallest} or {OTHER}" for v in rows}
    return [names[value] for value in values], len(large)


def _class_share(domains: Sequence[str], labels: Sequence[Collection[str]]) -> float:
    """The mean share of the classes that a domain has; 1 if there are no classes."""
    all_classes = {label for some in labels for label in some}
    if not all_classes:
        return 1.0
    present: dict[str, set[str]] = defaultdict(set)
    for domain, some in zip(domains, labels, strict=True):
        present[domain].update(some)
    return sum(map(len, present.values())) / (len(present) * len(all_classes))


def _without_copies(found: Sequence[Candidate]) -> list[Candidate]:
    """Mark columns that divide the images as an earlier one does."""
    seen: dict[tuple[int, ...], str] = {}
    kept = []
    for each in found:
        if not each.reason:
            numbers: dict[str, int] = {}
            parts = tuple(numbers.setdefault(domain, len(numbers)) for domain in each.assignment)
            first = seen.setdefault(parts, each.name)
            if first != each.name:
                reason = f"divides the images as {first!r} does"
                each = replace(each, assignment=(), domains={}, reason=reason)
        kept.append(each)
    return kept


# --- columns of dates -----------------------------------------------------------------------------

PERIODS = ("year", "quarter", "month")
PARTS = 4
"""Number of periods with equally many images."""

_YEARS = range(1900, 2101)
_EXIF = re.compile(r"(\d{4}):(\d\d):(\d\d)(?=\s|$)")


def read_dates(values: Sequence[str | None]) -> list[date | None] | None:
    """Read dates such as 2019-07-31, 2019-07-31T12:00, 2019/07/31, 20190731 or 2019:07:31 12:00:00.

    Returns None if a value is not a date; missing dates are None.

    Examples
    --------
    >>> read_dates(["2019-07-31", "2019:08:01 10:00:00", None])
    [datetime.date(2019, 7, 31), datetime.date(2019, 8, 1), None]
    >>> read_dates(["2019-07-31", "summer"]) is None
    True
    """
    dates: list[date | None] = []
    known: dict[str, date | None] = {}
    for value in values:
        if value is None:
            dates.append(None)
            continue
        if value not in known:
            known[value] = _date(value)
        if known[value] is None:
            return None
        dates.append(known[value])
    return dates if known else None


def _date(text: str) -> date | None:
    try:
        found = datetime.fromisoformat(_EXIF.sub(r"\1-\2-\3", text.strip()).replace("/", "-"))
    except ValueError:
        return None
    return found.date() if found.year in _YEARS else None


def period_of(day: date, period: str) -> str:
    """Name the period that a day is in; names are sorted as the days are.

    Examples
    --------
    >>> [period_of(date(2019, 7, 31), period) for period in PERIODS]
    ['2019', '2019-Q3', '2019-07']
    """
    if period == "year":
        return f"{day.year}"
    if period == "quarter":
        return f"{day.year}-Q{(day.month + 2) // 3}"
    return f"{day.year}-{day.month:02d}"


def equal_parts(dates: Sequence[date | None], parts: int) -> list[str | None]:
    """Cut dates into consecutive periods with about equally many images; a day is kept whole.

    Examples
    --------
    >>> equal_parts([date(2019, 1, day) for day in (1, 2, 9)], 2)
    ['2019-01-01 to 2019-01-02', '2019-01-01 to 2019-01-02', '2019-01-09']
    """
    days = sorted(day for day in dates if day is not None)
    before: dict[date, int] = {}
    for number, day in enumerate(days):
        before.setdefault(day, number)
    part_of = {day: number * parts // len(days) for day, number in before.items()}
    names = {}
    for part in set(part_of.values()):
        inside = [day for day, number in part_of.items() if number == part]
        ends = (min(inside), max(inside))
        names[part] = " to ".join(dict.fromkeys(day.isoformat() for day in ends))
    return [None if day is None else names[part_of[day]] for day in dates]


# --- domains of a data set that has none, or from another column ----------------------------------

PROPOSE, ONE, COLUMN = "propose", "one", "column:"


class Proposed(NamedTuple):
    """A listing with proposed domains.

    Attributes
    ----------
    listing : Listing
        Its metadata are the columns that domains can be proposed by.
    by : str or None
        What the domains are proposed by; None if they are those of the source, or one for all.
    candidates : tuple of Candidate
        All columns, the best first.
    """

    listing: Listing
    by: str | None
    candidates: tuple[Candidate, ...]


def is_request(text: str) -> bool:
    """Whether a text is `propose`, `one` or `column:NAME`."""
    return text in (PROPOSE, ONE) or (text.startswith(COLUMN) and text != COLUMN)


def propose_for(listing: Listing, request: str) -> Proposed:
    """Give domains to the samples of a source.

    Parameters
    ----------
    listing : Listing
        With all further columns as metadata.
    request : str
        `propose`: the domains of the source if it has several, else the best column, else one
        domain. `one`: one domain. `column:NAME`: a column, with small values put together.

    Raises
    ------
    InputError
        If the column does not exist or cannot be used.
    """
    given = [sample.domain for sample in listing.samples]
    several = len(set(given)) > 1
    labels = label_sets(listing.task, [sample.label for sample in listing.samples])
    found = candidates(listing.metadata, labels)
    chosen: Candidate | None = None
    if request.startswith(COLUMN):
        chosen = find_candidate(request.removeprefix(COLUMN), found, listing.name)
    elif request == PROPOSE and not several:
        chosen = next((each for each in found if not each.reason), None)
    usable = {each.name.rpartition(":")[0] or each.name for each in found if not each.reason}
    usable |= {each.name for each in found if not each.reason}
    metadata = {name: values for name, values in listing.metadata.items() if name in usable}
    names: Sequence[str] = given
    if chosen is not None:
        names = chosen.assignment
        if several:
            metadata["domain"] = list(given)
    elif request == ONE:
        names = [ONE_DOMAIN] * len(given)
    pairs = zip(listing.samples, names, strict=True)
    changed = dataclasses.replace(
        listing,
        samples=[sample._replace(domain=name) for sample, name in pairs],
        metadata=metadata,
    )
    return Proposed(changed, None if chosen is None else chosen.name, tuple(found))


def label_sets(task: Task, labels: Sequence[str]) -> list[Collection[str]]:
    """Return the labels of each sample: its class, its labels, or none for numbers."""
    return [task.names_of(text) if task.has_probabilities else () for text in labels]


def describe(
    by: str | None, domains: Sequence[str], found: Sequence[Candidate], *, clusters: bool = False
) -> str:
    """Say in one line which domains a data set without given domains has.

    With `clusters`, a single domain is divided into clusters after the extraction.
    """
    if by is not None:
        missing = next((each.missing for each in found if each.name == by), 0)
        note = f" ({count(missing, 'image')} without a value)" if missing else ""
        return (
            f"Proposed domains: {count(len(domains), 'value')} of the column {by!r}{note}; another "
            "column could give another ranking, see oodzoo domains."
        )
    if len(domains) == 1 and clusters:
        return (
            f"One domain, {domains[0]!r}; after the extraction, clusters of features are the "
            "proposed domains."
        )
    if len(domains) == 1:
        usable = [each.name for each in found if not each.reason]
        columns = f"columns ({', '.join(usable)}) or " if usable else ""
        return (
            f"One domain, {domains[0]!r}; after the extraction, `oodzoo domains STORE` proposes "
            f"domains by {columns}clusters of features."
        )
    return f"{count(len(domains), 'domain')} as in the data; none is proposed."
