"""Domains of a data set that has none, or that are taken from another column."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Sequence
from typing import NamedTuple

from oodzoo._text import count
from oodzoo.data.listing import Listing
from oodzoo.data.proposals import Candidate, candidates, find_candidate
from oodzoo.data.sources.metadata import ONE_DOMAIN
from oodzoo.task import Task

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
    if task.kind == "regression":
        return [()] * len(labels)
    if task.kind == "multilabel":
        return [json.loads(text) for text in labels]
    return [(label,) for label in labels]


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
