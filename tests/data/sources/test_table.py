"""Listing CSV tables: what is taken, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.s3 import Bucket

from oodzoo.data.files import RemoteImage
from oodzoo.data.listing import Listing
from oodzoo.data.sources.table import list_table
from oodzoo.errors import InputError
from oodzoo.remote.location import Url

WriteImage = Callable[[Path], Path]

HEADER = "path,domain,label\n"
ROWS = "day/cat/1.png,day,cat\nnight/dog/1.png,night,dog\n"


def listed(photos: Path, text: str | bytes, root: Path | Url | None = None) -> Listing:
    table = photos / "table.csv"
    table.write_bytes(text.encode() if isinstance(text, str) else text)
    return list_table(table, root)


def refusal(photos: Path, text: str | bytes, root: Path | Url | None = None) -> str:
    with pytest.raises(InputError) as caught:
        listed(photos, text, root)
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
        pytest.param((HEADER + ROWS).replace(",", ";"), id="semicolons"),
        pytest.param("\ufeff" + (HEADER + ROWS).replace(",", "\t"), id="tabs, byte order mark"),
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
    assert "table.csv', line 5: no such file in " in (message := refusal(photos, text))
    assert "'none.png'" in message


def test_root_of_a_table(photos: Path, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text(HEADER + ROWS)
    assert len(list_table(table, photos).samples) == 2
    with pytest.raises(InputError, match=r"is not a folder: '.*nowhere'"):
        list_table(table, photos / "nowhere")


@pytest.mark.parametrize("column", ["path", "domain", "label"])
def test_missing_column(photos: Path, column: str) -> None:
    message = refusal(photos, HEADER.replace(column, f"the {column}") + ROWS)
    assert f"has no column '{column}'" in message
    assert f"did you mean the {column}?" in message
    assert f"--columns {column}=NAME" in message


def test_column_named_twice(photos: Path) -> None:
    assert "'label' twice" in refusal(photos, "path,domain,label,label\na.png,day,cat,dog\n")


@pytest.mark.parametrize(
    ("row", "column"),
    [(",day,cat", "path"), ("day/cat/1.png, ,cat", "domain"), ("day/cat/1.png,day", "label")],
)
def test_empty_cell(photos: Path, row: str, column: str) -> None:
    message = refusal(photos, f"{HEADER}{ROWS}{row}\n")
    assert f"line 4: no {column} in {row!r}" in message
    assert "--task" not in message


def test_empty_labels_beside_json_lists(photos: Path) -> None:
    rows = 'day/cat/1.png,day,"[""cat"", ""pet""]"\nnight/dog/1.png,night,\n'
    assert "or none, say --task multilabel" in refusal(photos, HEADER + rows)
    found = listed(photos, HEADER + rows.replace("night,\n", "night,[]\n"))
    assert (found.task.kind, found.task.outputs) == ("multilabel", ("cat", "pet"))


def test_comma_without_quotes_is_not_swallowed(photos: Path) -> None:
    message = refusal(photos, HEADER + "day/cat/1.png,day,cat, black\n")
    assert "line 2: 4 cells" in message
    assert "'day/cat/1.png,day,cat, black'" in message


@pytest.mark.parametrize("again", ["day/cat/1.png,day,cat", "./day/cat//1.png,night,dog"])
def test_duplicate_row(photos: Path, again: str) -> None:
    assert "'day/cat/1.png' twice, in lines 2 and 4" in refusal(photos, f"{HEADER}{ROWS}{again}\n")


@pytest.mark.parametrize("path", ["../x.png", "day/../../x.png", "/etc/passwd", "..", "s3://b/x"])
def test_path_outside_the_root(photos: Path, write_image: WriteImage, path: str) -> None:
    write_image(photos.parent / "x.png")
    message = refusal(photos, f"{HEADER}{path},day,cat\n", photos)
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
    assert "has no rows" in refusal(photos, text)


@pytest.mark.parametrize("text", ["", "\n", "\ufeff", "\x89PNG\r\n"])
def test_table_without_header(photos: Path, text: str) -> None:
    assert "has no columns 'path', 'domain', 'label', it has" in refusal(photos, text)


def test_quotation_without_end(photos: Path) -> None:
    assert "not a CSV table" in refusal(photos, HEADER + 'day/cat/1.png,day,"cat\n')


def test_image_outside_through_a_link_is_fine(photos: Path, write_image: WriteImage) -> None:
    write_image(photos.parent / "other/1.png")
    (photos / "other").symlink_to(photos.parent / "other")
    assert len(listed(photos, HEADER + "other/1.png,day,cat\n").samples) == 1


# --- columns ----------------------------------------------------------------------------------


def test_columns_of_other_names(photos: Path) -> None:
    table = photos / "table.csv"
    table.write_text("file,y,site,patient,label\nday/cat/1.png,cat,day,p1,?\n")
    mapping = {"path": "file", "label": "y", "domain": "site", "group": "patient"}
    assert list_table(table, None, mapping).samples == [("day/cat/1.png", "day", "cat", "p1")]


def test_named_column_that_is_missing(photos: Path) -> None:
    table = photos / "table.csv"
    table.write_text("path,domain,species\nday/cat/1.png,day,cat\n")
    with pytest.raises(InputError) as caught:
        list_table(table, None, {"label": "specis"})
    message = str(caught.value)
    assert "has no column 'specis' for the label, it has 'path', 'domain', 'species'" in message
    assert "did you mean species?" in message


def test_other_separator_with_named_columns(photos: Path) -> None:
    table = photos / "table.csv"
    table.write_text("path;site;label\nday/cat/1.png;day;cat\n")
    assert list_table(table, None, {"domain": "site"}).samples == [
        ("day/cat/1.png", "day", "cat", None)
    ]


# --- remote tables ----------------------------------------------------------------------------


def test_table_and_images_in_a_bucket(photos: Path, s3: Bucket) -> None:
    (photos / "table.csv").write_text(HEADER + ROWS)
    url = s3.upload(photos, "some/photos")
    listing = list_table(Url(f"{url}/table.csv"), None)
    local = list_table(photos / "table.csv", None)
    assert listing.samples == local.samples
    assert [file.read() for file in listing.files] == [file.read() for file in local.files]
    assert listing.root is None


def test_remote_root_is_listed_once(photos: Path, s3: Bucket) -> None:
    url = s3.upload(photos, "photos")
    rows = [f"{p.relative_to(photos)},{p.parts[-3]},{p.parts[-2]}" for p in photos.rglob("*.png")]
    listing = listed(photos, HEADER + "\n".join(rows), Url(url))
    assert len(listing.files) == 8
    assert all(isinstance(file, RemoteImage) for file in listing.files)
    assert [file.size() for file in listing.files] == [
        (photos / sample.path).stat().st_size for sample in listing.samples
    ]
    assert len(s3.proxy.requests) == 1
    s3.proxy.requests.clear()
    assert len(listed(photos, HEADER + ROWS, Url(url)).files) == 2
    assert len(s3.proxy.requests) == 1


def test_remote_image_that_is_missing(photos: Path, s3: Bucket) -> None:
    url = s3.upload(photos, "photos")
    message = refusal(photos, f"{HEADER}{ROWS}day/cat/9.png,day,cat\n", Url(url))
    assert message.endswith(f"line 4: no such file in {url!r}: 'day/cat/9.png'")


def test_remote_table_that_is_missing(s3: Bucket) -> None:
    with pytest.raises(InputError, match=r"^no such file: 's3://bucket-\d+/table.csv'$"):
        list_table(Url(f"{s3.url}/table.csv"), None)
