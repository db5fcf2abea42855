"""Tables that name files (CSV, data frames), and tables of texts."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.s3 import Bucket
from tests.sources.kinds import TABLES

import oodzoo
from oodzoo import ImageDomains, InputError
from oodzoo.core.remote.location import Url
from oodzoo.data.files import LocalFile, RemoteImage
from oodzoo.data.images import decode
from oodzoo.data.listing import Listing
from oodzoo.data.sources.rows import common_folder, list_columns
from oodzoo.data.sources.table import list_table
from oodzoo.data.sources.texts import read_texts

WriteImage = Callable[[Path], Path]

HEADER = "path,domain,label\n"
ROWS = "day/cat/1.png,day,cat\nnight/dog/1.png,night,dog\n"


def opened(photos: Path, text: str, **options: Any) -> ImageDomains:
    (photos / "table.csv").write_text(text, encoding="utf-8", newline="")
    return ImageDomains(photos / "table.csv", **options)


def paths(data: ImageDomains) -> list[str]:
    return [sample.path for sample in data]


# --- CSV files ------------------------------------------------------------------------------------


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
    assert list(opened(photos, text)) == [
        ("day/cat/1.png", "day", "cat", None),
        ("night/dog/1.png", "night", "dog", None),
    ]


def test_group_is_optional_by_row_and_other_columns_are_ignored(photos: Path) -> None:
    text = (
        "id,path,domain,label,group\n"
        "1,day/cat/1.png,day,cat,burst 7\n"
        "2,day/cat/2.png,day,cat,\n"
        "3,night/dog/1.png,night,dog\n"
    )
    assert [s.group for s in opened(photos, text)] == ["burst 7", None, None]


def test_quoted_cells_may_hold_commas_and_newlines(photos: Path, write_image: WriteImage) -> None:
    write_image(photos / "a, b\nc.png")
    data = opened(photos, HEADER + ROWS + '"a, b\nc.png","day, or so","two\nlines"\n')
    assert data.samples[1] == ("a, b\nc.png", "day, or so", "two\nlines", None)


def test_other_separator_and_names(photos: Path) -> None:
    text = "file;y;site;patient;label\nday/cat/1.png;cat;day;p1;?\nday/dog/1.png;dog;x;p2;?\n"
    names = {"path": "file", "label": "y", "domain": "site", "group": "patient"}
    data = opened(photos, text, columns=names)
    assert data.samples[0] == ("day/cat/1.png", "day", "cat", "p1")


def test_empty_lists_beside_json_lists(photos: Path) -> None:
    rows = 'day/cat/1.png,day,"[""cat"", ""pet""]"\nnight/dog/1.png,night,[]\n'
    data = opened(photos, HEADER + rows)
    assert (data.task.kind, data.task.outputs) == ("multilabel", ("cat", "pet"))


def test_roots_and_links(photos: Path, tmp_path: Path, write_image: WriteImage) -> None:
    (tmp_path / "table.csv").write_text(HEADER + ROWS)
    assert len(ImageDomains(tmp_path / "table.csv", root=photos)) == 2
    write_image(tmp_path / "other/1.png")
    (photos / "other").symlink_to(tmp_path / "other")
    data = opened(photos, HEADER + ROWS + "other/1.png,day,cat\n", root=photos)
    assert "other/1.png" in paths(data)  # outside, through a link


def test_table_and_images_in_a_bucket(photos: Path, s3: Bucket) -> None:
    local = opened(photos, HEADER + ROWS)
    remote = ImageDomains(s3.upload(photos, "some/photos") + "/table.csv")
    assert remote.samples == local.samples
    assert remote.digests == local.digests
    assert remote.root is None


def test_remote_root_is_listed_once(photos: Path, s3: Bucket) -> None:
    url = s3.upload(photos, "photos")
    rows = [f"{p.relative_to(photos)},{p.parts[-3]},{p.parts[-2]}" for p in photos.rglob("*.png")]
    data = opened(photos, HEADER + "\n".join(rows), root=url)
    assert len(s3.proxy.requests) == 1
    assert all(isinstance(file, RemoteImage) for file in data.files)
    sizes = [(photos / sample.path).stat().st_size for sample in data]
    assert [file.size() for file in data.files] == sizes
    with pytest.raises(InputError) as caught:
        opened(photos, f"{HEADER}{ROWS}day/cat/9.png,day,cat\n", root=url)
    assert str(caught.value).endswith(f"line 4: no such file in {url!r}: 'day/cat/9.png'")
    with pytest.raises(InputError, match=r"^no such file: 's3://bucket-\d+/table.csv'$"):
        list_table(Url(f"{s3.url}/table.csv"), None)


# --- which file a path means ----------------------------------------------------------------------


def listed(
    paths: list[Any], base: Path | Url, root: Path | Url | None = None, **other: list[Any]
) -> Listing:
    columns = {"path": paths, "domain": ["d"] * len(paths), "label": ["c"] * len(paths)} | other
    return list_columns("frame", columns, root, base)


def names(listing: Listing) -> list[str]:
    return [sample.path for sample in listing.samples]


def test_paths_inside_the_folder_are_relative_to_it(photos: Path) -> None:
    given = ["day/cat/1.png", photos / "day/cat/2.png", str(photos / "night/dog/1.png")]
    listing = listed(given, photos)
    assert names(listing) == ["day/cat/1.png", "day/cat/2.png", "night/dog/1.png"]
    assert listing.root == photos
    assert [str(file) for file in listing.files] == [str(photos / name) for name in names(listing)]
    assert listed(given, photos.parent, photos).samples == listing.samples


def test_paths_elsewhere_are_relative_to_their_common_folder(photos: Path) -> None:
    folder = photos / "day/cat/tables"
    folder.mkdir()
    absolute = listed([str(photos / "day/cat/1.png"), str(photos / "night/cat/1.png")], folder)
    above = listed(["../1.png", "../../../night/cat/1.png"], folder)
    for listing in (absolute, above):
        assert names(listing) == ["day/cat/1.png", "night/cat/1.png"]
        assert listing.root == photos
        assert [file.read() for file in listing.files] == [
            (photos / name).read_bytes() for name in names(listing)
        ]


def test_relative_folders_stay_so_and_file_urls_are_local(
    photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(photos.parent)
    listing = listed(["day/cat/1.png", photos / "day/cat/2.png"], Path("photos"))
    assert [str(f) for f in listing.files] == [str(Path("photos") / n) for n in names(listing)]
    listing = listed([(photos / "day/cat/1.png").as_uri()], photos)
    assert names(listing) == ["day/cat/1.png"]
    assert isinstance(listing.files[0], LocalFile)


@pytest.fixture
def memory(photos: Path) -> Iterator[Callable[[str], str]]:
    """Copy the photos to a URL in memory."""
    fsspec = pytest.importorskip("fsspec")
    filesystem = fsspec.filesystem("memory")

    def copy(url: str) -> str:
        for path in photos.rglob("*.png"):
            filesystem.pipe_file(f"{url}/{path.relative_to(photos).as_posix()}", path.read_bytes())
        return url

    yield copy
    filesystem.store.clear()


def test_urls_of_one_folder(photos: Path, memory: Callable[[str], str]) -> None:
    url = memory("memory://rows/photos")
    listing = listed([f"{url}/day/cat/1.png", f"{url}/night/dog/2.png"], photos)
    assert names(listing) == ["day/cat/1.png", "night/dog/2.png"]
    assert listing.root is None
    assert [file.read() for file in listing.files] == [
        (photos / name).read_bytes() for name in names(listing)
    ]
    with_root = listed(["day/cat/1.png", f"{url}/night/dog/2.png"], photos, Url(url))
    assert with_root.samples == listing.samples
    assert with_root.files == listing.files


def test_urls_of_several_servers_and_local_files(
    photos: Path, memory: Callable[[str], str]
) -> None:
    given = [f"{memory(f'memory://{name}')}/day/cat/1.png" for name in ("one", "other")]
    assert names(listed(given, photos)) == given
    listing = listed([*given, "day/cat/2.png"], photos)
    assert names(listing) == [*given, (photos / "day/cat/2.png").as_posix()]
    assert listing.root is None
    contents = [file.read() for file in listing.files]
    assert contents[0] == contents[1] == (photos / "day/cat/1.png").read_bytes()
    assert contents[2] == (photos / "day/cat/2.png").read_bytes()


def test_each_bucket_is_listed_once(photos: Path, s3: Bucket) -> None:
    url = s3.upload(photos, "a/photos")
    s3.put("b/other.png", b"")
    given = [f"{url}/{path.relative_to(photos).as_posix()}" for path in photos.rglob("*.png")]
    assert len(listed(given, photos).files) == 8
    (request,) = s3.proxy.requests
    assert "prefix=a%2Fphotos%2F" in request.line


parts = st.lists(st.sampled_from(["a", "b", "ab", "é"]), min_size=1, max_size=4)


@pytest.mark.parametrize("start", ["/", "s3://bucket/"])
@given(st.lists(parts, min_size=1, max_size=5))
def test_common_folder_is_the_deepest_one(start: str, given: list[list[str]]) -> None:
    places = [start + "/".join([*folders, "x.png"]) for folders in given]
    shared: list[str] = []
    for level in zip(*given, strict=False):
        if len(set(level)) > 1:
            break
        shared.append(level[0])
    expected = (start + "/".join(shared)).rstrip("/") or "/"
    assert common_folder(places) == expected
    assert all(PurePosixPath(place).is_relative_to(expected) for place in places)


@pytest.mark.parametrize(
    "places", [["s3://a/x.png", "s3://b/x.png"], ["/a/x.png", "s3://b/x.png"], ["C:/x", "D:/x"]]
)
def test_no_common_folder(places: list[str]) -> None:
    assert common_folder(places) is None


# --- data frames ----------------------------------------------------------------------------------


def test_rows_of_a_frame_are_read_by_position() -> None:
    pandas = pytest.importorskip("pandas")
    pixels = list(np.random.default_rng(0).integers(0, 256, (4, 6, 7, 3), np.uint8))
    frame = pandas.DataFrame({"image": pixels, "label": [0, 1, 0, 1]}, index=[9, 9, 7, 0])
    data = ImageDomains(frame, domains=pandas.Series(["a", "a", "b", "b"], index=[3, 2, 1, 0]))
    assert [s.domain for s in data] == ["a", "a", "b", "b"]
    assert np.asarray(decode(data.open(1))).tolist() == pixels[1].tolist()


# --- texts ----------------------------------------------------------------------------------------

COLUMNS = {"text": "review", "label": "stars", "domain": "site"}
REVIEWS = {
    "review": ["good, really", 'a "bad" pan', "fine\nbook", "dull, long"],
    "stars": ["up", "down", "up", "down"],
    "site": ["kitchen", "kitchen", "books", "books"],
    "author": ["a", "b", "a", "b"],
}


def tables_of_texts(folder: Path) -> dict[str, Any]:
    frame = pytest.importorskip("pandas").DataFrame(REVIEWS)
    frame.to_csv(folder / "other.csv", index=False, sep=";", encoding="utf-8-sig")
    memory = pytest.importorskip("fsspec").filesystem("memory")
    memory.pipe_file("memory://texts/x.csv", (folder / "other.csv").read_bytes())
    kinds = ("CSV", "pandas", "polars", "Parquet of paths")
    found = {kind: TABLES[kind](REVIEWS, folder) for kind in kinds}
    return found | {"semicolons": folder / "other.csv", "URL": "memory://texts/x.csv"}


def test_tables_of_texts(tmp_path: Path) -> None:
    fingerprints = set()
    for source in tables_of_texts(tmp_path).values():
        data = oodzoo.ImageDomains(source, columns=COLUMNS | {"group": "author"})
        assert data.modality == "text"
        assert (data.domains, data.classes) == (("books", "kitchen"), ("down", "up"))
        texts = {data.open(at).decode(): sample for at, sample in enumerate(data.samples)}
        assert set(texts) == set(REVIEWS["review"])
        assert texts["fine\nbook"][1:] == ("books", "up", "a")
        expected = [hashlib.sha256(data.open(at)).hexdigest() for at in range(4)]
        assert list(data.digests) == expected
        assert [issue.kind for issue in data.check()] == ["leak"]  # authors on several sites
        assert str(data.summary()) == str(data.summary(quick=True))  # texts are not decoded
        assert repr(data).endswith("4 texts, 2 domains, 2 classes)")
        fingerprints.add(data.fingerprint)
    assert len(fingerprints) == 1


def test_names_labels_and_domains_of_texts() -> None:
    frame = TABLES["pandas"]({**REVIEWS, "id": list("wxyz")}, Path())
    data = ImageDomains(frame, columns={**COLUMNS, "path": "id"})
    assert sorted(paths(data)) == list("wxyz")
    given: dict[str, Any] = {"labels": [1, 2, 1, 2], "domains": ["x", "x", "y", "y"]}
    data = ImageDomains(frame[["review"]], columns={"text": "review"}, **given)
    assert (data.classes, data.domains) == (("1", "2"), ("x", "y"))
    proposed = ImageDomains(frame, columns={"text": "review", "label": "stars"}, domains="propose")
    assert proposed.domains == ("all",)
    assert [each.name for each in proposed.proposals] == ["site", "author", "id"]


def test_texts_to_predict(tmp_path: Path) -> None:
    new = TABLES["CSV"](REVIEWS, tmp_path)
    rows = ["row 0", "row 1", "row 2", "row 3"]
    assert read_texts(new, "review") == (REVIEWS["review"], rows)
    parquet = TABLES["Parquet of paths"](REVIEWS, tmp_path)
    assert read_texts(parquet, "review") == (REVIEWS["review"], rows)
    (tmp_path / "new.txt").write_text("one\ntwo words\n")
    assert read_texts(tmp_path / "new.txt", "") == (["one", "two words"], ["line 1", "line 2"])
    (tmp_path / "named.csv").write_text("path,text\na,x\n")
    assert read_texts(tmp_path / "named.csv", "text") == (["x"], ["a"])
    with pytest.raises(InputError, match=r"no column 'text', it has 'review', .* --text-column"):
        read_texts(new, "text")
    (tmp_path / "bad.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match=r"cannot read .* as text"):
        read_texts(tmp_path / "bad.txt", "text")
