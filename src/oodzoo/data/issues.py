"""Problems of a data set, one issue for each kind: what, how many, first examples, what to do."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from oodzoo.core.text import count
from oodzoo.data.listing import Issue, Sample
from oodzoo.data.sources.folder import UnlabelledImages
from oodzoo.tasks import CLASSIFICATION, Task

LARGE_SHIFT = 20.0
"""Label shift beyond that by chance, in percentage points, that is a problem."""
SMALL_OVERLAP = 25.0
"""Overlap of the numbers of a domain with those of the others, in percent, that is a problem."""
SIZE_RATIO = 4
"""Ratio of the median shorter sides of two domains that is a problem."""
SMALL_SIDE = 32
"""An image with a shorter side is a problem where the median is at least twice as long."""

_EXAMPLES = 3
_NAMES = 5
_OPTIMISTIC = "leave-one-domain-out results will be too optimistic"
_EMPTY = hashlib.sha256(b"").hexdigest()

_ADVICE = {
    # what sources find while they list
    "broken link": "restore what it links to, or remove it",
    "link loop": "remove it",
    "empty class": "add images or remove the folder",
    "empty domain": "move its images into class folders, root/domain/class/image",
    "no class": "move them into class folders, root/domain/class/image",
    # labels
    "one class": "accuracies there tell nothing about telling classes apart: add images of other "
    "classes, or leave the domain out",
    "missing class": "accuracies there tell nothing about these classes: add images, or merge or "
    "remove classes",
    "unused label": "leave it out",
    "missing label": "the average precision there leaves these labels out: add images, or merge "
    "or remove labels",
    "constant": "R² is undefined there: add images with other values, or leave the domain out",
    "ranges": "a model has to extrapolate there: add images with other values, or leave the "
    "domain out",
    # images
    "unreadable": "extraction skips such images: replace or remove them",
    "small": "replace or remove thumbnails and placeholders",
    "sizes": "resize the images to a common size unless unseen domains will differ likewise",
}
"""What to do about a problem of a kind."""


class Spread(NamedTuple):
    """Mean, standard deviation, smallest and largest of the values of a domain, and its overlap.

    The overlap is None for all domains together.
    """

    mean: float
    deviation: float
    smallest: float
    largest: float
    overlap: float | None = None


def listed(issues: Iterable[Issue]) -> Iterator[Issue]:
    """Join the issues of a listing by kind, and say what to do about them."""
    by_kind: dict[str, list[Issue]] = {}
    for issue in issues:
        by_kind.setdefault(issue.kind, []).append(issue)
    for kind, same in by_kind.items():
        message = _shown([issue.message for issue in same])
        paths = tuple(path for issue in same for path in issue.paths)
        advice = next((i.advice for i in same if i.advice), _ADVICE.get(kind, ""))
        yield Issue(kind, message, paths, advice)


def _joined(kind: str, texts: Sequence[str], start: str = "") -> Iterator[Issue]:
    """Yield an issue of the texts, if there are any."""
    if texts:
        yield Issue(kind, start + _shown(texts), advice=_ADVICE[kind])


def missing_classes(counts: Mapping[str, Mapping[str, int]]) -> Iterator[Issue]:
    """Yield domains of one class, and domains that lack classes."""
    single: list[str] = []
    incomplete: list[str] = []
    for domain, row in counts.items():
        present = [label for label, n in row.items() if n]
        absent = [label for label, n in row.items() if not n]
        if len(present) == 1:
            single.append(f"domain {domain!r} has images of one class only, {present[0]!r}")
        elif absent:
            incomplete.append(f"domain {domain!r} has no images of {_names(absent, 'class')}")
    yield from _joined("one class", single)
    yield from _joined("missing class", incomplete)


def missing_labels(counts: Mapping[str, Mapping[str, int]]) -> Iterator[Issue]:
    """Yield labels that no image has, and labels that a domain lacks."""
    labels = list(next(iter(counts.values()), {}))
    unused = [label for label in labels if not any(row[label] for row in counts.values())]
    if unused:
        yield from _joined("unused label", [f"no image has the {_names(unused, 'label')}"])
    lacking: list[str] = []
    for domain, row in counts.items():
        absent = [label for label, n in row.items() if not n and label not in unused]
        if absent:
            lacking.append(f"domain {domain!r} has no images with the {_names(absent, 'label')}")
    yield from _joined("missing label", lacking)


def constant_numbers(numbers: Mapping[str, Mapping[str, Spread]]) -> Iterator[Issue]:
    """Yield numbers that are the same in all images of a domain."""
    found = [
        f"{name!r} is {spread.mean:.4g} in all images of domain {domain!r}"
        for domain, spread_of in numbers.items()
        for name, spread in spread_of.items()
        if spread.smallest == spread.largest
    ]
    yield from _joined("constant", found)


def different_ranges(numbers: Mapping[str, Mapping[str, Spread]]) -> Iterator[Issue]:
    """Yield domains whose numbers are mostly outside of the range of the other domains."""
    found = [
        f"{name!r} is {spread.smallest:.4g} to {spread.largest:.4g} in {domain!r}, where "
        f"{spread.overlap:.0f} % of the values are as in the other domains"
        for domain, spread_of in numbers.items()
        for name, spread in spread_of.items()
        if spread.overlap is not None and spread.overlap < SMALL_OVERLAP
    ]
    yield from _joined("ranges", found, "ranges of numbers hardly overlap: ")


def shared_groups(samples: Iterable[Sample]) -> Iterator[Issue]:
    """Yield the groups that occur in several domains, which are leaks."""
    domains_of: dict[str, set[str]] = {}
    for sample in samples:
        if sample.group is not None:
            domains_of.setdefault(sample.group, set()).add(sample.domain)
    shared = sorted(group for group, domains in domains_of.items() if len(domains) > 1)
    if shared:
        yield Issue(
            "leak",
            f"leak between domains: {_names(shared, 'group')} in several domains; {_OPTIMISTIC}",
            advice="keep each group in one domain, or rename different groups of the same name",
        )


def unreadable_images(problems: Mapping[str, str]) -> Iterator[Issue]:
    """Yield the images that cannot be read or decoded; `problems` has the reason by path."""
    if not problems:
        return
    by_reason: dict[str, list[str]] = {}
    for path, reason in problems.items():
        by_reason.setdefault(reason, []).append(path)
    reasons = sorted(by_reason.items(), key=lambda item: -len(item[1]))
    shown = [
        f"{paths[0]!r}{f' and {len(paths) - 1:,} more' if len(paths) > 1 else ''}: {reason}"
        for reason, paths in reasons
    ]
    yield Issue(
        "unreadable",
        f"{count(len(problems), 'image')} cannot be read: {_shown(shown)}",
        tuple(problems),
        _ADVICE["unreadable"],
    )


def find_identical(digests: Sequence[str | None]) -> list[tuple[int, ...]]:
    """Find byte-identical images: the positions of each set of two or more, in order."""
    seen: set[str] = set()
    repeated: set[str] = set()
    for digest in digests:
        if digest is not None and digest != _EMPTY:
            (repeated if digest in seen else seen).add(digest)
    sets: dict[str, list[int]] = {}
    for at, digest in enumerate(digests):
        if digest in repeated:
            sets.setdefault(str(digest), []).append(at)
    return [tuple(positions) for positions in sets.values()]


def identical_images(
    samples: Sequence[Sample], identical: Iterable[Sequence[int]]
) -> Iterator[Issue]:
    """Yield identical images in several domains (leaks), with several labels, and other copies.

    Those in several domains with several labels are in two issues.

    Parameters
    ----------
    samples : sequence of Sample
    identical : iterable of sequence of int
        Positions of identical images, as :func:`find_identical` returns them.
    """
    sets: dict[str, list[list[Sample]]] = {"leak": [], "two labels": [], "copies": []}
    for positions in identical:
        same = [samples[at] for at in positions]
        if is_leak := len({s.domain for s in same}) > 1:
            sets["leak"].append(same)
        if len({s.label for s in same}) > 1:
            sets["two labels"].append(same)
        elif not is_leak and (len({s.group for s in same}) > 1 or same[0].group is None):
            sets["copies"].append(same)
    wording = {
        "leak": (
            "leak between domains: {} are identical to images of other domains: {}; " + _OPTIMISTIC,
            "keep each image in one domain",
        ),
        "two labels": (
            "{} are identical but labelled differently: {}",
            "keep each image once, with the right label",
        ),
        "copies": (
            "{} are identical to others of the same domain and class: {}",
            "remove the copies or give them the same group, else splits may separate them",
        ),
    }
    for kind, found in sets.items():
        if found:
            paths = tuple(s.path for same in found for s in same)
            message, advice = wording[kind]
            pairs = [_equation(same, labels=kind == "two labels") for same in found]
            yield Issue(
                kind,
                message.format(count(len(paths), "image"), _shown(pairs, ", ")),
                paths,
                advice,
            )


def also_unlabelled(
    samples: Sequence[Sample],
    digests: Sequence[str | None],
    unlabelled: Iterable[UnlabelledImages],
) -> Iterator[Issue]:
    """Yield the labelled images that are in an unlabelled domain, an issue for each of these."""
    for domain in unlabelled:
        theirs = set(domain.digests) - {None, _EMPTY}
        paths = [s.path for s, digest in zip(samples, digests, strict=True) if digest in theirs]
        if paths:
            yield Issue(
                "leak",
                f"leak between domains: unlabelled domain {domain.name!r} also contains "
                f"{_names(paths, 'image')}; predictions on it will look better than they are",
                tuple(paths),
            )


def different_mixtures(
    shifts: Mapping[str, float], by_chance: Mapping[str, float], task: Task = CLASSIFICATION
) -> Iterator[Issue]:
    """Yield domains whose classes, or labels, are mixed otherwise than those of the others.

    Parameters
    ----------
    shifts : dict of str to float
        Label shift of each domain, in percent.
    by_chance : dict of str to float
        The label shift to expect of images that are drawn from one mixture.
    """
    found = {
        domain: shift
        for domain, shift in sorted(shifts.items(), key=lambda item: -item[1])
        if shift - by_chance[domain] > LARGE_SHIFT
    }
    classes = task.one_class
    if found:
        shown = [f"{shift:.0f} % in {domain!r}" for domain, shift in found.items()]
        yield Issue(
            "label shift",
            f"the mixture of {'classes' if classes else 'labels'} differs from that of the other "
            "domains: label shift " + _shown(shown, ", "),
            advice="accuracies there change with the mixture, too: compare balanced accuracies, or "
            "balance the classes"
            if classes
            else "the average precision there changes with the mixture, too: balance the labels",
        )


def different_sizes(sizes: Mapping[str, tuple[int, int]]) -> Iterator[Issue]:
    """Yield domains whose median width and height differ much."""
    if not sizes:
        return
    side = {domain: min(size) for domain, size in sizes.items()}
    small, large = min(side, key=lambda d: side[d]), max(side, key=lambda d: side[d])
    if side[large] >= SIZE_RATIO * side[small]:
        shown = " and ".join(f"{'×'.join(map(str, sizes[d]))} in {d!r}" for d in (small, large))
        message = f"the domains differ in size: median {shown}; resolution alone tells them apart"
        yield from _joined("sizes", [message])


def small_images(paths: Sequence[str]) -> Iterator[Issue]:
    """Yield images that are too small, among others that are not."""
    if paths:
        yield Issue(
            "small",
            f"{count(len(paths), 'image')} with a side below {SMALL_SIDE} pixels, unlike the rest "
            f"of the domain: {_shown([repr(path) for path in paths], ', ')}",
            tuple(paths),
            _ADVICE["small"],
        )


def _names(names: Sequence[str], noun: str) -> str:
    """Format as `class 'a'`, or as `9 classes ('a', 'b', 'c', 'd', 'e', …)`."""
    if len(names) == 1:
        return f"{noun} {names[0]!r}"
    plural = noun + ("es" if noun.endswith("s") else "s")
    shown = ", ".join(map(repr, names[:_NAMES])) + (", …" if len(names) > _NAMES else "")
    return f"{count(len(names), noun, plural)} ({shown})"


def _equation(same: Sequence[Sample], *, labels: bool) -> str:
    """Format as `'a' = 'b'`; with labels the first image of each, `'a' ('cat') = 'b' ('dog')`."""
    texts = [repr(s.path) for s in same]
    if labels:
        first: dict[str, str] = {}
        for s in same:
            first.setdefault(s.label, f"{s.path!r} ({s.label!r})")
        texts = list(first.values())
    return " = ".join(texts[:_EXAMPLES]) + (" = …" if len(texts) > _EXAMPLES else "")


def _shown(texts: Sequence[str], separator: str = "; ") -> str:
    """Join the first texts, and count the others."""
    more = len(texts) - _EXAMPLES
    return separator.join([*texts[:_EXAMPLES], *([f"and {more:,} more"] if more > 0 else [])])


# --- classes whose names look alike ---------------------------------------------------------------

_MOST_COMPARED = 500
"""Of more incomplete classes, only case, spaces, hyphens and underscores are compared."""
_LONG = 7
"""Names of this length may differ in two letters, shorter ones in one."""
_SHORTEST = 3
_PAIRS = 5


def similar_classes(counts: Mapping[str, Mapping[str, int]]) -> Iterator[Issue]:
    """Yield classes that are probably one, an issue for all of them.

    Their names differ only in case, spaces, hyphens and underscores; or in a letter or two, and no
    domain has both.

    Parameters
    ----------
    counts : dict of str to dict
        Number of images by domain and class, zeros included.
    """
    classes = list(next(iter(counts.values()), {}))
    domains_of = {name: {d for d, row in counts.items() if row[name]} for name in classes}
    pairs = sorted({*_same_but_for_case(classes), *_mistyped(domains_of, len(counts))})
    if not pairs:
        return
    shown = [f"{a!r} and {b!r}" for a, b in pairs[:_PAIRS]]
    more = f", and {len(pairs) - _PAIRS:,} more" if len(pairs) > _PAIRS else ""
    yield Issue(
        "similar classes",
        f"names of classes look alike: {', '.join(shown)}{more}",
        advice="if they are the same class, give them the same name, else they are told apart",
    )


def _same_but_for_case(classes: Sequence[str]) -> Iterator[tuple[str, str]]:
    same: dict[str, list[str]] = {}
    for name in classes:
        same.setdefault(_plain(name), []).append(name)
    for names in same.values():
        yield from combinations(sorted(names), 2)


def _mistyped(domains_of: Mapping[str, set[str]], n_domains: int) -> Iterator[tuple[str, str]]:
    incomplete = sorted(name for name, found in domains_of.items() if len(found) < n_domains)
    if len(incomplete) > _MOST_COMPARED:
        return
    for a, b in combinations(incomplete, 2):
        if domains_of[a] & domains_of[b]:
            continue
        if _differ_by_letters(_plain(a), _plain(b)):
            yield a, b


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]+", "", name.casefold())


def _differ_by_letters(a: str, b: str) -> bool:
    """Whether a letter or two differ; other numbers are other names, as in `lot1` and `lot2`."""
    if min(len(a), len(b)) < _SHORTEST or re.findall(r"\d+", a) != re.findall(r"\d+", b):
        return False
    most = 2 if min(len(a), len(b)) >= _LONG else 1
    return abs(len(a) - len(b)) <= most and 0 < _edits(a, b) <= most


def _edits(a: str, b: str) -> int:
    """The letters to insert, remove, replace or swap with the next one.

    Examples
    --------
    >>> _edits("dgo", "dog"), _edits("elefant", "elephant"), _edits("cat", "cow")
    (1, 2, 2)
    """
    rows = [list(range(len(b) + 1))]
    for i, letter in enumerate(a):
        row, last = [i + 1], rows[-1]
        for j, other in enumerate(b):
            fewest = min(row[j] + 1, last[j + 1] + 1, last[j] + (letter != other))
            if i and j and letter == b[j - 1] and a[i - 1] == other:
                fewest = min(fewest, rows[-2][j - 1] + 1)
            row.append(fewest)
        rows.append(row)
    return rows[-1][-1]
