"""Where the bytes of an image are; reading, hashing and inspecting them."""

from __future__ import annotations

import errno
import hashlib
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
from oodzoo.data import contents, files
from oodzoo.data.contents import hashes, inspect, inspect_images, read_contents
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
    _read_local,
    absolute,
    modality_of,
    read_bytes,
)
from oodzoo.data.listing import explaining_errors

CONTENT = b"P6 1 1 255 abc"
TEXT = "naïve 犬"


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


def test_texts() -> None:
    file = TextFile(TEXT, "row 3 of reviews.csv")
    assert read_bytes(file) == TEXT.encode()
    assert file.size() == len(TEXT.encode())
    assert read_bytes(TextFile("a\ud800b", "row 0")) == b"a?b"  # half of a character
    assert modality_of([file]) == "text"
    assert modality_of([LocalFile("a.png")]) == modality_of([]) == "image"


def test_a_local_copy_that_is_removed_before_it_is_read(tmp_path: Path) -> None:
    paths: list[Path] = []

    def read(path: Path) -> bytes:
        if not paths:
            path.unlink()
        paths.append(path)
        return path.read_bytes()

    assert _read_local(remote("1.ppm"), read) == CONTENT
    assert paths[0] == paths[1]
    paths.clear()
    (tmp_path / "1.ppm").write_bytes(CONTENT)
    with pytest.raises(FileNotFoundError):
        _read_local(LocalFile(str(tmp_path / "1.ppm")), read)


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
        (lambda to: to, "not a regular file", True),
        (lambda to: to / "pipe.jpg", "not a regular file", True),
        *((lambda to, answer=answer: ObjectImage(Opener(answer), 0, "first"), words, transient)
          for answer, words, transient in (
              (KeyError("no row"), "KeyError: 'no row'", True),
              (InputError("row 3 has no image"), "row 3 has no image", True),
              (OSError(5, "Input/output error"), "Input/output error", True),
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


def test_file_that_grows_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "1.png"
    path.write_bytes(CONTENT)
    before = path.stat()
    path.write_bytes(CONTENT + b"more")
    monkeypatch.setattr(Path, "stat", lambda *_, **__: before)
    with pytest.raises(UnreadableImageError, match="changed while it was read") as caught:
        read_bytes(path)
    assert caught.value.transient


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may read everything")
def test_file_without_permission_is_a_transient_error(tmp_path: Path) -> None:
    (tmp_path / "1.png").write_bytes(CONTENT)
    (tmp_path / "1.png").chmod(0)
    with pytest.raises(UnreadableImageError, match="Permission denied") as caught:
        read_bytes(tmp_path / "1.png")
    assert caught.value.transient


def test_errors_while_listing_name_the_file_or_else_the_source(tmp_path: Path) -> None:
    missing = f"{str(tmp_path / 'x')!r}: No such file or directory"
    eio = OSError(errno.EIO, os.strerror(errno.EIO))
    for error, words in (
        (None, missing),
        (eio, "'source': Input/output error"),
        (OSError("of a library"), "'source': of a library"),
    ):
        with pytest.raises(InputError) as caught, explaining_errors("source"):
            (tmp_path / "x").stat() if error is None else _raise(error)
        assert str(caught.value) == f"cannot read {words}"


def _raise(error: Exception) -> None:
    raise error


# --- hashing and inspecting -----------------------------------------------------------------------


class Slices(list[ImageFile]):
    """Counts how often a part of it was taken."""

    taken = 0

    def __getitem__(self, at: Any) -> Any:
        self.taken += 1
        return super().__getitem__(at)


def test_few_of_many_files_are_read_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "READ_AHEAD", 3)
    files = Slices(EmbeddedFile(b"%d" % n) for n in range(1000))
    found = read_contents(files)
    digests = [next(found).digest]
    assert files.taken == 4
    digests += [content.digest for content in found]
    assert digests == [hashlib.sha256(b"%d" % n).hexdigest() for n in range(1000)]


def test_facts_of_each_image_in_order(tmp_path: Path) -> None:
    sizes = [(3 + n, 5) for n in range(40)]
    for n, size in enumerate(sizes):
        mode, suffix = [("RGB", "png"), ("L", "jpg")][n % 2]
        Image.new(mode, size, n + 1).save(tmp_path / f"{n}.{suffix}")
    paths = {f"{n}.{['png', 'jpg'][n % 2]}": tmp_path for n in range(40)}
    given: dict[str, ImageFile] = {p: LocalFile(str(to / p)) for p, to in paths.items()}
    (tmp_path / "6.png").write_text("this is no picture")
    (tmp_path / "9.jpg").unlink()
    calls: list[tuple[int, int]] = []
    found = inspect_images(list(given.values()), lambda done, total: calls.append((done, total)))
    assert calls == [(16, 40), (32, 40), (40, 40)]
    good = [n for n in range(40) if n not in (6, 9)]
    assert found.problems == {
        6: "not an image that Pillow can identify", 9: "No such file or directory"
    }  # fmt: skip
    contents = {n: (tmp_path / p).read_bytes() for n, p in enumerate(paths) if n != 9}
    assert found.digests == tuple(
        hashlib.sha256(contents[n]).hexdigest() if n != 9 else None for n in range(40)
    )
    assert [found.n_bytes[n] for n in good] == [len(contents[n]) for n in good]
    assert (found.n_bytes[6], found.n_bytes[9]) == (18, 0)
    assert [(found.width[n], found.height[n]) for n in good] == [sizes[n] for n in good]
    assert not found.width[[6, 9]].any()
    pairs = [("PNG", "RGB"), ("JPEG", "L")]
    assert [found.kinds[found.kind[n]] for n in good] == [pairs[n % 2] for n in good]
    assert [bool(found.is_grey[n]) for n in good] == [n % 2 == 1 for n in good]
    unread = {"9.jpg": "No such file or directory"}
    assert found.hashes(list(paths)) == (found.digests, unread)
    decoded = inspect(given)
    assert {path: c.problem for path, c in decoded.items() if c.problem} == {
        "6.png": "not an image that Pillow can identify", **unread
    }  # fmt: skip
    assert [content.problem for content in read_contents(list(given.values()))] == [
        unread.get(path) for path in given
    ]
    assert hashes(decoded) == found.hashes(list(paths))
    assert inspect_images([]).digests == ()
