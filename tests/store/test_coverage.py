"""Where the rows of images are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oodzoo.store.coverage import Coverage, Coverages, Place
from oodzoo.store.shards import Shard, ShardFile


def shard(name: str, absent: dict[int, str | None] | None = None) -> Shard:
    return Shard(name, ShardFile("f.npy", "0", "0"), absent=absent or {})


def test_rows_are_counted_without_absent_images() -> None:
    index = {"0-0": ["a", "b", "c", "d"], "0-1": ["e"]}
    found = Coverage(index, [shard("0-0", {0: "truncated", 2: None}), shard("0-1")])
    assert found.rows == {"b": Place(0, 0), "d": Place(0, 1), "e": Place(1, 0)}
    assert found.unreadable == {"a": "truncated"}
    assert found.missing(["e", "c", "a", "x", "c"]) == ["c", "x"]


def test_the_places_of_images() -> None:
    found = Coverage({"0-0": ["a", "b"], "0-1": ["c"]}, [shard("0-0"), shard("0-1")])
    np.testing.assert_array_equal(found.places(["c", "a", "c"]), [[1, 0], [0, 0], [1, 0]])
    assert found.places([]).shape == (0, 2)
    with pytest.raises(KeyError, match="x"):
        found.places(["a", "x"])


def test_places_are_positions_in_the_list_of_shards_of_the_model() -> None:
    index = {"0-0": ["a"], "0-1": ["b"], "1-0": ["c"]}
    assert Coverage(index, [shard("0-1"), shard("1-0")]).rows == {
        "b": Place(0, 0),
        "c": Place(1, 0),
    }


def test_of_an_image_in_several_shards_the_last_row_counts() -> None:
    index = {"0-0": ["a", "b"], "1-0": ["b", "a"], "2-0": ["a"]}
    found = Coverage(index, [shard("0-0"), shard("1-0", {1: None}), shard("2-0", {0: None})])
    assert found.rows == {"a": Place(0, 0), "b": Place(1, 0)}


def test_an_image_with_a_row_is_not_unreadable() -> None:
    index = {"0-0": ["a", "b"], "1-0": ["a", "b"]}
    for records in (
        [shard("0-0", {0: "truncated"}), shard("1-0", {1: "truncated"})],
        [shard("0-0", {1: "truncated"}), shard("1-0", {0: "truncated"})],
    ):
        found = Coverage(index, records)
        assert set(found.rows) == {"a", "b"}
        assert found.unreadable == {}


@given(
    st.lists(
        st.lists(
            st.tuples(st.integers(0, 9), st.sampled_from(["row", "absent", "bad"])), max_size=5
        ),
        max_size=5,
    )
)
def test_any_index(layout: list[list[tuple[int, str]]]) -> None:
    """Write the image itself as its row, and follow the coverage to it."""
    index = {f"0-{n}": [str(i) for i, _ in images] for n, images in enumerate(layout)}
    reasons = {"absent": None, "bad": "truncated"}
    records = [
        shard(f"0-{n}", {at: reasons[how] for at, (_, how) in enumerate(images) if how != "row"})
        for n, images in enumerate(layout)
    ]
    files = [np.array([i for i, how in images if how == "row"]) for images in layout]
    found = Coverage(index, records)
    flat = [entry for images in layout for entry in images]
    rows = {str(i) for i, how in flat if how == "row"}
    assert set(found.rows) == rows
    for name, place in found.rows.items():
        assert files[place.shard][place.row] == int(name)
        later = [n for n, images in enumerate(layout) if (int(name), "row") in images]
        assert place.shard == max(later)
    assert set(found.unreadable) == {str(i) for i, how in flat if how == "bad"} - rows
    assert found.missing(map(str, range(10))) == [
        str(i) for i in range(10) if str(i) not in rows and (i, "bad") not in flat
    ]


def test_models_with_the_same_shards_share_a_coverage() -> None:
    index = {"0-0": ["a", "b"], "0-1": ["c"]}
    coverages = Coverages()
    first = coverages.of(index, [shard("0-0"), shard("0-1")])
    assert coverages.of(index, [shard("0-0"), shard("0-1")]) is first
    for other in (
        [shard("0-0")],
        [shard("0-1"), shard("0-0")],
        [shard("0-0", {0: None}), shard("0-1")],
        [shard("0-0", {1: None}), shard("0-1")],
        [shard("0-0", {0: "x"}), shard("0-1")],
    ):
        found = coverages.of(index, other)
        assert found is not first
        assert (found.rows, found.unreadable) == (
            Coverage(index, other).rows,
            Coverage(index, other).unreadable,
        )
