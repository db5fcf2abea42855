"""Where the bytes of an image are: each kind gives them, or says why it cannot."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import msgspec
import pytest
from PIL import Image

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
    UnreadableImageError,
    _read_local,
    absolute,
    read_bytes,
)
from oodzoo.errors import InputError
from oodzoo.remote.location import Url
from oodzoo.remote.objects import find_file, remove_files, write_file

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


def kinds(folder: Path) -> list[StoredFile]:
    (folder / "1.ppm").write_bytes(CONTENT)
    (folder / "all").write_bytes(b"before" + CONTENT + b"after")
    whole = remote("all", b"before" + CONTENT + b"after")
    return [
        LocalFile(str(folder / "1.ppm")),
        remote("1.ppm"),
        FilePart(LocalFile(str(folder / "all")), "1.ppm", 6, len(CONTENT)),
        FilePart(whole, "1.ppm", 6, len(CONTENT)),
        EmbeddedFile(CONTENT),
    ]


def test_every_kind_gives_its_bytes_also_after_a_journey(tmp_path: Path) -> None:
    given = kinds(tmp_path)
    sent = msgspec.json.decode(msgspec.json.encode(given), type=list[StoredFile])
    assert sent == given
    for file in [*given, *sent, ObjectImage(Opener(CONTENT), 0, "first")]:
        assert read_bytes(file) == CONTENT
        assert file.size() in (len(CONTENT), None)
    assert [file.remote is not None for file in given] == [False, True, False, True, False]


def test_names_for_messages(tmp_path: Path) -> None:
    names = [str(file) for file in kinds(tmp_path)]
    assert names == [
        f"{tmp_path}/1.ppm",
        "memory://files/1.ppm",
        f"{tmp_path}/all: 1.ppm",
        "memory://files/all: 1.ppm",
        "an embedded image",
    ]
    assert str(ObjectImage(Opener(b""), 3, "photos 3")) == "photos 3"


def test_absolute_paths_for_other_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds(tmp_path)
    monkeypatch.chdir(tmp_path)
    part = FilePart(LocalFile("all"), "1.ppm", 6, len(CONTENT))
    given: list[ImageFile] = [LocalFile("1.ppm"), part, remote("1.ppm")]
    sent = [absolute(file) for file in given]
    monkeypatch.chdir("/")
    assert [read_bytes(file) for file in sent] == [CONTENT] * 3


def test_a_part_that_its_file_no_longer_has(tmp_path: Path) -> None:
    (tmp_path / "all").write_bytes(b"short")
    with pytest.raises(UnreadableImageError, match="changed while it was read") as caught:
        read_bytes(FilePart(LocalFile(str(tmp_path / "all")), "1.ppm", 2, 9))
    assert caught.value.transient


def test_a_remote_file_that_is_gone_is_a_transient_error() -> None:
    file = remote("gone.ppm")
    remove_files([Url(file.file.url)])
    with pytest.raises(UnreadableImageError, match=r"gone\.ppm") as caught:
        read_bytes(file)
    assert caught.value.transient


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


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (KeyError("no row"), "KeyError: 'no row'"),
        (InputError("row 3 has no image"), "row 3 has no image"),
        (OSError(5, "Input/output error"), "Input/output error"),
        (MemoryError(), "not enough memory"),
        ("text", "its source gave str instead of bytes"),
    ],
)
def test_an_object_that_gives_no_bytes(answer: object, words: str) -> None:
    with pytest.raises(UnreadableImageError) as caught:
        read_bytes(ObjectImage(Opener(answer), 0, "first"))
    assert str(caught.value) == words


def test_an_object_that_gives_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_FILE_BYTES", 3)
    with pytest.raises(UnreadableImageError, match="the limit is 3"):
        read_bytes(ObjectImage(Opener(b"1234"), 0, "first"))


def test_missing_file_and_folder_are_unreadable(tmp_path: Path) -> None:
    for path, words in [(tmp_path / "none.jpg", "No such file"), (tmp_path, "not a regular file")]:
        with pytest.raises(UnreadableImageError, match=words):
            read_bytes(path)


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may read everything")
def test_file_without_permission_is_a_transient_error(tmp_path: Path) -> None:
    (tmp_path / "1.png").write_bytes(CONTENT)
    (tmp_path / "1.png").chmod(0)
    with pytest.raises(UnreadableImageError, match="Permission denied") as caught:
        read_bytes(tmp_path / "1.png")
    assert caught.value.transient


@pytest.mark.parametrize("transient", [True, False])
def test_transient_errors_stay_so_between_processes(transient: bool) -> None:
    error = pickle.loads(pickle.dumps(UnreadableImageError("why", transient=transient)))
    assert (str(error), error.transient) == ("why", transient)


def test_pipe_is_refused_instead_of_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jpg")
    with pytest.raises(UnreadableImageError, match="not a regular file"):
        read_bytes(tmp_path / "pipe.jpg")


def test_file_at_the_limit_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = CONTENT
    (tmp_path / "1.png").write_bytes(content)
    monkeypatch.setattr(files, "MAX_FILE_BYTES", len(content))
    assert read_bytes(tmp_path / "1.png") == content
    monkeypatch.setattr(files, "MAX_FILE_BYTES", len(content) - 1)
    with pytest.raises(UnreadableImageError, match="the limit is"):
        read_bytes(tmp_path / "1.png")


def test_the_largest_images_of_pillow_are_below_the_limit() -> None:
    assert Image.MAX_IMAGE_PIXELS is not None
    assert 8 * Image.MAX_IMAGE_PIXELS < MAX_FILE_BYTES  # four channels of 16 bits


def test_file_that_grows_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "1.png"
    path.write_bytes(CONTENT)
    before = path.stat()
    path.write_bytes(CONTENT + b"more")
    monkeypatch.setattr(Path, "stat", lambda *_, **__: before)
    with pytest.raises(UnreadableImageError, match="changed while it was read") as caught:
        read_bytes(path)
    assert caught.value.transient
