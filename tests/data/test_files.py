"""Where the bytes of an image are; reading, hashing and inspecting them."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import msgspec
import pytest
from PIL import Image

from oodzoo.core.errors import InputError
from oodzoo.core.remote.location import Url
from oodzoo.core.remote.objects import find_file, remove_files, write_file
from oodzoo.data import files
from oodzoo.data.files import (
    MAX_FILE_BYTES,
    EmbeddedFile,
    FilePart,
    ImageFile,
    LocalFile,
    ObjectImage,
    RemoteImage,
    StoredFile,
    TextFile,
    UnreadableImageError,
    absolute,
    read_bytes,
)

CONTENT = b"P6 1 1 255 abc"


class Opener:
    """Gives what it is told to, or raises it."""

    def __init__(self, answer: object) -> None:
        self.answer = answer

    def open(self, i: int) -> bytes:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer  # type: ignore[return-value]


def remote(name: str, content: bytes = CONTENT) -> RemoteImage:
    url = Url(f"memory://files/{name}")
    write_file(url, content)
    found = find_file(url)
    assert found is not None
    return RemoteImage(found)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fsspec")
    monkeypatch.setenv("OODZOO_CACHE", str(tmp_path / "cache"))


def kinds(folder: Path) -> dict[str, StoredFile]:
    """Files of all kinds that other processes can read, by their names for messages."""
    (folder / "1.ppm").write_bytes(CONTENT)
    (folder / "all").write_bytes(b"before" + CONTENT + b"after")
    whole = remote("all", b"before" + CONTENT + b"after")
    return {
        f"{folder}/1.ppm": LocalFile(str(folder / "1.ppm")),
        "memory://files/1.ppm": remote("1.ppm"),
        f"{folder}/all: 1.ppm": FilePart(LocalFile(f"{folder}/all"), "1.ppm", 6, len(CONTENT)),
        "memory://files/all: 1.ppm": FilePart(whole, "1.ppm", 6, len(CONTENT)),
        "an embedded image": EmbeddedFile(CONTENT),
        "row 3": TextFile(CONTENT.decode(), "row 3"),
    }


def test_every_kind_gives_its_bytes_also_after_a_journey(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = kinds(tmp_path)
    stored = list(given.values())
    sent = msgspec.json.decode(msgspec.json.encode(stored), type=list[StoredFile])
    assert sent == stored
    for file in [*stored, *sent, ObjectImage(Opener(CONTENT), 0, "first")]:
        assert read_bytes(file) == CONTENT
        assert file.size() in (len(CONTENT), None)
    assert [str(file) for file in stored] == list(given)
    assert str(ObjectImage(Opener(b""), 3, "photos 3")) == "photos 3"
    assert [f.remote is not None for f in stored] == [False, True, False, True, False, False]
    monkeypatch.chdir(tmp_path)
    part = FilePart(LocalFile("all"), "1.ppm", 6, len(CONTENT))
    relative: list[ImageFile] = [LocalFile("1.ppm"), part, remote("1.ppm")]
    moved = [absolute(file) for file in relative]
    monkeypatch.chdir("/")
    assert [read_bytes(file) for file in moved] == [CONTENT] * 3


def gone() -> RemoteImage:
    file = remote("gone.ppm")
    remove_files([Url(file.file.url)])
    return file


@pytest.mark.parametrize(
    ("file", "words", "transient"),
    [
        (lambda to: FilePart(LocalFile(f"{to}/all"), "x", 20, 9), "the file changed while i", True),
        (lambda to: gone(), "gone.ppm", True),
        (lambda to: to / "none.jpg", "No such file or directory", True),
        (lambda to: to / "pipe.jpg", "not a regular file", True),
        *((lambda to, answer=answer: ObjectImage(Opener(answer), 0, "first"), words, transient)
          for answer, words, transient in (
              (KeyError("no row"), "KeyError: 'no row'", True),
              (InputError("row 3 has no image"), "row 3 has no image", True),
              (MemoryError(), "not enough memory", True),
              ("text", "its source gave str instead of bytes", False))),
    ],
)  # fmt: skip
def test_files_that_cannot_be_read(file: Any, words: str, transient: bool, tmp_path: Path) -> None:
    kinds(tmp_path)
    os.mkfifo(tmp_path / "pipe.jpg")
    with pytest.raises(UnreadableImageError) as caught:
        read_bytes(file(tmp_path))
    assert words in str(caught.value)
    assert caught.value.transient == transient
    copied = pickle.loads(pickle.dumps(caught.value))
    assert (str(copied), copied.transient) == (str(caught.value), transient)


def test_files_beyond_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Image.MAX_IMAGE_PIXELS is not None
    assert 8 * Image.MAX_IMAGE_PIXELS < MAX_FILE_BYTES  # four channels of 16 bits
    (tmp_path / "1.png").write_bytes(CONTENT)
    for file in (tmp_path / "1.png", ObjectImage(Opener(CONTENT), 0, "first")):
        monkeypatch.setattr(files, "MAX_FILE_BYTES", len(CONTENT))
        assert read_bytes(file) == CONTENT
        monkeypatch.setattr(files, "MAX_FILE_BYTES", len(CONTENT) - 1)
        with pytest.raises(UnreadableImageError, match="the limit is 13"):
            read_bytes(file)
