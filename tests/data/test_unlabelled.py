"""Unlabelled images: what is listed, hashed and refused, and how they are given as text."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from oodzoo.data.unlabelled import UnlabelledImages, parse_unlabelled
from oodzoo.errors import InputError
from oodzoo.remote.location import Url

WriteImage = Callable[[Path], Path]

not_as_root = pytest.mark.skipif(
    os.name == "nt" or os.geteuid() == 0, reason="root may read everything"
)
linux_names = pytest.mark.skipif(
    os.name == "nt" or os.uname().sysname != "Linux", reason="names are bytes only on Linux"
)


@pytest.fixture
def new(tmp_path: Path, write_image: WriteImage) -> Path:
    """A folder with one image directly in it and one two folders below."""
    write_image(tmp_path / "new/1.png")
    write_image(tmp_path / "new/roll/left/2.JPG")
    return tmp_path / "new"


def refusal(folder: str | Path, name: str | None = None) -> str:
    with pytest.raises(InputError) as caught:
        UnlabelledImages(folder, name)
    return one_printable_line(caught.value)


def one_printable_line(error: InputError) -> str:
    message = str(error)
    assert "\n" not in message
    message.encode()
    return message


# --- what is listed ---------------------------------------------------------------------------


def test_images_nested_in_any_way(new: Path) -> None:
    images = UnlabelledImages(new)
    assert (images.name, images.location) == ("new", new)
    assert images.paths == ("1.png", "roll/left/2.JPG")
    assert len(images) == 2
    assert repr(images) == f"UnlabelledImages('new', {str(new)!r}: 2 images)"
    assert images.issues == ()
    assert all((new / path).is_file() for path in images.paths)


def test_paths_are_sorted_as_text(new: Path, write_image: WriteImage) -> None:
    for path in ("roll.png", "roll-2/1.png", "B.png", "a.png"):
        write_image(new / path)
    expected = ("1.png", "B.png", "a.png", "roll-2/1.png", "roll.png", "roll/left/2.JPG")
    assert UnlabelledImages(new).paths == expected


def test_hidden_and_foreign_files_are_ignored(new: Path, write_image: WriteImage) -> None:
    write_image(new / ".hidden.png")
    write_image(new / ".thumbnails/1.png")
    (new / "notes.txt").write_text("notes")
    (new / "empty.png").mkdir()
    assert len(UnlabelledImages(new)) == 2


def test_names_with_spaces_and_letters_of_all_kinds(
    tmp_path: Path, write_image: WriteImage
) -> None:
    write_image(tmp_path / "neue Straße 猫/nachts, 100%/bild [1] =.png")
    images = UnlabelledImages(tmp_path / "neue Straße 猫")
    assert images.name == "neue Straße 猫"
    assert images.paths == ("nachts, 100%/bild [1] =.png",)
    assert images.unreadable == {}


def test_links_are_followed_but_not_in_loops(new: Path, write_image: WriteImage) -> None:
    write_image(new / "roll/left/3.png")
    (new / "linked").symlink_to(new / "roll/left")
    (new / "roll/up").symlink_to("..")
    (new / "self").symlink_to(".")
    (new / "gone").symlink_to("nowhere")
    images = UnlabelledImages(new)
    assert images.paths == (
        "1.png", "linked/2.JPG", "linked/3.png", "roll/left/2.JPG", "roll/left/3.png"
    )  # fmt: skip
    assert sorted((issue.kind, issue.paths) for issue in images.issues) == [
        ("broken link", ("gone",)),
        ("link loop", ("roll/up",)),
        ("link loop", ("self",)),
    ]


@linux_names
def test_name_of_an_image_that_is_not_utf8(new: Path, write_image: WriteImage) -> None:
    write_image(new / os.fsdecode(b"caf\xe9.png"))
    assert r"not valid UTF-8: b'caf\xe9.png'; rename it" in refusal(new)


# --- the name of the domain -------------------------------------------------------------------


def test_name_is_that_of_the_resolved_folder(new: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(new / "roll")
    assert UnlabelledImages(".").name == "roll"
    assert UnlabelledImages("..").name == "new"
    (new.parent / "link").symlink_to("new")
    assert UnlabelledImages(new.parent / "link").name == "new"
    assert UnlabelledImages(new, "hospital c").name == "hospital c"


@pytest.mark.parametrize("name", ["", " "])
def test_empty_name(new: Path, name: str) -> None:
    message = refusal(new, name)
    assert f"{str(new)!r} have an empty name, {name!r}; give one as NAME=FOLDER" in message


@linux_names
def test_name_of_the_folder_that_is_not_utf8(new: Path) -> None:
    renamed = new.rename(new.with_name(os.fsdecode(b"caf\xe9")))
    assert r"not valid UTF-8: 'caf\udce9'; give another one" in refusal(renamed)
    assert UnlabelledImages(renamed, "café").name == "café"


# --- hashing ----------------------------------------------------------------------------------


def test_digests_are_those_of_the_files(new: Path) -> None:
    images = UnlabelledImages(new)
    contents = [file.read() for file in images.files.values()]
    assert images.digests == tuple(hashlib.sha256(content).hexdigest() for content in contents)
    assert images.unreadable == {}


def test_file_that_cannot_be_read_has_a_reason_and_no_digest(new: Path) -> None:
    (new / "2.png").symlink_to("nowhere.png")
    os.mkfifo(new / "3.png")
    (new / "4.png").write_text("no picture, but it can be hashed")
    images = UnlabelledImages(new)
    unread = [path for path, d in zip(images.paths, images.digests, strict=True) if d is None]
    assert unread == ["2.png", "3.png"]
    assert images.unreadable == {
        "2.png": "No such file or directory",
        "3.png": "not a regular file",
    }


def test_files_are_read_once(new: Path) -> None:
    images = UnlabelledImages(new)
    before = images.digests
    (new / "1.png").unlink()
    assert images.digests == before
    assert images.unreadable == {}


@not_as_root
def test_image_without_permission(new: Path) -> None:
    (new / "1.png").chmod(0)
    assert UnlabelledImages(new).unreadable == {"1.png": "Permission denied"}


# --- bad folders ------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["nowhere", "new/1.png/x", "loop", "a\0b"])
def test_folder_that_does_not_exist(new: Path, path: str) -> None:
    (new.parent / "loop").symlink_to("loop")
    folder = new.parent / path
    assert refusal(folder).startswith(f"no such folder: {str(folder)!r}; give a folder of images")


def test_empty_text_is_not_the_working_folder(new: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(new)
    assert refusal("").startswith("no such folder: ''; ")


def test_name_too_long(tmp_path: Path) -> None:
    assert "x" * 300 in refusal(tmp_path / ("x" * 300))


def test_file_instead_of_a_folder(new: Path) -> None:
    assert refusal(new / "1.png") == f"{str(new / '1.png')!r} is a file; give a folder of images"


def test_folder_without_images(new: Path) -> None:
    (new / "1.png").unlink()
    (new / "roll/left/2.JPG").rename(new / "roll/2.txt")
    assert refusal(new) == f"no image found in {str(new)!r} or the folders below it"
    shutil.rmtree(new / "roll")
    assert refusal(new).startswith("no image found in ")


@not_as_root
@pytest.mark.parametrize("mode", [0o000, 0o444])  # 444: names can be listed, not looked at
@pytest.mark.parametrize("closed", [".", "roll/left"])
def test_folder_without_permission(new: Path, closed: str, mode: int) -> None:
    (new / closed).chmod(mode)
    try:
        assert refusal(new).endswith(": Permission denied")
    finally:
        (new / closed).chmod(0o755)


# --- given as text ----------------------------------------------------------------------------


def parsed(text: str | Path) -> tuple[str, Path | Url]:
    images = parse_unlabelled(text)
    return images.name, images.location


def test_folder_as_text_or_path(new: Path) -> None:
    assert parsed(str(new)) == parsed(new) == ("new", new)


def test_what_is_parsed_already_stays(new: Path) -> None:
    images = UnlabelledImages(new)
    assert parse_unlabelled(images) is images


def test_name_and_folder(new: Path) -> None:
    assert parsed(f"hospital c={new}") == ("hospital c", new)


def test_equals_sign_in_the_folder(new: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(new.parent)
    odd = new.rename("a=b=c")
    # the folder that exists wins over the split, which is at the first "="
    assert parsed("a=b=c") == ("a=b=c", odd)
    assert parsed("x=a=b=c") == ("x", odd)
    shutil.copytree(odd, "b=c")
    assert parsed("a=b=c") == ("a=b=c", odd)
    shutil.rmtree(odd)
    assert parsed("a=b=c") == ("a", Path("b=c"))


def test_path_is_never_split(new: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(new.parent)
    assert parsed("a=new") == ("a", Path("new"))
    with pytest.raises(InputError, match="no such folder: 'a=new'"):
        parse_unlabelled(Path("a=new"))


def test_file_under_the_whole_text_does_not_win(new: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(new.parent)
    Path("a=new").write_text("a file")
    assert parsed("a=new") == ("a", Path("new"))


def test_name_and_folder_together_longer_than_a_name(
    new: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(new.parent)
    assert parsed("x" * 300 + "=new") == ("x" * 300, Path("new"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("=new", "'new' have an empty name, ''"),
        ("a=", "no such folder: ''"),
        ("", "no such folder: ''"),
        ("=", "no such folder: ''"),
        ("a=b", "no such folder: 'b'"),
        ("a=new/1.png", "'new/1.png' is a file"),
    ],
)
def test_text_that_is_refused(
    new: Path, monkeypatch: pytest.MonkeyPatch, text: str, reason: str
) -> None:
    monkeypatch.chdir(new.parent)
    with pytest.raises(InputError) as caught:
        parse_unlabelled(text)
    assert reason in one_printable_line(caught.value)
