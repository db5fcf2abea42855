"""Rows of images from the shards of a model, in any order."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.store.data import fill, image, letters, literal, record, value, values

from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.rows import gather_rows
from oodzoo.store.shards import read_record


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four shards: two domains, and a second extraction with one more image in each."""
    store = tmp_path_factory.mktemp("rows") / "store"
    fill(store, letters(day="bcd", night="fgh"), "m", undecodable=[image("c")])
    return fill(store, letters(day="abcd", night="efgh"), "m", undecodable=[image("c")])


@given(st.lists(st.sampled_from("abdefgh"), max_size=30), st.sampled_from(["features", "logits"]))
def test_any_rows_in_any_order(filled: Path, names: str, output: str) -> None:
    images = [image(name) for name in names]
    found = FeatureStore(filled).gather("m", images, output)
    assert found.dtype == np.float32
    by_hand = literal(filled, "m", output)
    width = {"features": 3, "logits": 2}[output]
    expected = np.array([by_hand[identity] for identity in images], np.float32)
    np.testing.assert_array_equal(found, expected.reshape(-1, width))
    np.testing.assert_array_equal(found, values("m", images, output).reshape(-1, width))


def test_places_are_followed(filled: Path) -> None:
    folder = filled / "models/m"
    shards = [read_record(path) for path in sorted(folder.glob("0*-0*.json"))]
    index = {"00000-00000": [""] * 3, "00000-00001": [""] * 3, "00001-00000": [""]}
    places = np.array([(1, 2), (0, 0), (0, 1), (1, 0), (2, 0), (2, 0)])  # shard and row
    known = [shard for shard in shards if shard is not None]
    found = gather_rows(filled, folder, record(), known, index, places, "features")
    expected = [value("m", image(name)) for name in "hbdfaa"]
    np.testing.assert_array_equal(found, expected)


def test_no_rows(filled: Path) -> None:
    assert FeatureStore(filled).gather("m", [], "features").shape == (0, 3)


def test_rows_are_copies(filled: Path) -> None:
    """A caller may change what it got."""
    store = FeatureStore(filled)
    store.features("m", "day")[:] = 7
    np.testing.assert_array_equal(store.features("m", "day"), values("m", map(image, "abd")))
