"""Tables that name files (CSV, data frames), and tables of texts."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from tests.s3 import Bucket
from tests.sources.kinds import TABLES

import oodzoo
from oodzoo import ImageDomains, InputError
from oodzoo.core.remote.location import Url
from oodzoo.data.files import RemoteImage
from oodzoo.data.listing import Listing
from oodzoo.data.sources.base import SourceOptions, list_columns
from oodzoo.data.sources.csv_table import list_csv, read_texts

HEADER = "path,domain,label\n"
ROWS = "day/cat/1.png,day,cat\nnight/dog/1.png,night,dog\n"


def opened(photos: Path, text: str, **options: Any) -> ImageDomains:
    (photos / "table.csv").write_text(text, encoding="utf-8", newline="")
    return ImageDomains(photos / "table.csv", **options)


def paths(data: ImageDomains) -> list[str]:
    return [sample.path for sample in data]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param((HEADER + ROWS).replace("\n", "\r\n"), id="Windows lines"),
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
        list_csv(Url(f"{s3.url}/table.csv"), SourceOptions())


def listed(
    paths: list[Any], base: Path | Url, root: Path | Url | None = None, **other: list[Any]
) -> Listing:
    columns = {"path": paths, "domain": ["d"] * len(paths), "label": ["c"] * len(paths)} | other
    return list_columns("frame", columns, root, base)


def names(listing: Listing) -> list[str]:
    return [sample.path for sample in listing.samples]


def test_urls_of_one_folder_of_several_servers_and_local_files(photos: Path) -> None:
    filesystem = pytest.importorskip("fsspec").filesystem("memory")
    for name in ("one", "other"):
        filesystem.put(str(photos), f"/{name}", recursive=True)
    url, wanted = "memory://one", ["day/cat/1.png", "night/dog/2.png"]
    listing = listed([f"{url}/{name}" for name in wanted], photos)
    assert (names(listing), listing.root) == (wanted, None)
    contents = [(photos / name).read_bytes() for name in wanted]
    assert [file.read() for file in listing.files] == contents
    with_root = listed([wanted[0], f"{url}/{wanted[1]}"], photos, Url(url))
    assert (with_root.samples, with_root.files) == (listing.samples, listing.files)
    given = ["memory://one/day/cat/1.png", "memory://other/day/cat/1.png"]
    assert names(listed(given, photos)) == given
    listing = listed([*given, wanted[1]], photos)
    assert (names(listing), listing.root) == ([*given, (photos / wanted[1]).as_posix()], None)
    assert [file.read() for file in listing.files] == [contents[0], *contents]


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
