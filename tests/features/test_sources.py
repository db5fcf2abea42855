"""Arrays and stores as sources: the same features, views of domains, columns, and caching."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.store.data import flip

from oodzoo.core.errors import InputError
from oodzoo.extraction import features as module
from oodzoo.extraction.columns import Columns
from oodzoo.extraction.features import (
    ArraySource,
    FeatureSource,
    StoreSource,
    as_source,
    read_cached,
    write_cached,
)
from oodzoo.extraction.importing import import_features


def both(folder: Path) -> list[FeatureSource]:
    rng = np.random.default_rng(0)
    domains = np.repeat(["a", "b", "c"], 6)
    y = np.array(["0", "1", "2"] * 2 + ["1", "2"] * 3 + ["3", "2"] * 3)
    features = {"net": rng.normal(size=(18, 4)).astype(np.float32)}
    arrays: dict[str, Any] = {"labels": y, "domains": domains, **features}
    np.savez(folder / "f.npz", **arrays)
    store = import_features([folder / "f.npz"], folder / "store")
    return [ArraySource(features, y, domains), StoreSource(store)]


def test_only_some_domains_and_their_classes(tmp_path: Path) -> None:
    for source in both(tmp_path):
        part = source.only(["c", "b"])
        assert part.domains == ("c", "b")
        assert part.classes == ("1", "2", "3")
        assert part.labels("c").tolist() == [2, 1] * 3
        assert part.labels("b").tolist() == [0, 1] * 3
        for domain in part.domains:
            ((features, labels),) = part.shards("net", domain)
            ((same, _),) = source.shards("net", domain)
            assert np.array_equal(features, same)
            assert np.array_equal(labels, part.labels(domain))
        # what it was made of has not changed, and a part of a part is a part
        assert source.classes == ("0", "1", "2", "3")
        assert source.labels("c").tolist() == [3, 2] * 3
        assert part.only(["b"]).classes == ("1", "2")


X, Y, D = np.ones((4, 2)), [0, 1, 0, 1], list("aabb")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (({}, Y, D), "at least one model, got an empty dict"),
        (({"net": X},), "arrays need the label"),
        ((X,), r"must be a dict .* got ndarray"),
        (({"net": X[:, 0]}, Y, D), r"features of 'net' must be \(n, d\), got \(4,\)"),
        (({"net": [[1], [1, 2]]}, Y, D), "features of 'net' are not an array"),
        (({"net": X}, Y[1:], D), "y has 3 rows, 'domains' has 4"),
        (({"net": X}, Y, D, ["g"]), "y has 4 rows, 'groups' has 1"),
        (({"net": X}, [0, 1, np.nan, 1], D), r"y has no value in row 2 \(got nan\)"),
        (({"net": X}, ["a", "b", 3, "b"], D), "y mixes strings and numbers: 'a' in row 0, 3 in"),
        (({"net": X}, Y, ["a", "a", None, "b"]), "domains must be strings or integers, got None"),
        (({"net": X}, [Y], D), "y has 1 rows, 'domains' has 4"),
        (({"net": X}, [[Y]], D), r"y must have one value per sample, .* got shape \(1, 1, 4\)"),
    ],
)
def test_bad_input_is_one_line(arguments: tuple[Any, ...], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        as_source(*arguments)


def test_arrays_are_cached_for_the_domains_of_a_view(tmp_path: Path) -> None:
    _, source = both(tmp_path)
    assert isinstance(source, StoreSource)
    calls: list[tuple[str, ...]] = []

    def sizes(view: FeatureSource) -> None:
        def compute() -> dict[str, np.ndarray]:
            calls.append(view.domains)
            return {"n": np.array(len(view.domains))}

        assert view.cached("sizes", ["net"], compute)["n"] == len(view.domains)

    for _ in range(2):
        for view in (source, source.only(["a", "b"]), source.only(["b", "c"])):
            sizes(view)
    assert calls == [source.domains, ("a", "b"), ("b", "c")]


def test_arrays_and_a_store_are_seen_alike(tmp_path: Path) -> None:
    arrays, stored = both(tmp_path)
    for attribute in ("models", "domains", "classes"):
        assert getattr(arrays, attribute) == getattr(stored, attribute)
    assert arrays.facts("net") == stored.facts("net")
    for domain in arrays.domains:
        assert arrays.labels(domain).tolist() == stored.labels(domain).tolist()
        for (one, _), (other, _) in zip(
            arrays.shards("net", domain), stored.shards("net", domain), strict=True
        ):
            assert np.array_equal(one, other)
    assert arrays.provenance == {"name": "arrays"}
    assert set(stored.provenance) == {"name", "fingerprint"}


def test_a_task_that_is_not_that_of_the_source_is_refused() -> None:
    source = as_source({"net": X}, Y, D)
    with pytest.raises(InputError, match="the task is 'regression', but the store has labels for"):
        as_source(source, task="regression")


def test_the_cache_knows_the_task(tmp_path: Path) -> None:
    """Zeros and ones are the same labels as numbers, but not the same task."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, (40, 2))
    domains, net = np.repeat(["a", "b"], 20), rng.normal(size=(40, 3))
    np.savez(tmp_path / "f.npz", labels=labels, domains=domains, net=net)
    found = []
    for task in ("regression", "multilabel"):
        store = import_features([tmp_path / "f.npz"], tmp_path / task, task=task)
        source = StoreSource(store)
        source.cached("kind", ["net"], lambda: {"x": np.zeros(1)})
        found.append(sorted(path.name for path in (tmp_path / task / "cache/kind").iterdir()))
    assert found[0] != found[1]


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
    with pytest.raises(InputError, match=r"mask has 9 values, .* 5 features"):
        Columns.by_mask(source, ["m"], np.ones(9, dtype=bool))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A cache file with the key "a"."""
    path = tmp_path / "deep" / "a.npz"
    write_cached(path, "a", {"n": np.array(1), "x": np.arange(3.0)})
    return path


def test_the_same_key_is_read_and_another_is_not(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = read_cached(path, "a")
    assert found is not None
    assert {name: array.tolist() for name, array in found.items()} == {"n": 1, "x": [0, 1, 2]}
    assert read_cached(path, "b") is None
    assert read_cached(path.with_name("b.npz"), "a") is None
    write_cached(path, "b", {})
    assert read_cached(path, "b") == {}
    monkeypatch.setattr(module, "VERSION", module.VERSION + 1)
    assert read_cached(path, "b") is None


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    write_cached(tmp_path / "file" / "a.npz", "a", {})


def test_a_member_hidden_by_a_flipped_bit_is_not_left_out(path: Path) -> None:
    """The central directory of a zip file has no checksum; a length in it hides what follows."""
    with zipfile.ZipFile(path) as opened:
        flip(path, 8 * (opened.start_dir + 33) + 6)
    assert read_cached(path, "a") is None
