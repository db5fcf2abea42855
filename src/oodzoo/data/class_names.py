"""Classes whose names look alike: a typing mistake in a folder makes two classes of one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from oodzoo.data.listing import Issue

_MOST_COMPARED = 500
"""Of more incomplete classes, only case, spaces, hyphens and underscores are compared."""
_LONG = 7
"""Names of this length may differ in two letters, shorter ones in one."""
_SHORTEST = 3
_EXAMPLES = 5


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
    shown = [f"{a!r} and {b!r}" for a, b in pairs[:_EXAMPLES]]
    more = f", and {len(pairs) - _EXAMPLES:,} more" if len(pairs) > _EXAMPLES else ""
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
