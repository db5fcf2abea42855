"""Parquet files: images in cells, and tables with paths of images."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.data.sources.archives import parquet_columns
from tests.s3 import Bucket

import oodzoo
from oodzoo.data.files import (
    LocalFile,
    ParquetCell,
    StoredFile,
    UnreadableImageError,
    absolute,
    read_bytes,
)
from oodzoo.data.listing import Listing
from oodzoo.data.sources import parquet
from oodzoo.data.sources.folder import list_folder
from oodzoo.data.sources.parquet import list_parquet
from oodzoo.errors import InputError
from oodzoo.remote.location import Url

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

WriteImage = Callable[[Path], Path]
Columns = dict[str, list[Any]]


def write(path: Path, columns: Any, **options: Any) -> Path:
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    pq.write_table(table, path, **options)
    return path


def contents(listing: Listing) -> dict[tuple[Any, ...], bytes]:
    return {
        tuple(s): read_bytes(file) for s, file in zip(listing.samples, listing.files, strict=True)
    }


def refusal(path: Path, columns: dict[str, str] | None = None) -> str:
    with pytest.raises(InputError) as caught:
        list_parquet(path, columns)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.fixture
def columns(photos: Path) -> Columns:
    return parquet_columns(photos)


# --- images in cells --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["binary", "large_binary", "binary_view", "struct"])
@pytest.mark.parametrize("rows", [3, 1000])
def test_images_in_cells(photos: Path, columns: Columns, kind: str, rows: int) -> None:
    if kind == "struct":
        image = [
            {"bytes": b, "path": p} for b, p in zip(columns["image"], columns["path"], strict=True)
        ]
        del columns["path"]
    elif hasattr(pa, kind):
        image = pa.array(columns["image"], getattr(pa, kind)())
    else:
        pytest.skip("this version of pyarrow does not have this kind of columns")
    path = write(photos / "x.parquet", {**columns, "image": image}, row_group_size=rows)
    assert contents(list_parquet(path, None)) == contents(list_folder(photos))


def test_the_data_set_is_the_same(photos: Path, columns: Columns, tmp_path: Path) -> None:
    path = write(tmp_path / "x.parquet", columns)
    assert oodzoo.ImageDomains(path).fingerprint == oodzoo.ImageDomains(photos).fingerprint


def test_columns_of_other_names(photos: Path, columns: Columns, tmp_path: Path) -> None:
    other = {"img": "image", "file": "path", "site": "domain", "y": "label"}
    columns = {name: columns[old] for name, old in other.items()}
    path = write(tmp_path / "x.parquet", {**columns, "who": list(range(8)), "image": ["?"] * 8})
    mapping = {old: name for name, old in other.items()} | {"group": "who"}
    listing = list_parquet(path, mapping)
    assert [sample.group for sample in listing.samples] == [str(n) for n in range(8)]
    expected = contents(list_folder(photos))
    assert {(*s[:3], None): content for s, content in contents(listing).items()} == expected


def test_dictionaries(photos: Path, columns: Columns, tmp_path: Path) -> None:
    table = pa.table(columns)
    for name in ("label", "domain"):
        encoded = table[name].dictionary_encode()
        table = table.set_column(table.schema.get_field_index(name), name, encoded)
    path = write(tmp_path / "x.parquet", table)
    assert contents(list_parquet(path, None)) == contents(list_folder(photos))


def with_classes(table: Any, **features: list[str]) -> Any:
    info = {name: {"names": names, "_type": "ClassLabel"} for name, names in features.items()}
    return table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": info}})})


def test_classes_of_hugging_face(photos: Path, columns: Columns, tmp_path: Path) -> None:
    columns["label"] = [["cat", "dog"].index(label) for label in columns["label"]]
    columns["domain"] = [["night", "day"].index(domain) for domain in columns["domain"]]
    table = with_classes(pa.table(columns), label=["cat", "dog"], domain=["night", "day"])
    path = write(tmp_path / "x.parquet", table)
    assert contents(list_parquet(path, None)) == contents(list_folder(photos))
    columns["label"][3] = 2
    write(path, with_classes(pa.table(columns), label=["cat", "dog"]))
    assert "row 3: the label is 2, and there are 2 classes" in refusal(path)
    columns["label"][3] = -1
    write(path, with_classes(pa.table(columns), label=["cat", "dog"]))
    assert "row 3: the label is missing" in refusal(path)


@pytest.mark.parametrize(
    "text", ["", "[", "null", "[1]", '{"info": {"features": {"label": {"names": 3}}}}', "[" * 99999]
)
def test_metadata_that_are_no_classes(columns: Columns, tmp_path: Path, text: str) -> None:
    table = pa.table(columns).replace_schema_metadata({"huggingface": text})
    assert len(list_parquet(write(tmp_path / "x.parquet", table), None).samples) == 8


def test_file_that_datasets_writes(photos: Path, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    columns = parquet_columns(photos)
    features = datasets.Features(
        image=datasets.Image(),
        domain=datasets.Value("string"),
        label=datasets.ClassLabel(names=["cat", "dog"]),
    )
    del columns["path"]
    columns["image"] = [{"bytes": content, "path": None} for content in columns["image"]]
    data = datasets.Dataset.from_dict(columns, features=features)
    data.to_parquet(tmp_path / "x.parquet")
    listing = list_parquet(tmp_path / "x.parquet", None)
    assert [s.path for s in listing.samples] == [f"x.parquet/{n:06d}" for n in range(8)]
    expected = {(s[1:], content) for s, content in contents(list_folder(photos)).items()}
    assert {(s[1:], content) for s, content in contents(listing).items()} == expected


@pytest.mark.parametrize("names", [["1.png"] * 8, [None, *"abcdefg"], [None] * 8])
def test_names_in_structs_that_are_not_unique(
    columns: Columns, tmp_path: Path, names: list[Any]
) -> None:
    image = [{"bytes": b, "path": p} for b, p in zip(columns["image"], names, strict=True)]
    del columns["path"]
    listing = list_parquet(write(tmp_path / "x.parquet", {**columns, "image": image}), None)
    assert [s.path for s in listing.samples] == [f"x.parquet/{n:06d}" for n in range(8)]


@pytest.mark.parametrize("names", [["1.png"] * 8, [None, *"abcdefg"]])
def test_paths_beside_images_that_are_not_unique(
    columns: Columns, tmp_path: Path, names: list[Any]
) -> None:
    listing = list_parquet(write(tmp_path / "x.parquet", {**columns, "path": names}), None)
    assert [s.path for s in listing.samples] == [f"x.parquet/{n:06d}" for n in range(8)]


# --- several files ----------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["", "*.parquet", "x-{0..2}.parquet"])
def test_several_files(photos: Path, columns: Columns, tmp_path: Path, given: str) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    for n in range(2):
        write(folder / f"x-{n}.parquet", {k: v[4 * n : 4 * n + 4] for k, v in columns.items()})
    write(folder / "x-2.parquet", pa.table(columns).slice(0, 0))
    listing = list_parquet(folder / given, None)
    assert contents(listing) == contents(list_folder(photos))
    files = [file.file for file in listing.files if isinstance(file, ParquetCell)]
    assert set(files) == {LocalFile(str(folder / f"x-{n}.parquet")) for n in range(2)}


def test_files_of_one_name_in_several_folders(columns: Columns, tmp_path: Path) -> None:
    del columns["path"]
    for name in ("day", "night"):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "x.parquet", {k: v[:2] for k, v in columns.items()})
    listing = list_parquet(tmp_path / "{day,night}" / "x.parquet", None)
    assert [s.path for s in listing.samples] == [
        f"{name}/x.parquet/{n:06d}" for name in ("day", "night") for n in range(2)
    ]


def test_files_of_different_forms(columns: Columns, tmp_path: Path) -> None:
    write(tmp_path / "1.parquet", columns)
    write(tmp_path / "2.parquet", {**columns, "group": list("abcdefgh")})
    message = refusal(tmp_path / "*.parquet")
    assert "1.parquet' has columns for label, domain, path, image, and " in message
    assert "2.parquet' for label, domain, path, group, image; give files of one form" in message


# --- tables of paths --------------------------------------------------------------------------


@pytest.mark.parametrize("images", ["none", "structs"])
def test_paths_of_files(photos: Path, columns: Columns, images: str) -> None:
    del columns["image"]
    if images == "structs":  # as datasets writes them if it is told not to embed files
        columns["image"] = [{"bytes": None, "path": path} for path in columns.pop("path")]
    kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    table = pa.table({k: pa.array(v, kind if k == "image" else None) for k, v in columns.items()})
    listing = list_parquet(write(photos / "x.parquet", table), None)
    assert contents(listing) == contents(list_folder(photos))
    assert listing.root == photos
    assert all(isinstance(file, LocalFile) for file in listing.files)


def test_path_that_is_missing(photos: Path, columns: Columns) -> None:
    del columns["image"]
    columns["path"][2] = "none.png"
    message = refusal(write(photos / "x.parquet", columns))
    assert f"x.parquet', row 2: no such file in {str(photos)!r}: 'none.png'" in message


def test_paths_are_preferred_if_they_are_named(photos: Path, columns: Columns) -> None:
    columns["file"] = columns.pop("path")
    listing = list_parquet(write(photos / "x.parquet", columns), {"path": "file"})
    assert all(isinstance(file, LocalFile) for file in listing.files)


# --- bad input --------------------------------------------------------------------------------


@pytest.mark.parametrize("column", ["image", "domain", "label"])
def test_missing_column(columns: Columns, tmp_path: Path, column: str) -> None:
    del columns["path"]
    columns[f"{column}s"] = columns.pop(column)
    message = refusal(write(tmp_path / "x.parquet", columns))
    assert f"has no column {column!r}, it has" in message
    assert f"did you mean {column}s?" in message


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (["x"] * 8, "the column 'image' of .* has string; it needs the bytes of image files"),
        ([1] * 8, "has int64; it needs the bytes"),
        ([{"path": "x"}] * 8, "has the fields path; it needs bytes"),
        ([{"bytes": "x"}] * 8, "the column 'image.bytes' of .* has string"),
    ],
)
def test_column_of_another_kind(
    columns: Columns, tmp_path: Path, image: list[Any], expected: str
) -> None:
    with pytest.raises(InputError, match=expected):
        list_parquet(write(tmp_path / "x.parquet", {**columns, "image": image}), None)


def test_bad_labels(columns: Columns, tmp_path: Path) -> None:
    columns["label"][3] = None
    assert "row 3: the label is missing" in refusal(write(tmp_path / "x.parquet", columns))
    columns["label"] = [b"x"] * 8
    assert "row 0: the label is b'x'" in refusal(write(tmp_path / "x.parquet", columns))


def test_no_rows(columns: Columns, tmp_path: Path) -> None:
    path = write(tmp_path / "x.parquet", pa.table(columns).slice(0, 0))
    assert refusal(path) == f"{str(path)!r} has no rows"


@pytest.mark.parametrize("content", [b"", b"PAR1", b"x" * 1000, b"PAR1" + bytes(100) + b"PAR1"])
def test_not_a_parquet_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.parquet").write_bytes(content)
    assert "x.parquet' is not a Parquet file: " in refusal(tmp_path / "x.parquet")


def test_empty_cell(columns: Columns, tmp_path: Path) -> None:
    columns["image"][5] = None
    listing = list_parquet(write(tmp_path / "x.parquet", columns), None)
    with pytest.raises(UnreadableImageError, match="the cell is empty"):
        read_bytes(listing.files[5])
    assert read_bytes(listing.files[6]) == columns["image"][6]


def test_row_groups_that_are_too_large(
    columns: Columns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "x.parquet", columns, row_group_size=4)
    monkeypatch.setattr(parquet, "MAX_GROUP_BYTES", 100)
    assert "row group 0 of " in (message := refusal(path))
    assert "row_group_size=100" in message


def test_cells_reach_other_processes(
    columns: Columns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "x.parquet", columns)
    monkeypatch.chdir(tmp_path)
    cell = absolute(list_parquet(Path("x.parquet"), None).files[3])
    monkeypatch.chdir("/")
    sent = msgspec.json.decode(msgspec.json.encode(cell), type=StoredFile)
    assert sent == cell
    assert sent.read() == columns["image"][3]


# --- remote files -----------------------------------------------------------------------------


def test_remote_files_are_fetched_once(
    photos: Path, columns: Columns, tmp_path: Path, s3: Bucket
) -> None:
    s3.put("x.parquet", write(tmp_path / "x.parquet", columns, row_group_size=2).read_bytes())
    listing = list_parquet(Url(f"{s3.url}/x.parquet"), None)
    assert contents(listing) == contents(list_folder(photos))
    assert len([r for r in s3.proxy.requests if r.line.startswith("GET")]) == 1


def test_remote_table(photos: Path, columns: Columns, s3: Bucket) -> None:
    del columns["image"]
    write(photos / "x.parquet", columns)
    url = s3.upload(photos, "photos")
    listing = list_parquet(Url(f"{url}/x.parquet"), None)
    assert contents(listing) == contents(list_folder(photos))


# --- properties -------------------------------------------------------------------------------


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=12), st.integers(1, 5), st.randoms())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_every_cell_in_any_order(
    tmp_path: Path, cells: list[bytes], rows: int, random: Any
) -> None:
    names = ["x"] * len(cells)
    kind = random.choice(["none", "snappy", "zstd"])
    columns = {"image": cells, "label": names, "domain": names}
    # another file each time: the same one could change faster than the clock of the file system
    path = tmp_path / f"{len(list(tmp_path.iterdir()))}.parquet"
    write(path, columns, row_group_size=rows, compression=kind)
    files = list_parquet(path, None).files
    order = random.sample(range(len(cells)), len(cells))
    assert [files[n].read() for n in order] == [cells[n] for n in order]
