"""Domains proposed by columns: which can be used, and in which order."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.oracles import domains as oracle

from oodzoo.data.proposals import (
    MIN_IMAGES,
    Candidate,
    as_table,
    candidates,
    find_candidate,
    in_order,
    reasons,
)
from oodzoo.errors import InputError

LABELS = [(label,) for label in "abc" * 40]
CAMERAS = ["canon"] * 60 + ["sony"] * 60


def one(values: Sequence[str | None], labels: Sequence[Collection[str]] = LABELS) -> Candidate:
    [found] = candidates({"column": values}, labels)
    return found


def test_a_column_is_measured_as_documented() -> None:
    found = one(CAMERAS)
    assert found.domains == {"canon": 60, "sony": 60}
    assert found.assignment == tuple(CAMERAS)
    assert (found.reason, found.values, found.missing) == ("", 2, 0)
    assert found.classes == found.evenness == found.score == 1.0


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


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (["same"] * 120, "the same value for all images"),
        ([str(row) for row in range(120)], "another value for each image"),
        ([None] * 61 + ["a"] * 30 + ["b"] * 29, "no value for 61 of 120 images"),
        (["big"] * 110 + ["small"] * 10, "fewer than two of 2 values have 20 images"),
    ],
)
def test_columns_that_cannot_be_used(values: list[str | None], reason: str) -> None:
    found = one(values)
    assert found.reason.startswith(reason)
    assert (found.assignment, found.score) == ((), 0.0)


def test_a_column_of_classes_is_not_one_of_domains() -> None:
    assert "fewer than two of 3 values" in one([label for (label,) in LABELS]).reason
    pairs = [{"a": "0", "b": "0", "c": "1", "d": "1"}[c] for c in "abcd" * 30]
    labels = [(c,) for c in "abcd" * 30]
    assert one([*pairs], labels).reason == ""  # half of the classes each
    six = [(c,) for c in "abcdef" * 20]
    found = one([str("abcdef".index(c) // 2) for (c,) in six], six)
    assert found.reason == "a value has 33 % of the classes on average"


def test_too_many_domains() -> None:
    labels = [(c,) for c in "ab" * 250]
    values: list[str | None] = [str(row // 20) for row in range(500)]
    assert one(values, labels).reason == "25 values, more than 20 are too many domains"


def test_small_values_are_put_together() -> None:
    values = [*["x"] * 50, *["y"] * 40, *["p"] * 15, *["q"] * 15]
    assert one([*values]).domains == {"other": 30, "x": 50, "y": 40}
    few = [*["x"] * 60, *["y"] * 50, *["p"] * 5, *["q"] * 5]
    assert one([*few]).domains == {"x": 60, "y or other": 60}


def test_missing_values_are_a_domain_if_there_are_enough() -> None:
    found = one([*["x"] * 50, *["y"] * 40, *[None] * 30])
    assert found.domains == {"unknown": 30, "x": 50, "y": 40}
    assert found.missing == 30


def test_dates_are_cut_into_periods() -> None:
    dates: list[str | None] = [f"20{18 + row % 2}-0{1 + row // 2 % 6}-01" for row in range(120)]
    found = {each.name: each for each in candidates({"taken": dates}, LABELS)}
    assert found.keys() == {"taken:year", "taken:quarter", "taken:month", "taken:4"}
    assert found["taken:year"].domains == {"2018": 60, "2019": 60}
    assert list(found["taken:quarter"].domains.values()) == [30, 30, 30, 30]
    assert "fewer than two" in found["taken:month"].reason


def test_targets_without_classes_need_images_only() -> None:
    found = one([*CAMERAS], [()] * 120)
    assert (found.classes, found.reason) == (1.0, "")


def test_a_copy_of_a_column_is_not_proposed_twice() -> None:
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


def test_separability_lowers_the_score() -> None:
    assert Candidate("c", classes=1, evenness=0.5, separability=0.5).score == 0.25


def test_a_candidate_is_found_by_its_name_or_column() -> None:
    dates: list[str | None] = [f"20{18 + row % 2}-01-01" for row in range(120)]
    found = candidates({"camera": [*CAMERAS], "taken": dates, "id": ["1"] * 120}, LABELS)
    assert find_candidate("camera", found, "t.csv").name == "camera"
    assert find_candidate("taken", found, "t.csv").name == "taken:year"
    with pytest.raises(InputError, match=r"^'t.csv' has no column 'camra' .* did you mean camera"):
        find_candidate("camra", found, "t.csv")
    with pytest.raises(InputError, match=r"^the column 'id' of 't.csv' cannot .* same value"):
        find_candidate("id", found, "t.csv")


def test_table_and_reasons() -> None:
    found = candidates({"camera": [*CAMERAS], "id": ["1"] * 120}, LABELS)
    header, rows = as_table(found, "camera", "used")
    assert header == ["proposal", "domains", "smallest", "classes", "evenness", ""]
    assert rows == [["camera", "2", "60", "100 %", "1.00", "used"]]
    assert reasons(found) == ["id cannot be used: the same value for all images."]
    assert Counter(found[0].to_dict()["domains"]) == Counter(CAMERAS)
