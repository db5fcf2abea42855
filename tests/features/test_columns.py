"""Selected columns of several models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oodzoo.errors import InputError
from oodzoo.features.columns import Columns
from oodzoo.features.source import ArraySource

DOMAINS = np.repeat(["a", "b", "c"], 4)
LABELS = np.tile([0, 1], 6)
FEATURES = {
    "one": np.random.default_rng(0).normal(size=(12, 7)),
    "two": np.random.default_rng(1).normal(size=(12, 3)),
}


def test_samples_have_the_columns_and_domains_in_order() -> None:
    columns = Columns({"two": np.array([2, 0]), "one": np.array([], dtype=int)})
    samples = columns.samples(ArraySource(FEATURES, LABELS, DOMAINS), ["c", "a"])
    assert columns.models == ("two",)
    expected = np.concatenate([FEATURES["two"][d == DOMAINS][:, [2, 0]] for d in "ca"])
    assert np.array_equal(samples.features, expected.astype(np.float32))
    assert np.array_equal(samples.labels, np.concatenate([LABELS[d == DOMAINS] for d in "ca"]))
    assert np.array_equal(samples.domains, np.repeat([0, 1], 4))


@given(st.sets(st.integers(0, 19)), st.sets(st.integers(0, 4)))
def test_columns_are_written_as_ranges(wide: set[int], narrow: set[int]) -> None:
    source = ArraySource(
        {"wide": np.ones((4, 20)), "narrow": np.ones((4, 5))}, [0, 1] * 2, list("aabb")
    )
    columns = Columns({"wide": np.array(sorted(wide)), "narrow": np.array(sorted(narrow))})
    document = columns.to_dict()
    for name, numbers in (("wide", wide), ("narrow", narrow)):
        literal: list[int] = []
        for part in filter(None, document[name].split(",")):
            first, *last = map(int, part.split("-"))
            literal += range(first, (last or [first])[0] + 1)
        assert literal == sorted(numbers)
    restored = Columns.from_dict(document, source)
    assert {name: each.tolist() for name, each in restored.by_model.items()} == {
        "wide": sorted(wide), "narrow": sorted(narrow),
    }  # fmt: skip


@pytest.mark.parametrize("text", ["5", "0-5", "1,1", "2-1,0", "-1", "a", "0-999999999", 3, None])
def test_other_columns_are_rejected(text: Any) -> None:
    source = ArraySource({"m": np.ones((4, 5))}, [0, 1] * 2, list("aabb"))
    with pytest.raises(InputError, match="the columns of the model 'm' must be ascending numbers"):
        Columns.from_dict({"m": text}, source)
