"""The manifest: content, checksum, and what it may name."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.store.data import fill, flip, image, letters, nested, record, rewrite

from oodzoo.errors import InputError
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.manifest import IDENTITY, Manifest, read_manifest
from oodzoo.store.writer import writing


def example() -> Manifest:
    known = record(versions={"numpy": "2.0"})
    return Manifest(
        table="00007",
        samples=image("table"),
        segments={"00000": image("s")},
        models={"m": known.stored("m", image("list"), {image("a"): "truncated"})},
    )


def test_a_manifest_is_read_as_it_was_written(tmp_path: Path) -> None:
    for manifest in (example(), Manifest()):
        manifest.write(tmp_path)
        assert read_manifest(tmp_path) == manifest


def test_the_format(tmp_path: Path) -> None:
    example().write(tmp_path)
    document = json.loads((tmp_path / "manifest.json").read_text())
    stated = document.pop("sha256")
    text = json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    assert stated == hashlib.sha256(text.encode()).hexdigest()
    assert document["schema"] == 2
    assert set(document) == {"schema", "table", "samples", "segments", "models"}
    assert (document["table"], document["samples"]) == ("00007", image("table"))
    (model,) = document["models"].values()
    assert model["shards"] == image("list")
    assert model["unreadable"] == {image("a"): "truncated"}
    assert model["spec"] is None
    assert "name" not in model


def test_skipped_images_are_those_that_a_model_could_not_decode() -> None:
    none = record().stored("m0", image("list"))
    one = record().stored("m1", image("list"), {image("a"): "truncated"})
    two = record().stored("m2", image("list"), {image("b"): "empty", image("a"): "truncated"})
    assert Manifest().skipped == Manifest(models={"m0": none}).skipped == {}
    skipped = Manifest(models={"m0": none, "m1": one, "m2": two}).skipped
    assert skipped == {image("a"): "truncated", image("b"): "empty"}


def test_a_manifest_is_created_once(tmp_path: Path) -> None:
    Manifest().create(tmp_path)
    example().create(tmp_path)
    assert read_manifest(tmp_path) == Manifest()


def test_a_manifest_of_models_without_a_table(tmp_path: Path) -> None:
    store = fill(tmp_path / "s", letters(day="ab", night="cd"), "m")
    rewrite(store / "manifest.json", lambda document: document.update(table=None, samples=None))
    with pytest.raises(InputError, match="names no table of samples; restore it with `oodzoo sto"):
        FeatureStore(store)


def test_a_flipped_bit_of_any_byte_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    example().write(tmp_path)
    content = path.read_bytes()
    for bit in range(0, 8 * len(content), 3):  # one or more of each byte
        path.write_bytes(content)
        flip(path, bit)
        with pytest.raises(InputError) as caught:
            read_manifest(tmp_path)
        assert "\n" not in str(caught.value)
        assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        b'{"schema": 2}',
        b"null",
        b'{"schema": NaN}',
        b'{"schema": 2, "models": -Infinity}',
        pytest.param(nested().encode(), id="nested"),
    ],
)
def test_damaged_json(small: Path, tmp_path: Path, content: bytes) -> None:
    store = small.rename(tmp_path / "my store")
    (store / "manifest.json").write_bytes(content)
    for attempt in (FeatureStore, _open):
        with pytest.raises(InputError, match=r"^the manifest .*'.*my store.*is damaged") as caught:
            attempt(store)
        message = str(caught.value)
        assert "\n" not in message
        assert message.endswith(f"; restore it with `oodzoo store check '{store}' --repair`")


@pytest.mark.parametrize("name", ["NaN", "Infinity", "-Infinity"])
def test_a_number_that_json_does_not_have(small: Path, name: str) -> None:
    """Written into a checksummed manifest by another program."""
    path = small / "manifest.json"
    rewrite(path, lambda m: m["models"]["m1"].update(preprocessing={"mean": [float(name)]}))
    assert f" {name}\n" in path.read_text()
    for attempt in (FeatureStore, _open):
        with pytest.raises(InputError, match=f"is damaged: {name} is not a JSON number") as caught:
            attempt(small)
        assert "\n" not in str(caught.value)


def _open(store: Path) -> None:
    with writing(store):
        pass


@pytest.mark.parametrize(
    "change",
    [
        {"models": "x"},
        {"models": {"m": "x"}},
        {"models": {"m": {}}},
        {"models": [1]},
        {"segments": 5},
        {"segments": {"00000": 7}},
        {"models": {"m": record().identity}},
        {"table": 9},
        {"table": "9"},
        {"table": "000000"},
        {"table": "0000x"},
        {"table": "00000\n"},
        {"samples": 9},
        {"samples": "0" * 63},
        {"samples": "0" * 64 + "\n"},
        {"samples": "G" * 64},
    ],
)
def test_other_content_with_a_right_checksum(small: Path, change: dict[str, Any]) -> None:
    rewrite(small / "manifest.json", lambda document: document.update(change))
    for attempt in (FeatureStore, _open):
        with pytest.raises(InputError, match="is damaged") as caught:
            attempt(small)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        {"feature_dim": 10**15},
        {"feature_dim": (1 << 24) + 1},
        {"feature_dim": 10**400},
        {"feature_dim": 0},
        {"feature_dim": -1},
        {"feature_dim": 2.5},
        {"feature_dim": None},
        {"feature_dim": "wide"},
        {"n_logits": 10**15},
        {"n_logits": 0},
        {"n_logits": -1},
        {"dtype": "float64"},
        {"dtype": "object"},
        {"dtype": "float32\n"},
        {"dtype": "O"},
        {"dtype": "garbage"},
        {"dtype": 7},
        {"shards": "0" * 16},
        {"shards": None},
        {"unreadable": []},
        {"unreadable": {"a": 1}},
        {"versions": 1},
        {"preprocessing": [1]},
    ],
    ids=lambda change: str(change)[:40],
)
def test_a_model_of_other_content_with_a_right_checksum(
    small: Path, change: dict[str, Any]
) -> None:
    rewrite(small / "manifest.json", lambda m: m["models"]["m1"].update(change))
    for attempt in (FeatureStore, _open):
        with pytest.raises(InputError, match=r"is damaged: .*(models|out of range)") as caught:
            attempt(small)
        assert str(small) in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_manifest_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"name": "my page"}')
    for attempt in (read_manifest, FeatureStore, _open):
        with pytest.raises(InputError) as caught:
            attempt(tmp_path)
        expected = f"'{tmp_path / 'manifest.json'}' is not the manifest of a feature store"
        assert str(caught.value) == expected


@pytest.mark.parametrize(
    ("schema", "advice"),
    [(3, "upgrade oodzoo"), (1, "extract into a"), ("x", "extract into a")],
)
def test_another_schema(small: Path, schema: Any, advice: str) -> None:
    rewrite(small / "manifest.json", lambda document: document.update(schema=schema))
    for attempt in (FeatureStore, _open):
        with pytest.raises(InputError, match=rf"has the schema {schema!r}.*{advice}"):
            attempt(small)


# --- names -----------------------------------------------------------------------------------


def _renamed(part: str, old: str | None, new: str) -> Any:
    def change(document: Any) -> None:
        names = document[part]
        key = old or next(iter(names))
        names[new] = names.pop(key)

    return change


@pytest.mark.parametrize("name", ["../outside", "..", "/outside", "a/b", ".hidden", ""])
def test_a_model_outside_the_store_is_refused(small: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(small / "models/m1", tmp_path / "outside")
    rewrite(small / "manifest.json", _renamed("models", "m1", name))
    for attempt in (FeatureStore, _open):
        with pytest.raises(InputError, match="cannot be the name of a folder"):
            attempt(small)


@pytest.mark.parametrize("absolute", [False, True])
def test_a_segment_outside_the_store_is_refused(
    small: Path, tmp_path: Path, absolute: bool
) -> None:
    (small / "images/00000.json").rename(tmp_path / "outside.json")
    name = str(tmp_path / "outside") if absolute else "../../outside"
    rewrite(small / "manifest.json", _renamed("segments", None, name))
    with pytest.raises(InputError, match="is damaged") as caught:
        FeatureStore(small)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("absolute", [False, True])
def test_a_table_outside_the_store_is_refused(small: Path, tmp_path: Path, absolute: bool) -> None:
    name = "/" + "x" * 15 if absolute else "../../outside.js"
    assert len(name) == 16
    rewrite(small / "manifest.json", lambda document: document.update(table=name))
    with pytest.raises(InputError, match="is damaged") as caught:
        FeatureStore(small)
    assert "\n" not in str(caught.value)
    assert "cannot read" not in str(caught.value)


@pytest.mark.parametrize("absolute", [False, True])
def test_a_list_outside_the_store_is_refused(small: Path, absolute: bool) -> None:
    name = "/../../../../../" if not absolute else "/" + "x" * 15
    rewrite(small / "manifest.json", lambda document: document["models"]["m1"].update(shards=name))
    with pytest.raises(InputError, match="is damaged") as caught:
        FeatureStore(small).features("m1", "day")
    assert "cannot read" not in str(caught.value)


@pytest.mark.parametrize("dangling", [False, True])
def test_a_link_is_not_followed(small: Path, tmp_path: Path, dangling: bool) -> None:
    outside = tmp_path / "outside.json"
    (small / "manifest.json").rename(outside)
    content = outside.read_bytes()
    if dangling:
        outside.unlink()
    (small / "manifest.json").symlink_to(outside)
    for attempt in (FeatureStore, _open, lambda store: example().write(store)):
        with pytest.raises(InputError):
            attempt(small)
    assert (small / "manifest.json").is_symlink()
    assert outside.exists() is not dangling
    assert dangling or outside.read_bytes() == content


# --- models ----------------------------------------------------------------------------------


def test_the_identity_of_a_model_is_what_determines_its_features() -> None:
    known = record()
    other: dict[str, Any] = {
        "fingerprint": "g",
        "feature_dim": 4,
        "n_logits": None,
        "precision": "float16",
        "dtype": "float16",
        "preprocessing": {"mean": [0.0]},
    }
    assert set(other) == set(IDENTITY)
    found = {record(**{key: value}).identity for key, value in other.items()}
    assert len(found | {known.identity}) == 7
    rest = record(source="x", parameters=9, pretraining="y", licence="z", versions={"a": "1"})
    assert rest.identity == known.identity


def test_widths() -> None:
    assert record().widths == {"features": 3, "logits": 2}
    assert record(n_logits=None).widths == {"features": 3}
