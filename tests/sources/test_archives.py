"""Files that contain many images: tar archives and Parquet files."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import tarfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.s3 import Bucket
from tests.sources.kinds import write_parquet, write_tar

from oodzoo import ImageDomains, InputError
from oodzoo.core.remote.location import Url
from oodzoo.data.files import expand_braces, find_containers, read_bytes, read_cell, read_each
from oodzoo.data.sources import parquet
from oodzoo.data.sources.base import SourceOptions
from oodzoo.data.sources.tar import Member, list_members, list_tars
from oodzoo.tasks import CLASSIFICATION, Task, task_of

WriteImage = Callable[[Path], Path]
Columns = dict[str, list[Any]]


def images_of(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.png"))


def webdataset_members(folder: Path) -> dict[str, bytes]:
    """Members `day/cat/1.png`, `.cls` and `.json`, which has the domain, of each image."""
    members = {}
    for path in images_of(folder):
        key = path.relative_to(folder).with_suffix("").as_posix()
        members[f"{key}.png"] = path.read_bytes()
        members[f"{key}.cls"] = path.parts[-2].encode()
        members[f"{key}.json"] = json.dumps({"domain": path.parts[-3]}).encode()
    return members


def contents(data: ImageDomains) -> dict[tuple[Any, ...], bytes]:
    return {tuple(sample): data.open(i) for i, sample in enumerate(data.samples)}


def require_equal(source: Any, photos: Path, **options: Any) -> ImageDomains:
    """Open a source that has the samples and bytes of the folder."""
    data = ImageDomains(source, **options)
    assert contents(data) == contents(ImageDomains(photos))
    return data


def refusal(function: Callable[[], Any]) -> str:
    with pytest.raises(InputError) as caught:
        function()
    message = str(caught.value)
    assert "\n" not in message
    message.encode()
    return message


# --- which files a path, a URL or a pattern means -------------------------------------------------

TARS = (".tar",)
NAMES = ("a-0.tar", "a-1.tar", "a-2.TAR", "b.tar", ".hidden.tar", "notes.txt", "deep/c.tar")


@pytest.fixture(params=["local", "remote"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path | Url:
    """A folder with some files, local or in memory."""
    filesystem = pytest.importorskip("fsspec").filesystem("memory")
    for name in NAMES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
        filesystem.pipe_file(f"memory://containers/tars/{name}", b"x")
    return tmp_path if request.param == "local" else Url("memory://containers/tars")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("", ["a-0.tar", "a-1.tar", "a-2.TAR", "b.tar"]),
        ("a-?.tar", ["a-0.tar", "a-1.tar"]),
        ("{b,a-?,a-1}.tar", ["b.tar", "a-0.tar", "a-1.tar"]),
        ("d*/c.tar", ["c.tar"]),
        ("c.tar", "no such file: '.*c.tar'$"),
        ("c-*.tar", "no file matches '.*c-[*].tar'$"),
        ("a-{0..3}.tar", r"no such file: '.*a-2.tar', which '.*a-\{0..3\}.tar' means$"),
        ("a-{3..0}.tar", "mean no file$"),
        ("a-{0..99999999}.tar", "mean more than 100,000 files$"),
    ],
)
def test_patterns(folder: Path | Url, given: str, expected: Any) -> None:
    location = folder / given if given else folder
    if isinstance(expected, str):
        with pytest.raises(InputError, match=expected):
            find_containers(location, TARS)
        return
    files = find_containers(location, TARS)
    assert [str(file).rpartition("/")[2] for file in files] == expected
    assert list(read_each(str, files)) == [str(file) for file in files]


def test_braces_and_brackets_that_are_part_of_a_name(tmp_path: Path) -> None:
    for text in ("x", "{x}", "{}", "x{1.3}", "}{", "{a..b}"):
        assert expand_braces(text) == [text]
    for name in ("a[1].tar", "a1.tar", "{x,y}.tar"):
        (tmp_path / name).touch()
    for name in ("a[1].tar", "{x,y}.tar"):
        assert [str(file) for file in find_containers(tmp_path / name, TARS)] == [
            str(tmp_path / name)
        ]


# --- archives of a folder -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["gnu", "pax"])
def test_long_names_and_links(photos: Path, write_image: WriteImage, kind: str) -> None:
    write_image(photos / ("day/" + "ein langes Wort/" * 12 + "猫.7.jpeg"))
    write_image(photos / "day/cat/3.part.two.PNG")
    (photos / "day/cat/hard.png").hardlink_to(photos / "day/cat/1.png")
    (photos / "day/dog/soft.png").symlink_to("../cat/1.png")
    (photos / "night/cat/chain.png").symlink_to("../../day/dog/soft.png")
    (photos / "night/notes").symlink_to("/nowhere")
    path = photos.parent / f"{kind}.tar"
    subprocess.run(["tar", f"--format={kind}", "-cf", path, "photos"], check=True, cwd=path.parent)
    require_equal(path, photos)


# --- WebDataset -----------------------------------------------------------------------------------


SEVERAL, NUMBER = task_of("multilabel", ("a", "c")), task_of("regression", ("label",))
NUMBERS = task_of("regression", ("label0", "label1"))
BOM = "c".encode("utf-8-sig")


@pytest.mark.parametrize(
    ("parts", "columns", "expected", "task"),
    [
        ({"cls": b"3", "domain_txt": b" x "}, None, ("x", "3", None), CLASSIFICATION),
        ({"label": b"c", "domain": b"x", "group": b"g"}, None, ("x", "c", "g"), CLASSIFICATION),
        ({"cls": b"3", "json": {"label": "no", "domain": 1}}, None, ("1", "3", None),
         CLASSIFICATION),
        ({"meta_json": {"a": {"b": "c"}}}, {"label": "meta.json.a.b", "domain": "meta.json.a.b"},
         ("c", "c", None), CLASSIFICATION),
        ({"txt": BOM, "site_TXT": b"x"}, {"label": "txt", "domain": "site.txt"}, ("x", "c", None),
         CLASSIFICATION),
        ({"json": {"label": ["c", "a"], "domain": "x"}}, None, ("x", '["a", "c"]', None), SEVERAL),
        ({"json": {"label": 1.5, "domain": "x"}}, None, ("x", "1.5", None), NUMBER),
        ({"json": {"label": [1.5, 2], "domain": "x"}}, None, ("x", "1.5 2.0", None), NUMBERS),
        ({"cls": b"7", "domain": b"x"}, "regression", ("x", "7.0", None), NUMBER),
        # which member is the image
        ({"seg_png": b"mask", "cls": b"c", "domain": b"x"}, None, ("x", "c", None), CLASSIFICATION),
        ({"seg_png": b"image", "cls": b"c", "domain": b"x", "png": b"photo"}, {"image": "seg.png"},
         ("x", "c", None), CLASSIFICATION),
    ],
)  # fmt: skip
def test_members_and_fields(
    tmp_path: Path, parts: dict[str, Any], columns: Any, expected: Any, task: Task
) -> None:
    members = {}
    for extension, value in ({"png": b"image"} | parts).items():
        name = f"a/key.{extension.replace('_', '.')}"
        members[name] = value if isinstance(value, bytes) else json.dumps(value).encode()
    kind: Any = columns if isinstance(columns, str) else None
    path = write_tar(tmp_path / "one.tar", members)
    listing = list_tars(path, SourceOptions(columns=None if kind else columns, task=kind))
    (sample,), (file,) = listing.samples, listing.files
    assert (sample[1:], file.read(), listing.task) == (expected, b"image", task)
    assert sample.path == f"a/key.{'seg.png' if 'image' in (columns or {}) else 'png'}"


# --- remote archives ------------------------------------------------------------------------------


def test_archives_are_fetched_once_by_many_threads_if_the_cache_can_hold_them(
    photos: Path, tmp_path: Path, s3: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.put("p.tar", write_tar(tmp_path / "p.tar", webdataset_members(photos)).read_bytes())
    monkeypatch.setenv("OODZOO_CACHE_SIZE", "5K")
    with pytest.raises(InputError, match=r"in 1 file, and the cache holds .*OODZOO_CACHE_SIZE"):
        list_tars(Url(f"{s3.url}/p.tar"), SourceOptions())
    lines = [r.line for r in s3.proxy.requests]
    assert not [line for line in lines if line.startswith("GET /") and "p.tar" in line]
    monkeypatch.delenv("OODZOO_CACHE_SIZE")
    listing = list_tars(Url(f"{s3.url}/p.tar"), SourceOptions())
    monkeypatch.setenv("OODZOO_CACHE", str(tmp_path / "empty"))
    s3.proxy.forget()
    s3.proxy.slow(r"p\.tar", seconds=0.3)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(read_bytes, listing.files))
    assert found == [path.read_bytes() for path in images_of(photos)]
    assert len(s3.proxy.requests) == 1


# --- members --------------------------------------------------------------------------------------

TWO = {"a/1.png": b"x" * 700, "a/2.png": b"y" * 512}


@pytest.fixture
def two(tmp_path: Path) -> Path:
    return write_tar(tmp_path / "two.tar", TWO)


def test_where_an_archive_ends(two: Path) -> None:
    assert list_members(two, "") == [Member("a/1.png", 512, 700), Member("a/2.png", 2048, 512)]
    content = two.read_bytes()
    two.write_bytes(content[: 2560 + 512])  # without the padding
    assert len(list_members(two, "")) == 2
    damaged = bytearray(content)
    damaged[1536 + 10] ^= 1
    for changed, words in (
        *((content[:size], "is truncated") for size in (512, 900, 1536, 1800, 2048, 2300, 2900)),
        (content[:511], "is truncated|is not a tar file"),
        (content * 2, "has data after its end mark, at byte 2,560"),
        (bytes(damaged), "is damaged: there is no header at byte 1,536"),
        (gzip.compress(content), "is compressed, and images are read from it in any order; decomp"),
        (b"\x89PNG" + bytes(2000), "is not a tar file"),
    ):
        two.write_bytes(changed)
        assert re.search(words, refusal(lambda: list_members(two, "the tar")))
    assert list_members(write_tar(two, {}), "") == []


def test_members_that_are_no_files_or_no_plain_ones(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "x.tar", {".x/1.png": b"", "a/._1.png": b"", "a/1.png": b"1"})
    with tarfile.open(path, "a") as archive:
        for name, kind in (("b.png", tarfile.FIFOTYPE), ("c.png", tarfile.DIRTYPE)):
            info = tarfile.TarInfo(name)
            info.type = kind
            archive.addfile(info)
    assert [member.name for member in list_members(path, "")] == ["a/1.png"]
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        for name, headers in (("a.png", {}), ("b.png", {"size": "-1536"})):  # which leads back
            info = tarfile.TarInfo(name)
            info.pax_headers = headers
            archive.addfile(info)
    assert "is damaged: there is no header at byte 512" in refusal(lambda: list_members(path, ""))
    with (tmp_path / "1.png").open("wb") as file:
        file.seek(1 << 20)
        file.write(b"x")
    if Path(file.name).stat().st_blocks < 1000:  # this file system does not write holes
        subprocess.run(["tar", "--sparse", "-cf", "x.tar", "1.png"], check=True, cwd=tmp_path)
        assert "'1.png' is stored with holes" in refusal(lambda: list_members(path, ""))


# --- Parquet --------------------------------------------------------------------------------------


@pytest.fixture
def columns(photos: Path) -> Columns:
    pytest.importorskip("pyarrow")
    images = images_of(photos)
    return {
        "image": [path.read_bytes() for path in images],
        "path": [path.relative_to(photos).as_posix() for path in images],
        "domain": [path.parts[-3] for path in images],
        "label": [path.parts[-2] for path in images],
    }


@pytest.mark.parametrize(("number", "words"), [(2, "2, and there are 2 classes"), (-1, "missing")])
def test_numbers_without_a_class(photos: Path, columns: Columns, number: int, words: str) -> None:
    columns["label"] = [["cat", "dog"].index(label) for label in columns["label"]]
    columns["label"][3] = number
    feature = {"names": ["cat", "dog"], "_type": "ClassLabel"}
    text = json.dumps({"info": {"features": {"label": feature}}})
    table = pytest.importorskip("pyarrow").table(columns)
    table = table.replace_schema_metadata({"huggingface": text})
    message = refusal(lambda: ImageDomains(write_parquet(photos / "x.parquet", table)))
    assert f"row 3: the label is {words}" in message


@pytest.mark.parametrize(
    "text", ["", "null", "[1]", '{"info": {"features": {"label": {"names": 3}}}}', "[" * 99999]
)
def test_metadata_that_are_no_classes(photos: Path, columns: Columns, text: str) -> None:
    table = pytest.importorskip("pyarrow").table(columns)
    table = table.replace_schema_metadata({"huggingface": text})
    require_equal(write_parquet(photos / "x.parquet", table), photos)


def test_row_groups_that_are_too_large(
    columns: Columns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_parquet(tmp_path / "x.parquet", columns, row_group_size=4)
    monkeypatch.setattr(parquet, "MAX_GROUP_BYTES", 100)
    message = refusal(lambda: ImageDomains(path))
    assert "row group 0 of " in message
    assert "row_group_size=100" in message


# --- row groups -----------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "x.parquet"
    cells = [bytes([n]) * 1000 for n in range(100)]
    write_parquet(path, {"image": cells, "x": range(100)}, row_group_size=10)
    return path


def test_file_that_changes_or_is_damaged(file: Path) -> None:
    content = bytearray(file.read_bytes())
    assert read_cell(file, 0, 9, "image") == bytes([9]) * 1000
    write_parquet(file, {"image": [b"new"]})
    assert read_cell(file, 0, 0, "image") == b"new"
    with pytest.raises(InputError, match="changed while it was read"):
        read_cell(file, 0, 9, "image")
    with pytest.raises(InputError, match=r"row group 3 of .* cannot be decoded"):
        read_cell(file, 3, 0, "image")
    content[4:400] = bytes(396)
    file.write_bytes(content)
    with pytest.raises(InputError, match=r"row group 0 of .*x.parquet' cannot be decoded: "):
        read_cell(file, 0, 0, "image")
