"""Timings and locations: kept beside a model, and never needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.features.data import Extract, MakeModel, another_digit
from tests.store.data import nested

from oodzoo.errors import InputError
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.local import as_facts, read_local, update_local


def test_facts_are_added_to_those_that_are_there(small: Path) -> None:
    assert read_local(small, "m1") == {}
    update_local(small, "m1", {"seconds": 1.5, "images": 9})
    update_local(small, "m1", {"images": 10, "milliseconds_per_image": 150.0})
    update_local(small, "m2", {"images": 7})
    expected = {"seconds": 1.5, "images": 10, "milliseconds_per_image": 150.0}
    assert read_local(small, "m1") == expected
    opened = FeatureStore(small)
    assert opened.local("m1") == expected
    assert opened.milliseconds_per_image("m1") == 150.0
    assert opened.milliseconds_per_image("m2") is None


def test_a_small_addition_does_not_change_the_timing_much(
    data: Path, make_model: MakeModel, extract: Extract, tmp_path: Path
) -> None:
    extract(data, [make_model()], tmp_path / "store")
    before = read_local(tmp_path / "store", "function")
    another_digit(data, "chalk/0/new.png")
    extract(data, [make_model()], tmp_path / "store")
    after = read_local(tmp_path / "store", "function")
    assert after["images"] == before["images"] + 1 == 46
    assert after["seconds"] >= before["seconds"]


def test_facts_are_no_part_of_the_fingerprint(small: Path) -> None:
    before = FeatureStore(small).fingerprint
    update_local(small, "m1", {"seconds": 1.5})
    assert FeatureStore(small).fingerprint == before


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{not json",
        b"7",
        b"null",
        b"[1]",
        b"\xff",
        b'"ab"',
        b'{"seconds": NaN}',
        b'{"seconds": Infinity}',
        b'{"seconds": -1}',
        b'{"milliseconds_per_image": 1e300}',
        b'{"milliseconds_per_image": "fast"}',
        b'{"images": [1]}',
        b'{"source": {"a": 1}}',
        pytest.param(nested().encode(), id="nested"),
    ],
)
def test_a_damaged_file_counts_as_none(small: Path, content: bytes) -> None:
    (small / "models/m1/local.json").write_bytes(content)
    assert read_local(small, "m1") == {}
    assert FeatureStore(small).milliseconds_per_image("m1") is None
    update_local(small, "m1", {"images": 9})
    assert read_local(small, "m1") == {"images": 9}


def test_known_facts() -> None:
    facts = {
        "source": "onnx/a.onnx",
        "folder": "models",
        "seconds": 1.5,
        "images": 9,
        "milliseconds_per_image": 0.25,
    }
    assert as_facts(facts) == facts
    assert as_facts(facts | {"of a later version": 1}) == facts
    assert as_facts({}) == {}


@pytest.mark.parametrize(
    "facts",
    [
        {"milliseconds_per_image": "fast"},
        {"milliseconds_per_image": -1.0},
        {"milliseconds_per_image": float("nan")},
        {"seconds": float("inf")},
        {"seconds": 1e16},
        {"seconds": None},
        {"images": "many"},
        {"images": 1.5},
        {"source": 7},
        {"folder": ["a"]},
        [1],
        None,
        "ab",
    ],
    ids=str,
)
def test_facts_of_other_types_are_refused(facts: Any) -> None:
    with pytest.raises(InputError, match=r"^the facts of a model is damaged: ") as caught:
        as_facts(facts)
    assert "\n" not in str(caught.value)


def test_a_time_that_is_no_number_is_unknown(small: Path) -> None:
    update_local(small, "m1", {"milliseconds_per_image": "fast"})
    assert FeatureStore(small).milliseconds_per_image("m1") is None


def test_a_link_is_not_followed(small: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.json"
    outside.write_text('{"seconds": 3}')
    (small / "models/m1/local.json").symlink_to(outside)
    assert read_local(small, "m1") == {}
    with pytest.raises(InputError, match="is a symbolic link"):
        update_local(small, "m1", {"seconds": 4})
    assert outside.read_text() == '{"seconds": 3}'
