"""Listing folders: what is taken, what is ignored, what is refused."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from oodzoo.data.listing import Listing
from oodzoo.data.sources.folder import list_folder, list_images
from oodzoo.errors import InputError

WriteImage = Callable[[Path], Path]

linux_names = pytest.mark.skipif(
    os.name == "nt" or os.uname().sysname != "Linux", reason="names are bytes only on Linux"
)


def paths(listing: Listing) -> list[str]:
    return sorted(sample.path for sample in listing.samples)


def kinds(listing: Listing) -> list[str]:
    return sorted(issue.kind for issue in listing.issues)


# --- folders ----------------------------------------------------------------------------------


def test_domain_and_class_are_the_names_of_the_folders(photos: Path) -> None:
    listing = list_folder(photos)
    assert {tuple(s) for s in listing.samples} == {
        (f"{domain}/{label}/{name}", domain, label, None)
        for domain in ("day", "night")
        for label in ("cat", "dog")
        for name in ("1.png", "2.png")
    }
    assert not listing.issues


def test_images_may_lie_any_depth_below_their_class(photos: Path, write_image: WriteImage) -> None:
    write_image(photos / "day/cat/roll 1/left/3.png")
    (found,) = [s for s in list_folder(photos).samples if "roll" in s.path]
    assert found == ("day/cat/roll 1/left/3.png", "day", "cat", None)


def test_folders_deeper_than_pythons_stack(photos: Path, write_image: WriteImage) -> None:
    folders = [photos / "day/cat"]
    for _ in range(1100):
        folders.append(folders[-1] / "d")
        folders[-1].mkdir()
    image = write_image(folders[-1] / "3.png")
    assert len(list_folder(photos).samples) == 9
    # pytest removes its folders by recursion, and would not get these away
    image.unlink()
    for folder in reversed(folders[1:]):
        folder.rmdir()


@pytest.mark.parametrize(
    "suffix", ["JPG", "jpeg", "Jpeg", "PNG", "TIF", "tiff", "webp", "BMP", "Gif"]
)
def test_suffixes_in_any_case(photos: Path, write_image: WriteImage, suffix: str) -> None:
    write_image(photos / f"day/cat/3.{suffix}")
    assert f"day/cat/3.{suffix}" in paths(list_folder(photos))


def test_hidden_plain_and_foreign_files_are_ignored(photos: Path, write_image: WriteImage) -> None:
    write_image(photos / ".cache/cat/1.png")
    write_image(photos / "day/.trash/1.png")
    write_image(photos / "day/cat/.thumbnails/1.png")
    write_image(photos / "day/cat/._1.png")
    write_image(photos / "overview.png")
    for name in ("README.txt", "day/notes.txt", "day/cat/labels.json", "day/cat/png"):
        (photos / name).write_text("not an image")
    listing = list_folder(photos)
    assert len(listing.samples) == 8
    assert not listing.issues


def test_folder_with_the_name_of_an_image(photos: Path, write_image: WriteImage) -> None:
    write_image(photos / "day/cat/x.jpg/3.png")
    (photos / "day/y.jpg").mkdir()
    listing = list_folder(photos)
    assert "day/cat/x.jpg/3.png" in paths(listing)
    assert len(listing.samples) == 9
    assert kinds(listing) == ["empty class"]


def test_names_with_spaces_and_letters_of_all_kinds(photos: Path, write_image: WriteImage) -> None:
    name = "nächtliche Straße/猫 und Hund/smile :dog: [red] 100%.png"
    write_image(photos / name)
    assert name in paths(list_folder(photos))


def test_class_without_image_is_noted(photos: Path) -> None:
    (photos / "day/bird").mkdir()
    (issue,) = list_folder(photos).issues
    assert issue.kind == "empty class"
    assert "'day/bird'" in issue.message


def test_domain_without_class_is_noted(photos: Path) -> None:
    (photos / "dawn").mkdir()
    (issue,) = list_folder(photos).issues
    assert issue.kind == "empty domain"
    assert "'dawn'" in issue.message


def test_images_beside_the_classes_are_noted(photos: Path, write_image: WriteImage) -> None:
    write_image(photos / "day/stray.png")
    listing = list_folder(photos)
    assert len(listing.samples) == 8
    assert kinds(listing) == ["no class"]


@pytest.mark.parametrize("below", ["", "domain", "domain/class"])
def test_empty_folder(tmp_path: Path, below: str) -> None:
    (tmp_path / "data" / below).mkdir(parents=True)
    with pytest.raises(InputError, match=r"no image found in '.*data'.*root/domain/class/image"):
        list_folder(tmp_path / "data")


def test_folder_of_classes_instead_of_domains(tmp_path: Path, write_image: WriteImage) -> None:
    for name in ("cat/1.png", "cat/2.png", "dog/1.png"):
        write_image(tmp_path / name)
    with pytest.raises(InputError, match=r"; found 3 one level too high, as in root/class/image"):
        list_folder(tmp_path)
    write_image(tmp_path / "dog/more/1.png")
    with pytest.raises(InputError, match=r"has only 1 image in .* found 3 one level too high"):
        list_folder(tmp_path)


def test_folder_of_loose_images(tmp_path: Path, write_image: WriteImage) -> None:
    write_image(tmp_path / "1.png")
    with pytest.raises(InputError, match="expected root/domain/class/image"):
        list_folder(tmp_path)


# --- links ------------------------------------------------------------------------------------


def test_links_out_of_the_data_are_followed_only_if_asked(
    photos: Path, write_image: WriteImage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_image(tmp_path / "elsewhere/cat/1.png")
    (photos / "dusk").symlink_to(tmp_path / "elsewhere")
    (photos / "again").symlink_to("..")
    (photos / "day/kitten").symlink_to(tmp_path / "elsewhere/cat")
    (photos / "night/copy").symlink_to("../day/dog")
    (photos / "day/cat/3.png").symlink_to(tmp_path / "elsewhere/cat/1.png")
    with pytest.warns(UserWarning, match="has 3 links .* ignored: again, day/kitten, dusk; set"):
        listing = list_folder(photos)
    assert {sample.domain for sample in listing.samples} == {"day", "night"}
    assert {"day/cat/3.png", "night/copy/1.png"} <= set(paths(listing))
    with pytest.warns(UserWarning, match="has 3 links"):
        assert list_images(photos)[0] == paths(listing)
    (photos / "again").unlink()
    monkeypatch.setenv("OODZOO_FOLLOW_LINKS", "1")
    listing = list_folder(photos)
    assert {"dusk/cat/1.png", "day/kitten/1.png", "day/cat/3.png"} <= set(paths(listing))
    assert not listing.issues


def test_linked_root(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(photos)
    assert list_folder(tmp_path / "link").samples == list_folder(photos).samples


@pytest.mark.parametrize("place", ["up", "day/up", "day/cat/up", "day/cat/deep/up"])
def test_link_to_an_ancestor_ends(photos: Path, place: str) -> None:
    link = photos / place
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(photos)
    listing = list_folder(photos)
    assert (kinds(listing), len(listing.samples)) == (["link loop"], 8)
    assert listing.issues[0].paths == (place,)


def test_two_links_at_each_other_end(photos: Path, write_image: WriteImage) -> None:
    for one, other in (("a", "b"), ("b", "a")):
        write_image(photos / f"day/cat/{one}/1.png")
        (photos / f"day/cat/{one}/other").symlink_to(photos / f"day/cat/{other}")
    assert set(kinds(list_folder(photos))) == {"link loop"}


@pytest.mark.parametrize("place", ["self", "day/self", "day/cat/self"])
@pytest.mark.parametrize("target", ["self", "nowhere"])
def test_link_to_itself_or_to_nothing_is_noted(photos: Path, place: str, target: str) -> None:
    (photos / place).symlink_to(target)
    listing = list_folder(photos)
    assert (kinds(listing), len(listing.samples)) == (["broken link"], 8)
    assert place in listing.issues[0].message


@pytest.mark.parametrize("target", ["3.png", "nowhere.png"])
def test_broken_link_to_an_image_stays_listed(photos: Path, target: str) -> None:
    # so that it is named when the images are read, and no image is lost in silence
    (photos / "day/cat/3.png").symlink_to(target)
    assert "day/cat/3.png" in paths(list_folder(photos))


# --- images without domain and class ----------------------------------------------------------


def test_images_of_a_folder_are_those_of_its_domains(photos: Path) -> None:
    (photos / "day/cat/deep").mkdir()
    (photos / "day/cat/1.png").rename(photos / "day/cat/deep/1.png")
    (photos / "day/cat/up").symlink_to("..")
    listing = list_folder(photos)
    assert list_images(photos) == (paths(listing), listing.issues)


def test_images_of_a_folder_without_any(tmp_path: Path) -> None:
    assert list_images(tmp_path) == ([], [])


# --- names that are no text -------------------------------------------------------------------


@linux_names
@pytest.mark.parametrize(
    ("folder", "name"),
    [("day/cat", b"caf\xe9.png"), ("day", b"caf\xe9/1.png"), ("", b"caf\xe9/cat/1.png")],
)
def test_name_that_is_not_utf8_is_refused(
    photos: Path, write_image: WriteImage, folder: str, name: bytes
) -> None:
    write_image(photos / folder / os.fsdecode(name))
    with pytest.raises(InputError, match=r"not valid UTF-8: b'caf\\xe9") as caught:
        list_folder(photos)
    str(caught.value).encode()  # the message itself can be printed


@linux_names
def test_ignored_file_may_have_any_name(photos: Path) -> None:
    for folder in ("", "day", "day/cat"):
        (photos / folder / os.fsdecode(b"caf\xe9.txt")).write_text("notes")
    assert len(list_folder(photos).samples) == 8
