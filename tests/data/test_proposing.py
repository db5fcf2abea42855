"""Domains of a data set without any, or taken from another column."""

from __future__ import annotations

import pytest

from oodzoo.data.listing import Listing, Sample
from oodzoo.data.proposals import describe, is_request, label_sets, propose_for
from oodzoo.errors import InputError
from oodzoo.task import CLASSIFICATION, Task

N = 60
CAMERAS: list[str | None] = ["canon" if row < 30 else "sony" for row in range(N)]


def listing(domains: list[str], **metadata: list[str | None]) -> Listing:
    samples = [Sample(f"{row}", domains[row], "ab"[row % 2]) for row in range(N)]
    return Listing("t.csv", samples, metadata=dict(metadata))


def names(found: Listing) -> list[str]:
    return [sample.domain for sample in found.samples]


@pytest.mark.parametrize(
    ("text", "known"),
    [("propose", True), ("one", True), ("column:x", True), ("column:", False), ("site", False)],
)
def test_requests(text: str, known: bool) -> None:
    assert is_request(text) == known


def test_the_best_column_is_proposed_where_there_are_no_domains() -> None:
    found = propose_for(listing(["all"] * N, camera=CAMERAS, id=["1"] * N), "propose")
    assert names(found.listing) == CAMERAS
    assert found.by == "camera"
    assert found.listing.metadata == {"camera": CAMERAS}  # not `id`, which is of no use
    assert [each.name for each in found.candidates] == ["camera", "id"]


def test_given_domains_are_kept() -> None:
    given = ["day", "night"] * (N // 2)
    found = propose_for(listing(given, camera=CAMERAS), "propose")
    assert (names(found.listing), found.by) == (given, None)
    assert "domain" not in found.listing.metadata


def test_a_column_replaces_given_domains_and_keeps_them_as_metadata() -> None:
    given = ["day", "night"] * (N // 2)
    found = propose_for(listing(given, camera=CAMERAS), "column:camera")
    assert names(found.listing) == CAMERAS
    assert found.listing.metadata["domain"] == given


def test_one_domain() -> None:
    given = ["day", "night"] * (N // 2)
    for found in (
        propose_for(listing(["all"] * N, camera=CAMERAS), "one"),
        propose_for(listing(["all"] * N, id=["1"] * N), "propose"),
        propose_for(listing(given), "one"),
    ):
        assert (set(names(found.listing)), found.by) == ({"all"}, None)
        assert "domain" not in found.listing.metadata


def test_an_unknown_column() -> None:
    with pytest.raises(InputError, match=r"no column 'camra' .*did you mean camera\?$"):
        propose_for(listing(["all"] * N, camera=CAMERAS), "column:camra")


def test_labels_of_each_task() -> None:
    assert label_sets(CLASSIFICATION, ["cat"]) == [("cat",)]
    assert label_sets(Task("multilabel", ("cat", "dog")), ['["cat", "dog"]']) == [["cat", "dog"]]
    assert label_sets(Task("regression", ("y",)), ["1.5"]) == [()]


def test_one_line_says_what_the_domains_are() -> None:
    values = [*CAMERAS[:-1], None]
    found = propose_for(listing(["all"] * N, camera=values), "propose")
    line = describe(found.by, ["canon", "sony or other"], found.candidates)
    assert line.startswith("Proposed domains: 2 values of the column 'camera' (1 image without")
    assert "by columns (camera) or clusters" in describe(None, ["all"], found.candidates)
    assert "clusters of features are the proposed" in describe(None, ["all"], (), clusters=True)
    assert describe(None, ["a", "b"], ()) == "2 domains as in the data; none is proposed."
