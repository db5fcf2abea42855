"""Damaged stores: noticed by every reader in one line, named by a check, computed again."""

from __future__ import annotations

import errno
import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from tests.features.data import Tree
from tests.store import tiny
from tests.store.data import (
    compute,
    fill,
    flip,
    image,
    letters,
    nested,
    record,
    refusal,
    require_right,
    rewrite,
    values,
)

import oodzoo
from oodzoo.core.errors import InputError
from oodzoo.core.io import locked, npy_bytes
from oodzoo.store.checking import check_store
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.format import read_local, read_manifest
from oodzoo.store.maintenance import prune_store
from oodzoo.store.shards import (
    Shard,
    ShardFile,
    checksum,
    open_shard,
    read_list,
    read_record,
    record_file,
    record_files,
    write_list,
)
from oodzoo.store.sync import Changes, sync_store
from oodzoo.store.table import ImageIndex, read_table
from oodzoo.store.writer import update_local, writing

Read = Callable[[], object]


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def file_of(store: Path, pattern: str) -> Path:
    (path,) = store.glob(pattern)
    return path


def refused(read: Read, *words: str) -> None:
    """Require an error of one line with some words."""
    message = refusal(read)
    assert message
    assert "\n" not in message
    assert all(word in message for word in words), message


def readers(store: Path) -> dict[str, Read]:
    """Use the features of a model in each possible way."""

    def gather() -> object:
        opened = FeatureStore(store)
        return opened.gather("m1", opened.images("day")[::-1], "features")

    return {
        "features": lambda: FeatureStore(store).features("m1", "day"),
        "logits": lambda: FeatureStore(store).logits("m1", "day"),
        "blocks": lambda: list(FeatureStore(store).blocks("m1", "day", rows=2)),
        "gather": gather,
        "coverage": lambda: FeatureStore(store).coverage("m1"),
        "has_features": lambda: FeatureStore(store).has_features("m1", "day"),
        "checksums": lambda: FeatureStore(store).checksums("m1", "day"),
        "fingerprint": lambda: FeatureStore(store).fingerprint,
        "is_complete": lambda: FeatureStore(store).is_complete(),
    }


def write(store: Path) -> Read:
    def write() -> None:
        with writing(store):
            pass

    return write


DOCUMENTS = {
    "manifest": "manifest.json",
    "table": "samples/00000.json",
    "index": "images/00000.json",
    "list": "models/m1/shards.*.json",
}
EACH = pytest.mark.parametrize("kind", DOCUMENTS)


@EACH
def test_flipped_bits_of_a_document_are_noticed(small: Path, kind: str) -> None:
    """Each document is read with its checksum, as long as the manifest is whole."""
    known = read_manifest(small)
    reads: dict[str, Read] = {
        "manifest": lambda: read_manifest(small),
        "table": lambda: read_table(small, "00000", known.samples),
        "index": lambda: ImageIndex.read(small, known.segments),
        "list": lambda: read_list(small, small / "models/m1", known.models["m1"].shards),
    }
    path = file_of(small, DOCUMENTS[kind])
    content = path.read_bytes()
    for bit in range(0, 8 * len(content), 15):  # in every second byte
        path.write_bytes(content)
        flip(path, bit)
        refused(reads[kind], str(small))
    refused(readers(small)["features"], "`oodzoo store ")


def put(store: Path, kind: str, content: bytes) -> None:
    """Replace a document, and correct the checksum in the manifest."""
    manifest, sha256 = store / "manifest.json", digest(content)
    if kind == "list":
        (store / f"models/m1/shards.{sha256[:16]}.json").write_bytes(content)
        rewrite(manifest, lambda m: m["models"]["m1"].update(shards=sha256))
        return
    (store / DOCUMENTS[kind]).write_bytes(content)
    if kind == "table":
        rewrite(manifest, lambda m: m.update(samples=sha256))
    if kind == "index":
        rewrite(manifest, lambda m: m.update(segments={"00000": sha256}))


@EACH
@pytest.mark.parametrize(("schema", "advice"), [(3, "upgrade oodzoo"), (1, "extract into a new")])
def test_another_schema(small: Path, tree: Tree, kind: str, schema: int, advice: str) -> None:
    content = json.loads(file_of(small, DOCUMENTS[kind]).read_bytes()) | {"schema": schema}
    put(small, kind, json.dumps(content).encode())
    refused(readers(small)["features"], f"has the schema {schema}, this version of", advice)
    if kind == "manifest":  # such a store is not repaired
        before = tree(small)
        refused(lambda: check_store(small, repair=True), advice)
        refused(write(small), advice)
        assert tree(small) == before


@EACH
@pytest.mark.parametrize("dangling", [False, True])
def test_a_document_that_is_missing_or_a_link(
    small: Path, tmp_path: Path, kind: str, dangling: bool
) -> None:
    path = file_of(small, DOCUMENTS[kind])
    content = path.read_bytes()
    path.rename(tmp_path / "outside")
    message = "lost its manifest" if kind == "manifest" else "No such file or directory; "
    refused(readers(small)["features"], message, f"`oodzoo store {'check' * (kind != 'table')}")
    if dangling:
        (tmp_path / "outside").unlink()
    path.symlink_to(tmp_path / "outside")
    refused(readers(small)["features"], "" if kind == "manifest" else "is a symbolic link")
    if kind != "list":
        refused(write(small))
    assert path.is_symlink()
    assert dangling or (tmp_path / "outside").read_bytes() == content


MANIFEST = [
    {"models": "x"}, {"models": {"m": "x"}}, {"models": {"m": {}}}, {"models": [1]},
    {"segments": 5}, {"segments": {"00000": 7}}, {"segments": {"../../outside": "0" * 64}},
    {"table": 9}, {"table": "9"}, {"table": "000000"}, {"table": "0000x"}, {"table": "00000\n"},
    {"table": "../../outside"}, {"table": "/xxxxx"}, {"samples": 9}, {"samples": "0" * 63},
    {"samples": "0" * 64 + "\n"}, {"samples": "G" * 64},
]  # fmt: skip
MODEL = [
    *({"feature_dim": n} for n in (10**15, (1 << 24) + 1, 10**400, 0, -1, 2.5, None, "wide")),
    *({"n_logits": n} for n in (10**15, 0, -1)),
    *({"dtype": name} for name in ("float64", "object", "float32\n", "O", "garbage", 7)),
    *({"shards": name} for name in ("0" * 16, None, "/../../../../../", "/" + "x" * 15)),
    {"unreadable": []}, {"unreadable": {"a": 1}}, {"versions": 1}, {"preprocessing": [1]},
    *({"preprocessing": {"mean": [float(name)]}} for name in ("NaN", "inf", "-inf")),
]  # fmt: skip


def test_a_manifest_of_other_fields(small: Path) -> None:
    whole = (small / "manifest.json").read_bytes()
    changes: list[Callable[[Any], object]] = [lambda m, c=c: m.update(c) for c in MANIFEST]  # type: ignore[misc]
    changes += [lambda m, c=c: m["models"]["m1"].update(c) for c in MODEL]  # type: ignore[misc]
    for change in changes:
        (small / "manifest.json").write_bytes(whole)
        rewrite(small / "manifest.json", change)
        for use in (readers(small)["features"], write(small)):
            refused(use, "is damaged", str(small))
    for name in ("../outside", "..", "/outside", "a/b", ".hidden", ""):
        (small / "manifest.json").write_bytes(whole)
        rewrite(
            small / "manifest.json",
            lambda m: m["models"].update({name: m["models"].pop("m1")}),  # noqa: B023
        )
        for use in (readers(small)["features"], write(small)):
            refused(use, "cannot be the name of a folder")


@pytest.mark.parametrize("name", ["models", "models/m1", "samples", "images", "models/m1/*feat*"])
def test_links_to_folders_and_features_are_not_followed(
    small: Path, tmp_path: Path, name: str
) -> None:
    for at, path in enumerate(sorted(small.glob(name))):
        path.rename(tmp_path / f"outside{at}")
        path.symlink_to(tmp_path / f"outside{at}")
    refused(readers(small)["features"], "is a symbolic link; a store contains none")


def test_a_store_that_lost_its_manifest_is_not_begun_anew(small: Path) -> None:
    (small / "manifest.json").unlink()
    for attempt in (
        lambda: fill(small, letters(day="ab"), "m1"),
        lambda: FeatureStore(small),
        lambda: prune_store(small),
    ):
        refused(attempt, f"'{small}' has lost its manifest.json", f"check {small} --repair`")
    assert not (small / "manifest.json").exists()


@pytest.mark.parametrize("order", ["same", "other"])
def test_the_images_of_a_lost_segment_come_again(tmp_path: Path, order: str) -> None:
    """In the same order the old records count; in another one they do not."""
    store = tmp_path / "store"
    fill(store, letters(day="abcde"), "m1", "m2")
    fill(store, letters(day="abcde", night="fg"), "m1", "m2")
    (store / "images/00001.json").unlink()
    if order == "other":
        ImageIndex.read(store).add(store, [[image("g"), image("f")]])
    with writing(store) as writer:
        writer.add_images()
        writer.add_model("m1", record())
        assert compute(writer, "m1") == (order == "other")
        writer.finish()
    # m2 is in the manifest of its own writer: right, or refused
    opened = FeatureStore(store)
    assert opened.models == ("m1", "m2")
    expected = {model: values(model, map(image, "fg")) for model in ("m1", "m2")}
    np.testing.assert_array_equal(opened.features("m1", "night"), expected["m1"])
    if order == "same":
        np.testing.assert_array_equal(opened.features("m2", "night"), expected["m2"])
    else:
        refused(lambda: opened.features("m2", "night"), "'m2' does not match the index", "--repair")
    fill(store, letters(day="abcde", night="fg"), "m1", "m2")
    assert require_right(store).models == ("m1", "m2")


def records(folder: Path) -> list[Shard]:
    found = [read_record(path) for path in record_files(folder)]
    return [record for record in found if record is not None]


def put_list(store: Path, model: str, shards: list[Shard]) -> None:
    sha256 = write_list(store / "models" / model, shards)
    rewrite(store / "manifest.json", lambda m: m["models"][model].update(shards=sha256))


def test_a_list_that_does_not_match_the_index_is_refused(small: Path) -> None:
    first, *others = records(small / "models/m1")
    fields: list[dict[str, Any]] = [
        *({"shard": name} for name in ("00000-00007", "00009-00000", "", "00000-00001")),
        *({"images": digest} for digest in ("", image("x")[:16])),
        {"logits": None},
        *({"absent": {at: why}} for at, why in ((5, None), (5, "cut"), (-1, None), (10**30, None))),
    ]
    for change in fields:
        put_list(small, "m1", [replace(first, **change), *others])
        name = change.get("shard", first.shard)
        where = f"the store '{small}' is damaged: the shard '{name}' of m"
        for read in readers(small).values():
            refused(read, where, f"`oodzoo store check {small} --repair`")
    expected = values("m2", map(image, "abcde"))
    np.testing.assert_array_equal(FeatureStore(small).features("m2", "day"), expected)


def test_a_list_or_record_that_names_files_elsewhere(small: Path) -> None:
    folder = small / "models/m1"
    first, *others = records(folder)
    shutil.copy(folder / first.features.file, small.parent / "x.npy")
    for output in ("features", "logits"):
        file = first.files[output]
        for name in ("../../../x.npy", "/x.npy", "model.json", f"x/{file.file}", f"{file.file}\n"):
            moved = replace(first, **{output: replace(file, file=name)})
            put_list(small, "m1", [moved, *others])
            refused(readers(small)["features"], "as a file")
            record_file(folder, first.shard).write_bytes(moved.content)
            assert read_record(record_file(folder, first.shard)) is None


@pytest.mark.parametrize(
    "fields",
    [
        *({"features": value} for value in (None, {"file": "model.json"})),
        *({"shard": name} for name in ("00000-00004", "../00000-00000")),
        *({"absent": {"x": None}}, {"model": "0" * 16}, {"images": "0" * 16}, {"sha256": "0" * 64}),
    ],
    ids=str,
)
def test_a_record_of_something_else_does_not_count(small: Path, fields: dict[str, Any]) -> None:
    """Its shard is computed again."""
    path = small / "models/m1/00000-00000.json"
    if "sha256" in fields:
        path.write_text(json.dumps(json.loads(path.read_text()) | fields))
    else:
        rewrite(path, lambda document: document.update(fields))
    file_of(small, "models/m1/shards.*.json").unlink()
    with writing(small) as writer:
        assert list(writer.records("m1")) == ["00000-00001"]
        assert [s.name for s in writer.plan(["m1"], writer.index.images())] == ["00000-00000"]
        writer.add_model("m1", record())
        assert writer.finish() == ["m1"]
        compute(writer, "m1")
        writer.finish()
    assert require_right(small).models == ("m1", "m2")


@pytest.mark.parametrize("output", ["features", "logits"])
def test_every_flipped_bit_of_features_is_refused(small: Path, output: str) -> None:
    path = file_of(small, f"models/m1/00000-00000.{output}.*.npy")
    content, store = path.read_bytes(), FeatureStore(small)
    store.features("m1", "day")  # verified before: it is verified again
    for bit in range(0, 8 * len(content), 3):
        path.write_bytes(content)
        flip(path, bit)
        advice = ("is damaged", f"`oodzoo store check {small} --repair`")
        refused(lambda: store.gather("m1", store.images("day"), output), *advice)
        if bit % 303 == 0 and output == "features":
            for use in ("features", "blocks", "gather"):
                refused(readers(small)[use], *advice)
    # other domains, models and outputs can be read
    for model, domain in (("m1", "night"), ("m2", "day"), ("m2", "night")):
        expected = values(model, store.images(domain), output)
        np.testing.assert_array_equal(store.gather(model, store.images(domain), output), expected)


def opened(folder: Path, content: bytes) -> np.ndarray[Any, Any]:
    """Open bytes as a file of a shard with a right checksum."""
    (folder / "a.npy").write_bytes(content)
    file = ShardFile("a.npy", digest(content), checksum(content))
    return open_shard(folder, folder / "a.npy", file, (4, 3), "float32")


def test_other_arrays_with_a_right_checksum(tmp_path: Path) -> None:
    """The writer of the checksum may have read a damaged file: nothing but the array is given."""
    plain = npy_bytes(np.arange(12, dtype=np.float32).reshape(4, 3))
    for shape, dtype in (((4, 4), "f4"), ((3, 3), "f4"), (12, "f4"), ((4, 3), "f8")):
        content = npy_bytes(np.zeros(shape, dtype))
        refused(lambda: opened(tmp_path, content), "instead of float32 (4, 3)", "--rep")  # noqa: B023
    for content in (
        plain.replace(b"'<f4'", b"'|O' "),
        plain.replace(b"'fortran_order': False", b"'fortran_order': True "),
        plain[:6] + b"\x03" + plain[7:],
        *(b"", b"\x93NUMPY", bytes(range(256))),
    ):
        refused(lambda: opened(tmp_path, content), "is damaged", "--repair`")  # noqa: B023


def test_damaged_facts_count_as_none(small: Path) -> None:
    for content in (
        *(b"", b"7", b"[1]", b"\xff", nested().encode(), b'{"seconds": NaN}', b'{"seconds": -1}'),
        *(b'{"seconds": 1e16}', b'{"milliseconds_per_image": "fast"}', b'{"images": 1.5}'),
        *(b'{"milliseconds_per_image": -1.0}', b'{"source": {"a": 1}}', b'{"folder": ["a"]}'),
    ):
        (small / "models/m1/local.json").write_bytes(content)
        assert read_local(small, "m1") == {}
        assert FeatureStore(small).milliseconds_per_image("m1") is None
        update_local(small, "m1", {"images": 9})
        assert read_local(small, "m1") == {"images": 9}


FILES = 15
"""The manifest, the table, a segment, two descriptions of models, two lists of shards, and the
features and logits of two models in two domains."""


def flip_near_the_end(path: Path) -> None:
    flip(path, 8 * path.stat().st_size - 20)  # an array still opens


DAMAGES: dict[str, Callable[[Path], object]] = {
    "flip": flip_near_the_end,
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-10]),
    "remove": lambda path: path.unlink(),
}
KINDS = {
    "manifest": "manifest.json",
    "table": "samples/*.json",
    "segment": "images/00000.json",
    "list": "models/a/shards.*.json",
    "record": "models/a/00000-00001.json",
    "model": "models/a/model.json",
    "features": "models/a/00000-00001.features.*.npy",
    "logits": "models/a/00000-00001.logits.*.npy",
}


def require_sound(store: Path) -> None:
    found = check_store(store)
    assert (found.damage, found.unfinished) == ((), ())


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("kind", KINDS)
def test_damage_is_named_and_repaired(
    tiny_store: Path, images: Path, tree: Tree, kind: str, damage: str
) -> None:
    """By the next extraction, or by `sync` if the table is lost; nothing else is computed."""
    whole, before = tree(tiny_store), tiny.content(tiny_store)
    times = {file: file.stat().st_mtime_ns for file in tiny_store.rglob("*.npy")}
    file = file_of(tiny_store, KINDS[kind])
    DAMAGES[damage](file)
    found = [entry.path for entry in check_store(tiny_store, repair=True).damage]
    name = file.relative_to(tiny_store).as_posix()
    if (kind, damage) not in (("record", "remove"), ("model", "remove")):
        # without a segment its models count no more, nor do lists without it
        assert name in found if kind == "segment" else found == [name]
    again = check_store(tiny_store).damage
    assert [entry.path for entry in again] == ([name] if kind == "table" else [])
    if kind == "table":
        assert "oodzoo store sync" in again[0].problem
        assert sync_store(tiny_store, images) == Changes(added=18, table_lost=True)
    elif kind not in ("manifest", "segment"):
        assert FeatureStore(tiny_store).models in (("b",), ("a", "b"))
    done = tiny.extract(images, ["a", "b"], tiny_store)
    assert done.shards == (kind in ("features", "logits") or (kind == "record" and done.shards))
    prune_store(tiny_store, cache=True)
    assert tiny.content(tiny_store) == before
    if kind not in ("table", "segment"):
        assert tree(tiny_store) == whole
        kept = {f: t for f, t in times.items() if not f.name.startswith("00000-00001")}
        assert {f: f.stat().st_mtime_ns for f in kept} == kept
    require_sound(tiny_store)


def test_a_damaged_cache(tiny_store: Path, tmp_path: Path) -> None:
    before = oodzoo.rank(tiny_store).to_dict()
    files = sorted((tiny_store / "cache").rglob("*.npz"))
    assert check_store(tiny_store).files == FILES + len(files)
    DAMAGES["cut"](files[0])
    (found,) = check_store(tiny_store).damage
    assert found.path == files[0].relative_to(tiny_store).as_posix()
    assert "does not match its checksum" in found.problem
    assert oodzoo.rank(tiny_store).to_dict() == before
    require_sound(tiny_store)
    DAMAGES["flip"](files[0])
    check_store(tiny_store, repair=True)
    assert not files[0].exists()
    require_sound(tiny_store)
    # behind a link it is neither read nor written
    outside = (tiny_store / "cache").rename(tmp_path / "outside")
    files = [path for path in outside.rglob("*") if path.is_file()]
    for path in files:
        path.write_bytes(b"not of this store")
    (tiny_store / "cache").symlink_to(outside)
    assert oodzoo.rank(tiny_store).to_dict() == before
    assert {path.read_bytes() for path in files} == {b"not of this store"}
    assert [path for path in outside.rglob("*") if path.is_file()] == files
    require_sound(tiny_store)


def test_other_commands_do_not_hide_damage(tiny_store: Path, images: Path) -> None:
    """A flipped bit does not get a checksum of its own."""
    file = file_of(tiny_store, KINDS["features"])
    flip_near_the_end(file)
    tiny.extract(images, ["a", "b", "c"], tiny_store)
    (images / "day/cat/0.png").unlink()
    sync_store(tiny_store, images)
    name = file.relative_to(tiny_store).as_posix()
    assert [entry.path for entry in check_store(tiny_store).damage] == [name]
    (images / "night/cat/0.png").unlink()
    sync_store(tiny_store, images)
    refused(lambda: prune_store(tiny_store), "is damaged")  # its rows are not copied


def test_files_that_cannot_be_read_now_are_not_removed(
    tiny_store: Path, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Missing rights, a disk that does not answer, or another writer, are no damage."""
    file = file_of(tiny_store, KINDS["features"])
    before, open_file = tree(tiny_store), Path.open

    def refuse(self: Path, *arguments: Any, **options: Any) -> Any:
        if self == file:
            raise PermissionError(errno.EACCES, "Permission denied", str(self))
        return open_file(self, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", refuse)
        refused(
            lambda: check_store(tiny_store, repair=True), "Permission denied; nothing was repaired"
        )
    assert tree(tiny_store) == before
    flip_near_the_end(file)
    with locked(tiny_store, shared=True):
        assert len(check_store(tiny_store).damage) == 1
        with pytest.raises(InputError, match="is being written by another process"):
            check_store(tiny_store, repair=True)
    assert file.exists()
