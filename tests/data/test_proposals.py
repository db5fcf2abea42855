"""Domains proposed by columns: dates, which columns can be used, and in which order."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from datetime import date
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.oracles import domains as oracle

from oodzoo.core.errors import InputError
from oodzoo.data.listing import Listing, Sample
from oodzoo.data.proposals import (
    MIN_IMAGES,
    Candidate,
    candidates,
    describe,
    in_order,
    is_request,
    label_sets,
    propose_for,
    read_dates,
)
from oodzoo.data.sources.column_roles import as_texts, read_metadata
from oodzoo.tasks import CLASSIFICATION, task_of

LABELS = [(label,) for label in "abc" * 40]
CAMERAS = ["canon"] * 60 + ["sony"] * 60
DATES = [f"20{18 + row % 2}-0{1 + row // 2 % 6}-01" for row in range(120)]


def test_values_as_text() -> None:
    values = [np.int64(3), "", float("nan"), date(2020, 1, 2), False]
    assert as_texts(values) == ["3", None, None, "2020-01-02", "False"]
    assert as_texts([b"bytes"]) is None
    table: dict[str, list[Any]] = {"path": ["a"], "y": ["b"], "camera": ["c"], "weight": [0.5]}
    assert read_metadata(table, ["y"], table.__getitem__) == {"camera": ["c"]}


def test_dates_in_usual_forms() -> None:
    for text in (
        "2019-07-31", "2019-07-31T23:59:59", "2019-07-31 10:00", "2019/07/31", "20190731",
        "2019:07:31 10:00:00", "2019-07-31T10:00:00Z",
    ):  # fmt: skip
        assert read_dates([text, None]) == [date(2019, 7, 31), None]
    for other in ("summer", "12", "2019", "31.07.2019", "1234-05-06", "2019-13-01", None):
        assert read_dates([other, None]) is None


def one(values: Sequence[str | None], labels: Sequence[Collection[str]] = LABELS) -> Candidate:
    [found] = candidates({"column": values}, labels)
    return found


@given(
    st.lists(st.tuples(st.sampled_from("xyz"), st.sampled_from("abc")), min_size=70, max_size=150)
)
def test_shares_and_evenness_equal_the_oracle(rows: list[tuple[str, str]]) -> None:
    values, labels = [value for value, _ in rows], [(label,) for _, label in rows]
    found = one([*values], labels)
    if found.reason:
        return
    plain = [label for (label,) in labels]
    assert math.isclose(found.classes, oracle.class_share(found.assignment, plain))
    assert math.isclose(found.evenness, oracle.evenness(found.assignment))
    assert 0 < found.score <= 1
    assert min(found.domains.values()) >= MIN_IMAGES
    assert sum(found.domains.values()) == len(rows)


SIX = [(label,) for label in "abcdef" * 20]
MANY = [str(row // 20) for row in range(500)]


@pytest.mark.parametrize(
    ("values", "labels", "reason"),
    [
        (["same"] * 120, LABELS, "the same value for all images"),
        ([str(row) for row in range(120)], LABELS, "another value for each image"),
        ([None] * 61 + ["a"] * 30 + ["b"] * 29, LABELS, "no value for 61 of 120 images"),
        (["big"] * 110 + ["small"] * 10, LABELS,
         "fewer than two of 2 values have 20 images and two classes"),
        ([str("abcdef".index(c) // 2) for (c,) in SIX], SIX,
         "a value has 33 % of the classes on average"),
        (MANY, [(c,) for c in "ab" * 250], "25 values, more than 20 are too many domains"),
    ],
)  # fmt: skip
def test_columns_that_cannot_be_used(
    values: list[str | None], labels: list[tuple[str]], reason: str
) -> None:
    found = one(values, labels)
    assert (found.reason, found.assignment, found.score) == (reason, (), 0.0)


@pytest.mark.parametrize(
    ("values", "domains"),
    [
        (CAMERAS, {"canon": 60, "sony": 60}),
        ([*["x"] * 50, *["y"] * 40, *["p"] * 15, *["q"] * 15], {"other": 30, "x": 50, "y": 40}),
        ([*["x"] * 60, *["y"] * 50, *["p"] * 5, *["q"] * 5], {"x": 60, "y or other": 60}),
        ([*["x"] * 50, *["y"] * 40, *[None] * 30], {"unknown": 30, "x": 50, "y": 40}),
    ],
)
def test_small_and_missing_values_are_joined(
    values: list[str | None], domains: dict[str, int]
) -> None:
    found = one(values)
    assert (found.domains, found.reason) == (domains, "")
    assert (found.values, found.missing) == (len({*values} - {None}), values.count(None))
    assert one(values, [()] * 120).reason == ""  # targets without classes need images only
    if values is CAMERAS:
        assert found.assignment == tuple(CAMERAS)
        assert found.classes == found.evenness == found.score == 1.0


def test_dates_are_cut_into_periods_and_copies_are_not_proposed_twice() -> None:
    found = {each.name: each for each in candidates({"taken": DATES}, LABELS)}
    assert found.keys() == {"taken:year", "taken:quarter", "taken:month", "taken:4"}
    assert found["taken:year"].domains == {"2018": 60, "2019": 60}
    assert list(found["taken:quarter"].domains.values()) == [30, 30, 30, 30]
    assert "fewer than two" in found["taken:month"].reason
    first, second = candidates({"camera": [*CAMERAS], "id": [c[0] for c in CAMERAS]}, LABELS)
    assert (first.name, first.reason) == ("camera", "")
    assert second.reason == "divides the images as 'camera' does"


def test_order_of_candidates() -> None:
    def candidate(name: str, n: int, value: float, reason: str = "") -> Candidate:
        domains = {str(at): 20 for at in range(n)}
        return Candidate(name, domains=domains, classes=value, evenness=1.0, reason=reason)

    names = [
        candidate("unusable", 0, 0, "reason"),
        candidate("weak", 4, 0.6),
        candidate("two", 2, 0.98),
        candidate("four", 4, 0.96),
        candidate("hospital_id", 2, 0.96),
    ]
    expected = ["hospital_id", "four", "two", "weak", "unusable"]
    assert [each.name for each in in_order(names)] == expected
    assert Candidate("c", classes=1, evenness=0.5, separability=0.5).score == 0.25


NONE = ["all"] * 120


def listing(domains: list[str], **metadata: Sequence[str | None]) -> Listing:
    samples = [Sample(f"{row}", domain, "ab"[row % 2]) for row, domain in enumerate(domains)]
    return Listing("t.csv", samples, metadata={name: [*v] for name, v in metadata.items()})


def test_what_is_a_request_and_what_are_labels() -> None:
    texts = ("propose", "one", "column:x", "column:", "site")
    assert list(map(is_request, texts)) == [True, True, True, False, False]
    with pytest.raises(InputError, match=r"no column 'camra' .*did you mean camera\?$"):
        propose_for(listing(NONE, camera=CAMERAS), "column:camra")
    assert label_sets(CLASSIFICATION, ["cat"]) == [["cat"]]
    assert label_sets(task_of("multilabel", ("cat", "dog")), ['["cat", "dog"]']) == [["cat", "dog"]]
    assert label_sets(task_of("regression", ("y",)), ["1.5"]) == [()]


def test_one_line_says_what_the_domains_are() -> None:
    found = propose_for(listing(NONE, camera=[*CAMERAS[:-1], None]), "propose")
    line = describe(found.by, ["canon", "sony or other"], found.candidates)
    assert line.startswith("Proposed domains: 2 values of the column 'camera' (1 image without")
    assert "by columns (camera) or clusters" in describe(None, ["all"], found.candidates)
    assert "clusters of features are the proposed" in describe(None, ["all"], (), clusters=True)
    assert describe(None, ["a", "b"], ()) == "2 domains as in the data; none is proposed."
