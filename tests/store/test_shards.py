"""Shard files and their records: written once, verified when they are read."""

from __future__ import annotations

import hashlib
import json
import os
import random
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.store.data import Array, flip, image, nested, refusal, rewrite, values

from oodzoo._io import npy_bytes
from oodzoo.errors import InputError
from oodzoo.store.shards import (
    Shard,
    ShardFile,
    checksum,
    has_records,
    images_digest,
    list_file,
    open_shard,
    read_list,
    read_record,
    record_file,
    record_files,
    write_list,
    write_shard,
)

SHARD = "00000-00003"
IMAGES = [image(name) for name in "abcdef"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store/models/m"


def outputs(names: str = "abcd") -> dict[str, Array]:
    images = [image(name) for name in names]
    return {output: values("m", images, output) for output in ("features", "logits")}


def written(
    folder: Path, names: str = "abcd", model: str = "id", images: list[str] = IMAGES
) -> Shard:
    write_shard(folder, SHARD, images, model, outputs(names), {4: "truncated", 5: None})
    record = read_record(record_file(folder, SHARD))
    assert record is not None
    return record


def opened(folder: Path, file: ShardFile, shape: tuple[int, int] = (4, 3)) -> Array:
    return open_shard(folder.parents[1], folder / file.file, file, shape, "float32")


# --- writing ---------------------------------------------------------------------------------


def test_the_format(folder: Path) -> None:
    written(folder)
    document = json.loads((folder / f"{SHARD}.json").read_text())
    assert set(document) == {"shard", "model", "images", "absent", "features", "logits", "sha256"}
    stated = document.pop("sha256")
    text = json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    assert stated == hashlib.sha256(text.encode()).hexdigest()
    assert document["shard"] == SHARD
    assert document["model"] == "id"
    assert document["images"] == hashlib.sha256("\n".join(IMAGES).encode()).hexdigest()[:16]
    assert document["absent"] == {"4": "truncated", "5": None}
    for output, array in outputs().items():
        stated = document[output]
        content = (folder / stated["file"]).read_bytes()
        assert stated["sha256"] == hashlib.sha256(content).hexdigest()
        assert stated["xxh3"] == checksum(content)
        assert stated["file"] == f"{SHARD}.{output}.{stated['sha256'][:16]}.npy"
        np.testing.assert_array_equal(np.load(folder / stated["file"]), array)
    assert len(list(folder.iterdir())) == 3


def test_a_model_without_logits(folder: Path) -> None:
    write_shard(folder, SHARD, IMAGES[:4], "id", {"features": outputs()["features"]}, {})
    record = read_record(record_file(folder, SHARD))
    assert record is not None
    assert set(record.files) == {"features"}
    assert record.absent == {}
    assert len(list(folder.iterdir())) == 2


def test_the_same_shard_again_changes_nothing(folder: Path) -> None:
    first = written(folder)
    before = record_file(folder, SHARD).stat().st_ino
    assert written(folder) == first
    assert record_file(folder, SHARD).stat().st_ino == before
    assert len(list(folder.iterdir())) == 3


def test_of_two_processes_the_first_counts(folder: Path) -> None:
    """Another machine may compute other last digits: its files are removed again."""
    first = written(folder)
    files = sorted(folder.iterdir())
    assert written(folder, "wxyz") == first
    assert sorted(folder.iterdir()) == files


@pytest.mark.parametrize(
    "damage",
    [b"", b"{", b"[]", b'{"shard": "00000-00003"}', pytest.param(nested().encode(), id="nested")],
)
def test_a_damaged_record_is_replaced(folder: Path, damage: bytes) -> None:
    first = written(folder)
    record_file(folder, SHARD).write_bytes(damage)
    assert read_record(record_file(folder, SHARD)) is None
    assert written(folder) == first


def test_the_record_of_another_model_is_replaced(folder: Path) -> None:
    written(folder)
    other = written(folder, "wxyz", model="other")
    assert other.model == "other"
    np.testing.assert_array_equal(opened(folder, other.features), outputs("wxyz")["features"])


@pytest.mark.parametrize("images", [IMAGES[::-1], IMAGES[:-1], [*IMAGES, image("g")], []])
def test_the_record_of_other_images_is_replaced(folder: Path, images: list[str]) -> None:
    """A lost segment of the index had the same number."""
    assert images_digest(images) != images_digest(IMAGES)
    written(folder, images=images)
    other = written(folder, "wxyz")
    assert other.images == images_digest(IMAGES)
    np.testing.assert_array_equal(opened(folder, other.features), outputs("wxyz")["features"])


def test_a_record_without_its_files_is_replaced(folder: Path) -> None:
    first = written(folder)
    (folder / first.files["logits"].file).unlink()
    other = written(folder, "wxyz")
    np.testing.assert_array_equal(
        opened(folder, other.files["logits"], (4, 2)), outputs("wxyz")["logits"]
    )


def test_links_are_not_followed_for_writing(folder: Path, tmp_path: Path) -> None:
    record = written(folder)
    outside = tmp_path / "outside"
    for name in (record.features.file, f"{SHARD}.json"):
        outside.write_text("mine")
        (folder / name).unlink()
        (folder / name).symlink_to(outside)
        with pytest.raises(InputError, match="is a symbolic link"):
            written(folder)
        assert outside.read_text() == "mine"
        (folder / name).unlink()


# --- records and lists -----------------------------------------------------------------------


def test_a_flipped_bit_of_any_byte_of_a_record_is_noticed(folder: Path) -> None:
    first = written(folder)
    path = record_file(folder, SHARD)
    content = path.read_bytes()
    assert content == first.content
    for bit in range(0, 8 * len(content), 3):  # one or more of each byte
        path.write_bytes(content)
        flip(path, bit)
        assert read_record(path) is None


def test_a_record_without_a_checksum_is_none(folder: Path) -> None:
    written(folder)
    path = record_file(folder, SHARD)
    document = json.loads(path.read_text())
    for stated in (None, "", "0" * 64, 7):
        path.write_text(json.dumps(document | {"sha256": stated}))
        assert read_record(path) is None
    del document["sha256"]
    path.write_text(json.dumps(document))
    assert read_record(path) is None


@pytest.mark.parametrize(
    "fields",
    [
        {"features": {"file": "../../../x.npy", "sha256": "0", "xxh3": "0"}},
        {"features": {"file": "/x.npy", "sha256": "0", "xxh3": "0"}},
        {"features": {"file": "model.json", "sha256": "0", "xxh3": "0"}},
        {"logits": {"file": f"../{SHARD}.logits.0123456789abcdef.npy", "sha256": "0", "xxh3": "0"}},
        {"features": None},
        {"features": 7},
        {"shard": "00000-00004"},
        {"shard": "../00000-00003"},
        {"absent": {"x": None}},
        {"absent": [1]},
        {"images": 7},
        {"model": None},
    ],
)
def test_other_content_with_a_right_checksum_is_no_record(
    folder: Path, fields: dict[str, Any]
) -> None:
    first = written(folder)
    path = record_file(folder, SHARD)
    rewrite(path, lambda document: None)
    assert read_record(path) == first
    rewrite(path, lambda document: document.update(fields))
    assert read_record(path) is None


def test_no_record(folder: Path) -> None:
    assert read_record(record_file(folder, SHARD)) is None
    assert not has_records(folder)
    assert record_files(folder) == []


def test_records_are_found_by_their_names(folder: Path) -> None:
    written(folder)
    for name in ("model.json", "local.json", "shards.0123456789abcdef.json", "0-0.json", ".tmp-x"):
        (folder / name).touch()
    assert record_files(folder) == [record_file(folder, SHARD)]
    assert has_records(folder)


def test_a_list_is_read_as_it_was_written(folder: Path) -> None:
    records = [written(folder)]
    digest = write_list(folder, records)
    path = list_file(folder, digest)
    assert path.name == f"shards.{digest[:16]}.json"
    assert hashlib.sha256(path.read_bytes()).hexdigest() == digest
    assert json.loads(path.read_text())["schema"] == 2
    assert read_list(folder.parents[1], folder, digest) == records
    inode = path.stat().st_ino
    assert write_list(folder, records) == digest
    assert path.stat().st_ino == inode
    flip(path, 99)
    assert write_list(folder, records) == digest
    assert read_list(folder.parents[1], folder, digest) == records


def test_a_flipped_bit_of_any_byte_of_a_list_is_noticed(folder: Path) -> None:
    digest = write_list(folder, [written(folder)])
    path = list_file(folder, digest)
    content = path.read_bytes()
    store = folder.parents[1]
    for bit in range(0, 8 * len(content), 3):  # one or more of each byte
        path.write_bytes(content)
        flip(path, bit)
        with pytest.raises(InputError, match=rf"`oodzoo store check {store} --repair`") as caught:
            read_list(store, folder, digest)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["../x.npy", "/x.npy", "model.json", f"x/{SHARD}.npy"])
def test_a_list_that_names_files_elsewhere_is_refused(folder: Path, name: str) -> None:
    folder.mkdir(parents=True)
    good = ShardFile(f"{SHARD}.features.0123456789abcdef.npy", "0", "0")
    for record in (
        Shard(SHARD, ShardFile(name, "0", "0")),
        Shard(SHARD, good, ShardFile(name, "0", "0")),
    ):
        digest = write_list(folder, [record])
        with pytest.raises(InputError, match=rf"names '{name}' as a file"):
            read_list(folder.parents[1], folder, digest)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(nested(), id="nested"),
        '{"schema": 2, "shards": [{"shard": "00000-00000", "features": NaN}]}',
        '{"schema": 2, "shards": [{"shard": "00000-00000"}]}',
        '{"schema": 2, "shards": 7}',
        '{"schema": 2}',
    ],
)
def test_a_list_of_other_content_with_a_right_checksum(folder: Path, content: str) -> None:
    folder.mkdir(parents=True)
    digest = hashlib.sha256(content.encode()).hexdigest()
    path = list_file(folder, digest)
    path.write_text(content)
    with pytest.raises(InputError, match=rf"^the list of shards '{path}' is damaged") as caught:
        read_list(folder.parents[1], folder, digest)
    assert "\n" not in str(caught.value)


# --- reading ---------------------------------------------------------------------------------


def test_a_shard_is_a_read_only_memory_map(folder: Path) -> None:
    record = written(folder)
    array = opened(folder, record.features)
    assert isinstance(array, np.memmap)
    np.testing.assert_array_equal(array, outputs()["features"])
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 0


def test_every_flipped_bit_is_noticed(folder: Path) -> None:
    """All bits of the header, those of the first and last row, and some of the others."""
    record = written(folder)
    path = folder / record.features.file
    content = path.read_bytes()
    assert len(content) == 128 + 4 * 3 * 4
    store = folder.parents[1]
    for bit in range(8 * len(content)):
        path.write_bytes(content)
        flip(path, bit)
        with pytest.raises(InputError, match=r"is damaged \(its checksum is .* expected") as caught:
            opened(folder, record.features)
        assert "\n" not in str(caught.value)
        assert f"`oodzoo store check {store} --repair`" in str(caught.value)
    path.write_bytes(content)
    np.testing.assert_array_equal(opened(folder, record.features), outputs()["features"])


@pytest.mark.parametrize("size", [0, 1, 127, 128, 175])
def test_a_cut_file(folder: Path, size: int) -> None:
    record = written(folder)
    os.truncate(folder / record.features.file, size)
    with pytest.raises(InputError, match=r"is damaged \(.*`oodzoo store check") as caught:
        opened(folder, record.features)
    assert "\n" not in str(caught.value)


def test_a_missing_file(folder: Path) -> None:
    record = written(folder)
    (folder / record.features.file).unlink()
    with pytest.raises(InputError, match=r"is missing; .*`oodzoo store check .* --repair`"):
        opened(folder, record.features)


def test_a_folder_instead_of_a_file(folder: Path) -> None:
    record = written(folder)
    (folder / record.features.file).unlink()
    (folder / record.features.file).mkdir()
    with pytest.raises(InputError, match=r"is damaged"):
        opened(folder, record.features)


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((4, 4), np.float32),
        np.zeros((3, 3), np.float32),
        np.zeros(12, np.float32),
        np.zeros((4, 3), np.float64),
        np.zeros((4, 3), ">f4"),
        np.zeros((4, 3), np.int32),
    ],
)
def test_another_shape_or_type_with_a_right_checksum(folder: Path, array: Array) -> None:
    folder.mkdir(parents=True)
    content = npy_bytes(array)
    (folder / "a.npy").write_bytes(content)
    file = ShardFile("a.npy", hashlib.sha256(content).hexdigest(), checksum(content))
    with pytest.raises(InputError, match=r"contains .* instead of float32 \(4, 3\); .*--repair"):
        opened(folder, file)


def test_other_headers_with_a_right_checksum(folder: Path) -> None:
    """An array of objects, a Fortran order, another version or garbage: never interpreted."""
    folder.mkdir(parents=True)
    plain = npy_bytes(outputs()["features"])
    rng = random.Random(0)
    objects = plain.replace(b"'<f4'", b"'|O' ")
    fortran = plain.replace(b"'fortran_order': False", b"'fortran_order': True ")
    version = plain[:6] + b"\x03" + plain[7:]
    contents = [objects, fortran, version, b"", b"\x93NUMPY", rng.randbytes(500)]
    for at, content in enumerate(contents):
        path = folder / f"{at}.npy"
        path.write_bytes(content)
        file = ShardFile(path.name, hashlib.sha256(content).hexdigest(), checksum(content))
        with pytest.raises(InputError, match="is damaged") as caught:
            opened(folder, file)
        assert "\n" not in str(caught.value)


def test_every_flipped_bit_of_a_header_with_a_right_checksum(folder: Path) -> None:
    """The writer of the checksum may have read a damaged file: nothing but the array is given."""
    folder.mkdir(parents=True)
    plain = npy_bytes(outputs()["features"])
    path = folder / "a.npy"
    for bit in range(8 * 128):
        path.write_bytes(plain)
        flip(path, bit)
        content = path.read_bytes()
        file = ShardFile(path.name, hashlib.sha256(content).hexdigest(), checksum(content))
        message = refusal(partial(opened, folder, file))
        assert "\n" not in message
        if not message:
            np.testing.assert_array_equal(opened(folder, file), outputs()["features"])


def test_links_are_not_followed_for_reading(folder: Path, tmp_path: Path) -> None:
    record = written(folder)
    digest = write_list(folder, [record])
    for name in (record.features.file, f"shards.{digest[:16]}.json"):
        (folder / name).rename(tmp_path / name)
        (folder / name).symlink_to(tmp_path / name)
    with pytest.raises(InputError, match="is a symbolic link"):
        read_list(folder.parents[1], folder, digest)
    with pytest.raises(InputError, match="is a symbolic link"):
        opened(folder, record.features)


def test_a_file_is_verified_once_and_again_when_it_changes(folder: Path) -> None:
    """Only what the content cannot show is skipped: here, a flip that keeps the time of change."""
    record = written(folder)
    path = folder / record.features.file
    opened(folder, record.features)
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\x99")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert opened(folder, record.features)[-1, -1] != outputs()["features"][-1, -1]
    os.utime(path)
    with pytest.raises(InputError, match="is damaged"):
        opened(folder, record.features)
