"""Unlabelled images: what is listed, hashed and refused, and how they are given as text."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from oodzoo import ImageDomains, InputError
from oodzoo.data.listing import Issue
from oodzoo.data.sources.folder import UnlabelledImages, parse_unlabelled

WriteImage = Callable[[Path], Path]

linux_names = pytest.mark.skipif(
    os.name == "nt" or os.uname().sysname != "Linux", reason="names are bytes only on Linux"
)


@pytest.fixture
def new(tmp_path: Path, write_image: WriteImage, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one image directly in it and one two folders below; its parent is current."""
    write_image(tmp_path / "new/1.png")
    write_image(tmp_path / "new/roll/left/2.JPG")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "new"


def refusal(folder: str | Path, name: str | None = None) -> str:
    """The message of an InputError: one line that can be printed."""
    with pytest.raises(InputError) as caught:
        parse_unlabelled(folder) if name is None else UnlabelledImages(folder, name)
    message = str(caught.value)
    assert "\n" not in message
    message.encode()
    return message


def test_images_nested_in_any_way(new: Path, write_image: WriteImage) -> None:
    images = UnlabelledImages(new)
    assert repr(images) == f"UnlabelledImages('new', {str(new)!r}: 2 images)"
    assert (images.name, images.location, len(images)) == ("new", new, 2)
    for path in ("roll.png", "roll-2/1.png", "B.png", "neue Straße 猫/nachts, 100%/bild [1] =.png"):
        write_image(new / path)
    write_image(new / ".hidden.png")
    write_image(new / ".thumbnails/1.png")
    (new / "notes.txt").write_text("notes")
    (new / "empty.png").mkdir()
    images = UnlabelledImages(new)
    assert images.paths == (
        "1.png", "B.png", "neue Straße 猫/nachts, 100%/bild [1] =.png", "roll-2/1.png", "roll.png",
        "roll/left/2.JPG",
    )  # fmt: skip
    assert images.issues == ()
    contents = [file.read() for file in images.files.values()]
    assert images.digests == tuple(hashlib.sha256(content).hexdigest() for content in contents)
    assert images.unreadable == {}
    memory = pytest.importorskip("fsspec").filesystem("memory")
    memory.put(str(new), "/unlabelled/new", recursive=True)
    remote = UnlabelledImages("memory://unlabelled/new")
    assert (remote.name, remote.paths, remote.digests) == ("new", images.paths, images.digests)


@pytest.mark.parametrize(
    ("given", "name", "words"),
    [
        ("nowhere", None, "no such folder: 'nowhere'; give a folder of images, or NAME=FOLDER to"),
        ("a\0b", None, "no such folder: 'a\\x00b'"),
        ("", None, "no such folder: ''; "),  # not the working folder
        ("new/1.png", None, "'new/1.png' is a file; give a folder of images"),
        ("empty", None, "no image found in 'empty' or the folders below it"),
        ("new", "", "'new' have an empty name, ''; give one as NAME=FOLDER"),
        ("a=b", None, "no such folder: 'b'"),
        (Path("a=new"), None, "no such folder: 'a=new'"),  # a path is never split
    ],
)
def test_folders_that_are_refused(
    new: Path, given: str | Path, name: str | None, words: str
) -> None:
    (new.parent / "empty/roll").mkdir(parents=True)
    (new.parent / "empty/roll/2.txt").write_text("no image")
    assert words in refusal(given, name)


@linux_names
def test_names_that_are_not_utf8(new: Path, write_image: WriteImage) -> None:
    renamed = new.rename(new.with_name(os.fsdecode(b"caf\xe9")))
    assert r"not valid UTF-8: 'caf\udce9'; give another one" in refusal(renamed)
    assert UnlabelledImages(renamed, "café").name == "café"
    write_image(renamed / os.fsdecode(b"caf\xe9.png"))
    assert r"not valid UTF-8: b'caf\xe9.png'; rename it" in refusal(renamed, "x")


def test_folders_as_text(new: Path) -> None:
    def parsed(text: str | Path) -> tuple[str, str]:
        images = parse_unlabelled(text)
        return images.name, str(images.location)

    images = UnlabelledImages(new)
    assert parse_unlabelled(images) is images
    Path("a=new").write_text("a file")  # which does not win
    for text, expected in (
        (new, ("new", str(new))),
        (str(new), ("new", str(new))),
        (f"hospital c={new}", ("hospital c", str(new))),
        ("a=new", ("a", "new")),
        ("x" * 300 + "=new", ("x" * 300, "new")),
    ):
        assert parsed(text) == expected
    # the folder that exists wins over the split, which is at the first "="
    odd = new.rename("a=b=c")
    assert parsed("x=a=b=c") == ("x", "a=b=c")
    shutil.copytree(odd, "b=c")
    assert parsed("a=b=c") == ("a=b=c", "a=b=c")
    shutil.rmtree(odd)
    assert parsed("a=b=c") == ("a", "b=c")


def test_labelled_images_in_an_unlabelled_domain_are_a_leak(
    photos: Path, tmp_path: Path, write_image: WriteImage
) -> None:
    for folder in ("apart", "mixed", "one"):
        write_image(tmp_path / folder / "own.png")
    shutil.copy(photos / "day/cat/1.png", tmp_path / "mixed/a.png")
    shutil.copy(photos / "night/dog/2.png", tmp_path / "mixed/b.png")
    shutil.copy(photos / "day/cat/1.png", tmp_path / "one/1.png")
    unlabelled = [UnlabelledImages(tmp_path / folder) for folder in ("apart", "mixed", "one")]
    data = ImageDomains(photos)
    assert data.leaks() == data.leaks(unlabelled[:1]) == []
    mixed, one = data.leaks(unlabelled)
    assert mixed == Issue(
        "leak",
        "leak between domains: unlabelled domain 'mixed' also contains 2 images "
        "('day/cat/1.png', 'night/dog/2.png'); predictions on it will look better than they are",
        ("day/cat/1.png", "night/dog/2.png"),
    )
    assert one.paths == ("day/cat/1.png",)
    assert "domain 'one' also contains image 'day/cat/1.png'; predictions" in one.message
