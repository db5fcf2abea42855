"""Listing folders and tables: what is taken, what is ignored, what is refused."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from oodzoo.data.listing import (
    Listing,
    explaining_errors,
    list_folder,
    list_images,
    list_table,
)
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


def test_folder_of_loose_images(tmp_path: Path, write_image: WriteImage) -> None:
    write_image(tmp_path / "1.png")
    with pytest.raises(InputError, match="expected root/domain/class/image"):
        list_folder(tmp_path)


# --- links ------------------------------------------------------------------------------------


def test_linked_domain_class_and_image_are_followed(
    photos: Path, write_image: WriteImage, tmp_path: Path
) -> None:
    write_image(tmp_path / "elsewhere/cat/1.png")
    (photos / "dusk").symlink_to(tmp_path / "elsewhere")
    (photos / "day/kitten").symlink_to(tmp_path / "elsewhere/cat")
    (photos / "day/cat/3.png").symlink_to(tmp_path / "elsewhere/cat/1.png")
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


# --- errors -----------------------------------------------------------------------------------


def test_errors_name_the_file_or_else_the_source(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught, explaining_errors("source"):
        (tmp_path / "x").stat()
    assert str(caught.value) == f"cannot read {str(tmp_path / 'x')!r}: No such file or directory"
    with pytest.raises(InputError) as caught, explaining_errors("source"):
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    assert str(caught.value) == "cannot read 'source': Input/output error"


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


# --- tables -----------------------------------------------------------------------------------

HEADER = "path,domain,label\n"
ROWS = "day/cat/1.png,day,cat\nnight/dog/1.png,night,dog\n"


def listed(photos: Path, text: str | bytes, root: Path | None = None) -> Listing:
    table = photos / "table.csv"
    table.write_bytes(text.encode() if isinstance(text, str) else text)
    return list_table(table, root or photos)


def refusal(photos: Path, text: str | bytes) -> str:
    with pytest.raises(InputError) as caught:
        listed(photos, text)
    message = str(caught.value)
    assert "\n" not in message
    assert "table.csv" in message
    return message


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(HEADER + ROWS, id="plain"),
        pytest.param("\ufeff" + HEADER + ROWS, id="byte order mark"),
        pytest.param((HEADER + ROWS).replace("\n", "\r\n"), id="Windows lines"),
        pytest.param((HEADER + ROWS).rstrip("\n"), id="no last newline"),
        pytest.param((HEADER + ROWS).replace("\n", "\n\n"), id="blank lines"),
        pytest.param((HEADER + ROWS).replace(",", " , "), id="spaces"),
        pytest.param((HEADER + ROWS).replace("\n", ",\n"), id="comma at the end"),
        pytest.param((HEADER + ROWS).replace("day/cat", "./day//cat/../cat"), id="crooked paths"),
        pytest.param(
            "label,path,domain\ncat,day/cat/1.png,day\ndog,night/dog/1.png,night\n", id="turned"
        ),
    ],
)
def test_the_same_table_in_other_clothes(photos: Path, text: str) -> None:
    assert listed(photos, text).samples == [
        ("day/cat/1.png", "day", "cat", None),
        ("night/dog/1.png", "night", "dog", None),
    ]


def test_group_is_optional_by_row_and_other_columns_are_ignored(photos: Path) -> None:
    text = (
        "id,path,domain,label,group\n"
        "1,day/cat/1.png,day,cat,burst 7\n"
        "2,day/cat/2.png,day,cat,\n"
        "3,day/dog/1.png,day,dog\n"
    )
    assert [s.group for s in listed(photos, text).samples] == ["burst 7", None, None]


def test_quoted_cells_may_hold_commas_and_newlines(photos: Path, write_image: WriteImage) -> None:
    write_image(photos / "a, b\nc.png")
    listing = listed(photos, HEADER + '"a, b\nc.png","day, or so","two\nlines"\n')
    assert listing.samples == [("a, b\nc.png", "day, or so", "two\nlines", None)]


def test_line_number_counts_lines_not_rows(photos: Path) -> None:
    text = HEADER + 'day/cat/1.png,day,"ca\nt"\n\nnone.png,day,"do\ng"\n'
    assert "table.csv line 5: no such file in " in (message := refusal(photos, text))
    assert message.endswith("'none.png'")


def test_root_of_a_table(photos: Path, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text(HEADER + ROWS)
    assert len(list_table(table, photos).samples) == 2
    with pytest.raises(InputError, match=r"is not a folder: '.*nowhere'"):
        list_table(table, photos / "nowhere")


@pytest.mark.parametrize("column", ["path", "domain", "label"])
def test_missing_column(photos: Path, column: str) -> None:
    message = refusal(photos, HEADER.replace(column, "other") + ROWS)
    assert f"has no column '{column}'" in message
    assert repr(HEADER.replace(column, "other").strip()) in message


def test_column_named_twice(photos: Path) -> None:
    assert "'label' twice" in refusal(photos, "path,domain,label,label\na.png,day,cat,dog\n")


@pytest.mark.parametrize("separator", [";", "\t"])
def test_other_separator(photos: Path, separator: str) -> None:
    message = refusal(photos, (HEADER + ROWS).replace(",", separator))
    assert "by commas" in message
    assert repr(HEADER.strip().replace(",", separator)) in message


@pytest.mark.parametrize(
    ("row", "column"),
    [(",day,cat", "path"), ("day/cat/1.png, ,cat", "domain"), ("day/cat/1.png,day", "label")],
)
def test_empty_cell(photos: Path, row: str, column: str) -> None:
    message = refusal(photos, f"{HEADER}{ROWS}{row}\n")
    assert f"line 4: no {column} in {row!r}" in message


def test_comma_without_quotes_is_not_swallowed(photos: Path) -> None:
    message = refusal(photos, HEADER + "day/cat/1.png,day,cat, black\n")
    assert "line 2: 4 cells" in message
    assert "'day/cat/1.png,day,cat, black'" in message


@pytest.mark.parametrize("again", ["day/cat/1.png,day,cat", "./day/cat//1.png,night,dog"])
def test_duplicate_row(photos: Path, again: str) -> None:
    assert "'day/cat/1.png' twice, in lines 2 and 4" in refusal(photos, f"{HEADER}{ROWS}{again}\n")


@pytest.mark.parametrize("path", ["../x.png", "day/../../x.png", "/etc/passwd", ".."])
def test_path_outside_the_root(photos: Path, write_image: WriteImage, path: str) -> None:
    write_image(photos.parent / "x.png")
    message = refusal(photos, f"{HEADER}{path},day,cat\n")
    assert f"line 2: the path {path!r} is outside" in message
    assert "--root" in message


@pytest.mark.parametrize("path", ["day/cat/9.png", "day/cat", "day", ".", "x" * 300, "a\0b.png"])
def test_missing_image(photos: Path, path: str) -> None:
    assert f": {path!r}" in (message := refusal(photos, f"{HEADER}{path},day,cat\n"))
    assert "line 2: no such file in" in message


@pytest.mark.parametrize(
    "text", [b"path,domain,label\ncaf\xe9.png,day,cat\n", "é".encode("utf-16")]
)
def test_table_that_is_not_utf8(photos: Path, text: bytes) -> None:
    assert "not UTF-8" in refusal(photos, text)


@pytest.mark.parametrize("text", [HEADER, HEADER + "\n\n"])
def test_header_without_rows(photos: Path, text: str) -> None:
    assert "no rows below its header" in refusal(photos, text)


@pytest.mark.parametrize("text", ["", "\n", "\ufeff", "\x89PNG\r\n"])
def test_table_without_header(photos: Path, text: str) -> None:
    assert "has no column 'path'" in refusal(photos, text)


def test_quotation_without_end(photos: Path) -> None:
    assert "not a CSV table" in refusal(photos, HEADER + 'day/cat/1.png,day,"cat\n')


def test_image_outside_through_a_link_is_fine(photos: Path, write_image: WriteImage) -> None:
    write_image(photos.parent / "other/1.png")
    (photos / "other").symlink_to(photos.parent / "other")
    assert len(listed(photos, HEADER + "other/1.png,day,cat\n").samples) == 1
