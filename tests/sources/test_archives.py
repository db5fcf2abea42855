"""Files that contain many images: tar archives and Parquet files."""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.s3 import Bucket
from tests.sources.kinds import write_parquet, write_tar

from oodzoo import ImageDomains, InputError
from oodzoo.core.remote.location import Url
from oodzoo.data import row_groups
from oodzoo.data.files import (
    FilePart,
    LocalFile,
    StoredFile,
    UnreadableImageError,
    absolute,
    read_bytes,
)
from oodzoo.data.row_groups import GroupCache, _Group, read_cell
from oodzoo.data.sources import parquet
from oodzoo.data.sources.containers import expand_braces, find_containers, read_each
from oodzoo.data.sources.parquet import list_parquet
from oodzoo.data.sources.tar import Member, list_members, list_tars
from oodzoo.tasks import Task

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


def folder_members(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in images_of(folder)}


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
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path | Url]:
    """A folder with some files, local or in memory."""
    if request.param == "local":
        for name in NAMES:
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_bytes(b"x")
        yield tmp_path
        return
    fsspec = pytest.importorskip("fsspec")
    filesystem = fsspec.filesystem("memory")
    for name in NAMES:
        filesystem.pipe_file(f"memory://containers/tars/{name}", b"x")
    yield Url("memory://containers/tars")
    filesystem.store.clear()


def found(location: Path | Url) -> list[str]:
    return [str(file).rpartition("/")[2] for file in find_containers(location, TARS)]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("", ["a-0.tar", "a-1.tar", "a-2.TAR", "b.tar"]),
        ("b.tar", ["b.tar"]),
        ("a-?.tar", ["a-0.tar", "a-1.tar"]),
        ("*.tar", ["a-0.tar", "a-1.tar", "b.tar"]),
        ("a-[1-9].tar", ["a-1.tar"]),
        ("a-{0..1}.tar", ["a-0.tar", "a-1.tar"]),
        ("{b,a-1}.tar", ["b.tar", "a-1.tar"]),
        ("{b,a-?,a-1}.tar", ["b.tar", "a-0.tar", "a-1.tar"]),
        ("d*/c.tar", ["c.tar"]),
    ],
)
def test_patterns(folder: Path | Url, given: str, expected: list[str]) -> None:
    location = folder / given if given else folder
    assert found(location) == expected
    files = find_containers(location, TARS)
    assert list(read_each(str, files)) == [str(file) for file in files]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("c.tar", "no such file: '.*c.tar'$"),
        ("c-*.tar", "no file matches '.*c-[*].tar'$"),
        ("a-{0..3}.tar", r"no such file: '.*a-2.tar', which '.*a-\{0..3\}.tar' means$"),
        ("a-{3..0}.tar", "mean no file$"),
        ("a-{0..99999999}.tar", "mean more than 100,000 files$"),
    ],
)
def test_no_such_file(folder: Path | Url, given: str, expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        find_containers(folder / given, TARS)


def test_file_whose_name_looks_like_a_pattern(tmp_path: Path) -> None:
    for name in ("a[1].tar", "a1.tar", "{x,y}.tar"):
        (tmp_path / name).touch()
    assert found(tmp_path / "a[1].tar") == ["a[1].tar"]
    assert found(tmp_path / "{x,y}.tar") == ["{x,y}.tar"]


@given(st.integers(0, 3), st.integers(0, 1000), st.integers(0, 20))
def test_ranges_keep_their_width(zeros: int, first: int, more: int) -> None:
    start = "0" * zeros + str(first)
    names = expand_braces(f"x{{{start}..{first + more}}}y")
    assert names == [f"x{str(n).zfill(len(start))}y" for n in range(first, first + more + 1)]


@pytest.mark.parametrize("text", ["x", "{x}", "{}", "x{1.3}", "}{", "{a..b}"])
def test_other_braces_are_part_of_the_name(text: str) -> None:
    assert expand_braces(text) == [text]


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


def test_other_members_are_ignored_or_noted(photos: Path, tmp_path: Path) -> None:
    members = {f"p/{name}": content for name, content in folder_members(photos).items()}
    for extra in ("p/._day", "p/day/cat/._1.png", "p/.x/cat/1.png", "p/README.md", "p/o.png"):
        members[extra] = b"x"
    members["p/day/classes.json"] = b"{"
    assert not require_equal(write_tar(tmp_path / "p.tar", members), photos).check()
    (issue,) = list_tars(write_tar(tmp_path / "p.tar", members | {"p/day/x.png": b""}), None).issues
    assert (issue.kind, issue.message) == (
        "no class", "'day' has 1 image outside any class folder; ignored"
    )  # fmt: skip
    path = write_tar(tmp_path / "p.tar", folder_members(photos) | {"day/cat/1.PNG": b""})
    assert len(ImageDomains(path)) == 9
    path = write_tar(tmp_path / "p.tar", webdataset_members(photos) | {"README.md": b""})
    require_equal(path, photos)


# --- WebDataset -----------------------------------------------------------------------------------


def one_key(tmp_path: Path, **parts: Any) -> Path:
    members = {}
    for extension, value in parts.items():
        name = f"a/key.{extension.replace('_', '.')}"
        members[name] = value if isinstance(value, bytes) else json.dumps(value).encode()
    return write_tar(tmp_path / "one.tar", members)


@pytest.mark.parametrize(
    ("parts", "columns", "expected"),
    [
        ({"cls": b"3\n", "domain": b"x"}, None, ("x", "3", None)),
        ({"cls": b"3", "domain_txt": b" x "}, None, ("x", "3", None)),
        ({"label_txt": b"c", "domain_txt": b"x"}, None, ("x", "c", None)),
        ({"label": b"c", "domain": b"x", "group": b"g"}, None, ("x", "c", "g")),
        ({"json": {"label": 3, "domain": "x", "group": "g"}}, None, ("x", "3", "g")),
        ({"cls": b"3", "json": {"label": "no", "domain": 1}}, None, ("1", "3", None)),
        ({"json": {"y": True, "site": "x"}}, {"label": "json.y", "domain": "json.site"},
         ("x", "True", None)),
        ({"meta_json": {"a": {"b": "c"}}}, {"label": "meta.json.a.b", "domain": "meta.json.a.b"},
         ("c", "c", None)),
        ({"txt": "c".encode("utf-8-sig"), "site_TXT": b"x"}, {"label": "txt", "domain": "site.txt"},
         ("x", "c", None)),
        ({"json": {"label": "c", "domain": "x", "patient": 7}}, {"group": "json.patient"},
         ("x", "c", "7")),
    ],
)  # fmt: skip
def test_members_and_fields(
    tmp_path: Path, parts: dict[str, Any], columns: Any, expected: tuple[Any, ...]
) -> None:
    (sample,) = list_tars(one_key(tmp_path, png=b"image", **parts), columns).samples
    assert tuple(sample) == ("a/key.png", *expected)


def test_which_member_is_the_image(tmp_path: Path) -> None:
    for parts, columns, expected in (
        ({"seg_png": b"mask", "jpg": b"photo"}, None, b"photo"),
        ({"seg_png": b"mask", "jpg": b"photo"}, {"image": "seg.png"}, b"mask"),
        ({"input_jpg": b"photo"}, None, b"photo"),
    ):
        path = one_key(tmp_path, **parts, cls=b"c", domain=b"x")
        assert [file.read() for file in list_tars(path, columns).files] == [expected]


@pytest.mark.parametrize(
    ("value", "task", "text"),
    [
        (["c", "a"], Task("multilabel", ("a", "c")), '["a", "c"]'),
        (1.5, Task("regression", ("label",)), "1.5"),
        ([1.5, 2], Task("regression", ("label0", "label1")), "1.5 2.0"),
    ],
)
def test_numbers_and_lists_of_labels(tmp_path: Path, value: Any, task: Task, text: str) -> None:
    listing = list_tars(one_key(tmp_path, png=b"", json={"label": value, "domain": "x"}), None)
    assert listing.task == task
    assert [sample.label for sample in listing.samples] == [text]


def test_the_task_of_text_can_be_given(tmp_path: Path) -> None:
    path = one_key(tmp_path, png=b"", cls=b"7", json={"domain": "x"})
    assert list_tars(path, None).samples[0].label == "7"
    assert list_tars(path, None, "regression").samples[0].label == "7.0"


# --- remote archives ------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["/*.tar", "/p-{0..1}.tar", ""])
def test_remote_archives_are_fetched_once(
    photos: Path, tmp_path: Path, s3: Bucket, given: str
) -> None:
    members = webdataset_members(photos)
    for n, domain in enumerate(("day", "night")):
        part = {name: content for name, content in members.items() if name.startswith(domain)}
        s3.put(f"tars/p-{n}.tar", write_tar(tmp_path / "x.tar", part).read_bytes())
    s3.put("tars/README.md", b"")
    s3.put("tars/.hidden.png", b"")
    require_equal(f"{s3.url}/tars{given}", photos)
    gets = [r.line for r in s3.proxy.requests if "GET" in r.line and ".tar" in r.line]
    assert len(gets) == 2


def test_many_threads_fetch_an_archive_once(
    photos: Path, tmp_path: Path, s3: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.put("p.tar", write_tar(tmp_path / "p.tar", webdataset_members(photos)).read_bytes())
    listing = list_tars(Url(f"{s3.url}/p.tar"), None)
    monkeypatch.setenv("OODZOO_CACHE", str(tmp_path / "empty"))
    s3.proxy.forget()
    s3.proxy.slow(r"p\.tar", seconds=0.3)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(read_bytes, listing.files))
    assert found == [path.read_bytes() for path in images_of(photos)]
    assert len(s3.proxy.requests) == 1


def test_archives_larger_than_the_cache(
    photos: Path, tmp_path: Path, s3: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.put("p.tar", write_tar(tmp_path / "p.tar", webdataset_members(photos)).read_bytes())
    monkeypatch.setenv("OODZOO_CACHE_SIZE", "5K")
    with pytest.raises(InputError, match=r"in 1 file, and the cache holds .*OODZOO_CACHE_SIZE"):
        list_tars(Url(f"{s3.url}/p.tar"), None)
    assert not [
        r.line for r in s3.proxy.requests if r.line.startswith("GET /") and "p.tar" in r.line
    ]


# --- members --------------------------------------------------------------------------------------

TWO = {"a/1.png": b"x" * 700, "a/2.png": b"y" * 512}


@pytest.fixture
def two(tmp_path: Path) -> Path:
    return write_tar(tmp_path / "two.tar", TWO)


def test_offsets(two: Path) -> None:
    assert list_members(two, "") == [Member("a/1.png", 512, 700), Member("a/2.png", 2048, 512)]
    content = two.read_bytes()
    assert {m.name: content[m.offset : m.offset + m.size] for m in list_members(two, "")} == TWO


@pytest.mark.parametrize("size", [1, 511, 512, 900, 1536, 1800, 2048, 2300, 2560, 2900])
def test_truncated_archives(two: Path, size: int) -> None:
    two.write_bytes(two.read_bytes()[:size])
    message = refusal(lambda: list_members(two, "the tar"))
    assert "'the tar' is truncated" in message or (size < 512 and "not a tar file" in message)


def test_the_end_of_an_archive(two: Path) -> None:
    content = two.read_bytes()
    two.write_bytes(content[: 2560 + 512])  # without the padding
    assert len(list_members(two, "")) == 2
    damaged = bytearray(content)
    damaged[1536 + 10] ^= 1
    for changed, words in (
        (content * 2, "has data after its end mark, at byte 2,560"),
        (bytes(damaged), "is damaged: there is no header at byte 1,536"),
        (gzip.compress(content), "is compressed, and images are read from it in any order; decomp"),
        (b"\x89PNG" + bytes(2000), "is not a tar file"),
    ):
        two.write_bytes(changed)
        assert words in refusal(lambda: list_members(two, "the tar"))
    assert list_members(write_tar(two, {}), "") == []


def test_member_with_holes(tmp_path: Path) -> None:
    with (tmp_path / "1.png").open("wb") as file:
        file.seek(1 << 20)
        file.write(b"x")
    if Path(file.name).stat().st_blocks > 1000:
        pytest.skip("this file system writes holes")
    subprocess.run(["tar", "--sparse", "-cf", "x.tar", "1.png"], check=True, cwd=tmp_path)
    assert "'1.png' is stored with holes" in refusal(lambda: list_members(tmp_path / "x.tar", ""))


def test_folders_devices_and_hidden_members_are_left_out(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "x.tar", {".x/1.png": b"", "a/._1.png": b"", "a/1.png": b"1"})
    with tarfile.open(path, "a") as archive:
        for name, kind in (("b.png", tarfile.FIFOTYPE), ("c.png", tarfile.DIRTYPE)):
            info = tarfile.TarInfo(name)
            info.type = kind
            archive.addfile(info)
    assert [member.name for member in list_members(path, "")] == ["a/1.png"]


def test_size_that_leads_back(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        for name, headers in (("a.png", {}), ("b.png", {"size": "-1536"})):
            info = tarfile.TarInfo(name)
            info.pax_headers = headers
            archive.addfile(info)
    assert "is damaged: there is no header at byte 512" in refusal(lambda: list_members(path, ""))


@given(st.integers(0, 3071), st.binary(min_size=1, max_size=12))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_damaged_archives_are_read_or_refused(two: Path, at: int, content: bytes) -> None:
    write_tar(two, TWO)
    damaged = bytearray(two.read_bytes())
    damaged[at : at + len(content)] = content
    two.write_bytes(damaged)
    members: list[Member] = []
    with suppress(InputError):
        members = list_members(two, "the tar")
    assert len(members) <= 2
    assert all(0 < member.offset <= member.offset + member.size <= 2560 for member in members)


names = st.text("ab.é", min_size=1, max_size=5).filter(
    lambda name: not name.startswith(".") and not name.endswith(".")
)

trees = st.dictionaries(
    st.lists(names, min_size=3, max_size=5).map("/".join), st.binary(max_size=600), min_size=1
)


@given(trees, st.lists(names, max_size=2), st.sampled_from([0, 1, 2]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_every_byte_is_found(
    tmp_path: Path, tree: dict[str, bytes], above: list[str], kind: int
) -> None:
    tree = {"day/cat/1": b"1", "night/cat/1": b"2"} | tree
    members = {"/".join([*above, f"{path}.png"]): content for path, content in tree.items()}
    members = {name: c for name, c in members.items() if len(name.encode()) < 90}
    path = write_tar(tmp_path / "p.tar", members, kind)
    listing = list_tars(path, None)
    found = dict(
        zip((f.name for f in listing.files if isinstance(f, FilePart)), listing.files, strict=True)
    )
    assert {name: file.read() for name, file in found.items()} == members
    assert all(
        file == FilePart(LocalFile(str(path)), name, file.offset, len(members[name]))
        for name, file in found.items()
        if isinstance(file, FilePart)
    )
    assert all(
        name.endswith(sample.path) for name, sample in zip(found, listing.samples, strict=True)
    )


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
    "text", ["", "[", "null", "[1]", '{"info": {"features": {"label": {"names": 3}}}}', "[" * 99999]
)
def test_metadata_that_are_no_classes(photos: Path, columns: Columns, text: str) -> None:
    table = pytest.importorskip("pyarrow").table(columns)
    table = table.replace_schema_metadata({"huggingface": text})
    require_equal(write_parquet(photos / "x.parquet", table), photos)


@pytest.mark.parametrize("where", ["structs", "a column"])
@pytest.mark.parametrize("names", [["1.png"] * 8, [None, *"abcdefg"], [None] * 8])
def test_names_that_are_not_unique_are_rows(
    columns: Columns, tmp_path: Path, where: str, names: list[Any]
) -> None:
    if where == "structs":
        del columns["path"]
        pairs = zip(columns["image"], names, strict=True)
        columns["image"] = [{"bytes": content, "path": path} for content, path in pairs]
    elif any(names):
        columns["path"] = names
    else:
        del columns["path"]
    data = ImageDomains(write_parquet(tmp_path / "x.parquet", columns))
    assert sorted(s.path for s in data) == [f"x.parquet/{n:06d}" for n in range(8)]


def test_files_of_one_name_in_several_folders(columns: Columns, tmp_path: Path) -> None:
    del columns["path"]
    for at, name in enumerate(("day", "night")):
        (tmp_path / name).mkdir()
        part = {k: v[4 * at + 1 : 4 * at + 3] for k, v in columns.items()}
        write_parquet(tmp_path / name / "x.parquet", part)
    data = ImageDomains(tmp_path / "{day,night}" / "x.parquet")
    assert [s.path for s in data] == [
        f"{name}/x.parquet/{n:06d}" for name in ("day", "night") for n in range(2)
    ]


def test_cells_reach_other_processes(
    columns: Columns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, columns["image"][5] = columns["image"][3], None
    write_parquet(tmp_path / "x.parquet", columns)
    monkeypatch.chdir(tmp_path)
    data = ImageDomains("x.parquet")
    cells = [absolute(file) for file in data.files]
    monkeypatch.chdir("/")
    sent = msgspec.json.decode(msgspec.json.encode(cells), type=list[StoredFile])
    assert sent == cells
    assert sent[3].read() == expected
    with pytest.raises(UnreadableImageError, match="the cell is empty"):
        read_bytes(sent[5])


def test_row_groups_that_are_too_large(
    columns: Columns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_parquet(tmp_path / "x.parquet", columns, row_group_size=4)
    monkeypatch.setattr(parquet, "MAX_GROUP_BYTES", 100)
    message = refusal(lambda: ImageDomains(path))
    assert "row group 0 of " in message
    assert "row_group_size=100" in message


def test_remote_parquet_files(photos: Path, columns: Columns, tmp_path: Path, s3: Bucket) -> None:
    path = write_parquet(tmp_path / "x.parquet", columns, row_group_size=2)
    s3.put("x.parquet", path.read_bytes())
    require_equal(f"{s3.url}/x.parquet", photos)
    assert len([r for r in s3.proxy.requests if r.line.startswith("GET")]) == 1  # fetched once
    del columns["image"]
    write_parquet(photos / "table.parquet", columns)
    require_equal(f"{s3.upload(photos, 'photos')}/table.parquet", photos)


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
    write_parquet(path, columns, row_group_size=rows, compression=kind)
    files = list_parquet(path, None).files
    order = random.sample(range(len(cells)), len(cells))
    assert [files[n].read() for n in order] == [cells[n] for n in order]


# --- row groups -----------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "x.parquet"
    cells = [bytes([n]) * 1000 for n in range(100)]
    write_parquet(path, {"image": cells, "x": range(100)}, row_group_size=10)
    return path


@pytest.mark.parametrize(("kept", "decoded"), [(100_000, 10), (30_000, None)])
def test_shuffled_rows(
    file: Path, monkeypatch: pytest.MonkeyPatch, kept: int, decoded: int | None
) -> None:
    cache = GroupCache(kept + 10_000)
    monkeypatch.setattr(row_groups, "_KEPT", cache)
    calls: list[int] = []
    decode = row_groups._decode

    def counted(group: _Group) -> Any:
        calls.append(group.number)
        return decode(group)

    monkeypatch.setattr(row_groups, "_decode", counted)
    order = random.Random(0).sample(range(100), 100)
    with ThreadPoolExecutor(4) as pool:
        cells = list(pool.map(lambda n: read_cell(file, n // 10, n % 10, "image"), order))
    assert cells == [bytes([n]) * 1000 for n in order]
    assert sum(cache._sizes.values()) <= kept + 10_000
    assert decoded is None or len(calls) == decoded


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


def test_names_with_dots(tmp_path: Path) -> None:
    """A name of a column may look like the field of another one."""
    structs = [{"bytes": b"struct", "path": "1.png"}]
    columns = {"a.b.size": [1], "a.b": [b"flat"], "c.d": structs}
    path = write_parquet(tmp_path / "x.parquet", columns)
    assert read_cell(path, 0, 0, "a.b") == b"flat"
    assert read_cell(path, 0, 0, "c.d.bytes") == b"struct"
