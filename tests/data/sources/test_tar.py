"""Tar archives: those of WebDataset, and those of a folder."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.data.sources.archives import images_of, webdataset_members, write_tar
from tests.s3 import Bucket

import oodzoo
from oodzoo.data.files import FilePart, LocalFile, read_bytes
from oodzoo.data.listing import Listing
from oodzoo.data.sources.folder import list_folder
from oodzoo.data.sources.tar import list_tars
from oodzoo.errors import InputError
from oodzoo.remote.location import Url
from oodzoo.task import Task

WriteImage = Callable[[Path], Path]


def contents(listing: Listing) -> dict[tuple[Any, ...], bytes]:
    return {tuple(s): file.read() for s, file in zip(listing.samples, listing.files, strict=True)}


def refusal(path: Path, columns: dict[str, str] | None = None) -> str:
    with pytest.raises(InputError) as caught:
        list_tars(path, columns)
    message = str(caught.value)
    assert "\n" not in message
    return message


# --- archives of a folder ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["gnu", "pax", "ustar", "v7"])
@pytest.mark.parametrize("root", [".", "photos", "day night", "/"])
def test_archive_that_tar_writes(photos: Path, tmp_path: Path, kind: str, root: str) -> None:
    where, what = {
        ".": (photos, ["."]),
        "photos": (tmp_path, ["photos"]),
        "day night": (photos, ["day", "night"]),
        "/": (tmp_path, ["-P", str(photos)]),
    }[root]
    path = tmp_path / "photos.tar"
    if root == "/" and len(str(photos)) > 80 and kind in ("ustar", "v7"):
        pytest.skip("the names are too long for this format")
    subprocess.run(["tar", f"--format={kind}", "-cf", path, *what], check=True, cwd=where)
    listing = list_tars(path, None)
    assert contents(listing) == contents(list_folder(photos))
    assert not listing.issues


def test_the_data_set_is_the_same(photos: Path, tmp_path: Path) -> None:
    path = tmp_path / "photos.tar"
    subprocess.run(["tar", "-cf", path, "photos"], check=True, cwd=tmp_path)
    assert oodzoo.ImageDomains(path).fingerprint == oodzoo.ImageDomains(photos).fingerprint


def test_long_names_of_letters_of_all_kinds(photos: Path, write_image: WriteImage) -> None:
    write_image(photos / ("day/" + "ein langes Wort/" * 12 + "猫.7.jpeg"))
    write_image(photos / "day/cat/3.part.two.PNG")
    for kind in ("gnu", "pax"):
        path = photos.parent / f"{kind}.tar"
        subprocess.run(["tar", f"--format={kind}", "-cf", path, "photos"], cwd=path.parent)
        assert contents(list_tars(path, None)) == contents(list_folder(photos))


def test_links_are_followed(photos: Path, tmp_path: Path) -> None:
    (photos / "day/cat/hard.png").hardlink_to(photos / "day/cat/1.png")
    (photos / "day/dog/soft.png").symlink_to("../cat/1.png")
    (photos / "night/cat/chain.png").symlink_to("../../day/dog/soft.png")
    (photos / "night/notes").symlink_to("/nowhere")
    path = tmp_path / "photos.tar"
    subprocess.run(["tar", "-cf", path, "photos"], check=True, cwd=tmp_path)
    assert contents(list_tars(path, None)) == contents(list_folder(photos))


@pytest.mark.parametrize("target", ["/nowhere/1.png", "soft.png"])
def test_link_to_no_member(photos: Path, tmp_path: Path, target: str) -> None:
    (photos / "day/dog/soft.png").symlink_to(target)
    path = tmp_path / "photos.tar"
    subprocess.run(["tar", "-cf", path, "photos"], check=True, cwd=tmp_path)
    assert "the member 'photos/day/dog/soft.png' is a link" in refusal(path)


def test_hidden_and_other_files_are_ignored(photos: Path, tmp_path: Path) -> None:
    members = {f"p/{p.relative_to(photos)}": p.read_bytes() for p in images_of(photos)}
    for extra in ("p/._day", "p/day/cat/._1.png", "p/.x/cat/1.png", "p/README.md", "p/o.png"):
        members[extra] = b"x"
    members["p/day/classes.json"] = b"{"
    listing = list_tars(write_tar(tmp_path / "p.tar", members), None)
    assert contents(listing) == contents(list_folder(photos))
    assert not listing.issues


def test_images_outside_a_class(photos: Path, tmp_path: Path) -> None:
    members = {str(p.relative_to(photos)): p.read_bytes() for p in images_of(photos)}
    path = write_tar(tmp_path / "p.tar", members | {"day/stray.png": b""})
    (issue,) = list_tars(path, None).issues
    assert (issue.kind, issue.message) == (
        "no class", "'day' has 1 image outside any class folder; ignored"
    )  # fmt: skip


def test_archive_of_classes(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "p.tar", {"cat/1.png": b"", "dog/1.png": b""})
    assert "found 2 one level too high, as in root/class/image" in refusal(path)


# --- several archives -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given", [".", "*.tar", "photos-{000000..000003}.tar", "photos-00000[0-3].tar"]
)
def test_several_archives(photos: Path, tmp_path: Path, given: str) -> None:
    webdataset = pytest.importorskip("webdataset")
    folder = tmp_path / "tars"
    folder.mkdir()
    pattern = str(folder / "photos-%06d.tar")
    with webdataset.ShardWriter(pattern, maxcount=2, verbose=0) as writer:
        for path in images_of(photos):
            key = path.relative_to(photos).with_suffix("").as_posix()
            extra = {"json": {"domain": path.parts[-3]}, "cls": path.parts[-2].encode()}
            writer.write({"__key__": key, "png": path.read_bytes(), **extra})
    assert len(list(folder.iterdir())) == 4
    listing = list_tars(folder / given if given != "." else folder, None)
    assert contents(listing) == contents(list_folder(photos))


def test_key_in_two_archives(photos: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_tar(tmp_path / f"{name}.tar", webdataset_members(photos))
    message = refusal(tmp_path / "{a,b}.tar")
    assert "a.tar' and " in message
    assert "b.tar' both have 'day/cat/1'" in message


def test_image_in_two_archives(photos: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        members = {str(p.relative_to(photos)): p.read_bytes() for p in images_of(photos)}
        write_tar(tmp_path / f"{name}.tar", members)
    assert "b.tar' both have 'day/cat/1.png'" in refusal(tmp_path / "{a,b}.tar")


# --- WebDataset: members and fields -----------------------------------------------------------


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
    labels = {"cls": b"c", "domain": b"x"}
    path = one_key(tmp_path, seg_png=b"mask", jpg=b"photo", **labels)
    assert [file.read() for file in list_tars(path, None).files] == [b"photo"]
    assert [file.read() for file in list_tars(path, {"image": "seg.png"}).files] == [b"mask"]
    path = one_key(tmp_path, png=b"mask", jpg=b"photo", **labels)
    assert "which one is the image, 'png' or 'jpg'?" in refusal(path)
    assert "--columns image=NAME" in refusal(path)
    path = one_key(tmp_path, input_jpg=b"photo", **labels)
    assert [file.read() for file in list_tars(path, None).files] == [b"photo"]


@pytest.mark.parametrize(
    ("parts", "columns", "expected"),
    [
        ({"png": b"", "domain": b"x", "json": {}}, None,
         "has no label: expected cls or label or label.txt or json.label, and there are 'png',"),
        ({"png": b"", "cls": b"x"}, None, "has no domain: expected domain or domain.txt or"),
        ({"png": b"", "cls": b"", "domain": b"x"}, None, "has no label"),
        ({"png": b"", "json": {"label": None, "domain": "x"}}, None, "has no label"),
        ({"png": b"", "json": ["label"]}, None, "has no label"),
        ({"png": b"", "cls": b"c"}, {"domain": "site.txt"}, "has no domain: expected site.txt"),
        ({"png": b"", "json": {"species": "x", "site": "y"}}, {"label": "json.specie"},
         "expected json.specie, and there are 'png', 'json.species', 'json.site'; name the member"),
        ({"png": b"", "cls": b"c", "json": b"{'domain': 1}"}, None, "a/key.json' is not JSON: "),
        ({"png": b"", "cls": b"c", "json": b"[" * 100_000}, None, "a/key.json' is not JSON: "),
        ({"png": b"", "cls": b"\xff", "domain": b"x"}, None, "a/key.cls' is not UTF-8 text: "),
        ({"jpg": b"", "cls": b"c", "domain": b"x"}, {"image": "png"}, "has no png beside"),
    ],
)  # fmt: skip
def test_missing_members(
    tmp_path: Path, parts: dict[str, Any], columns: Any, expected: str
) -> None:
    message = refusal(one_key(tmp_path, **parts), columns)
    assert "one.tar', key 'a/key'" in message
    assert expected in message


def test_key_without_image(photos: Path, tmp_path: Path) -> None:
    members = webdataset_members(photos)
    del members["night/dog/2.png"]
    message = refusal(write_tar(tmp_path / "p.tar", members))
    assert "p.tar', key 'night/dog/2' has no image, such as .jpg, beside" in message
    assert message.endswith("'night/dog/2.cls'")


def test_names_that_differ_in_upper_case(photos: Path, tmp_path: Path) -> None:
    members = webdataset_members(photos) | {"day/cat/1.PNG": b"another image"}
    message = refusal(write_tar(tmp_path / "p.tar", members))
    assert "p.tar' has 'day/cat/1.png' and 'day/cat/1.PNG', which differ in upper" in message
    folder = dict.fromkeys(("day/cat/1.png", "day/cat/1.PNG"), b"")
    assert len(list_tars(write_tar(tmp_path / "p.tar", folder), None).samples) == 2


def test_notes_beside_keys_are_ignored(photos: Path, tmp_path: Path) -> None:
    path = write_tar(tmp_path / "p.tar", webdataset_members(photos) | {"README.md": b""})
    assert contents(list_tars(path, None)) == contents(list_folder(photos))


def test_value_of_another_kind(tmp_path: Path) -> None:
    path = one_key(tmp_path, png=b"", json={"label": {"c": 1}, "domain": "x"})
    assert "the label is {'c': 1}" in refusal(path)


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


def test_labels_of_mixed_kinds(tmp_path: Path) -> None:
    members = {"1.png": b"", "1.json": b'{"label": 1, "domain": 1}', "2.png": b""}
    members["2.json"] = b'{"label": "1", "domain": 1}'
    assert "labels of mixed kinds" in refusal(write_tar(tmp_path / "p.tar", members))


def test_role_without_use(photos: Path, tmp_path: Path) -> None:
    path = write_tar(tmp_path / "p.tar", webdataset_members(photos))
    assert "no use for a column 'path'; it uses image" in refusal(path, {"path": "png"})


def test_huge_label(tmp_path: Path) -> None:
    path = one_key(tmp_path, png=b"", cls=bytes((16 << 20) + 1), domain=b"x")
    assert "a/key.cls' has 16,777,217 bytes" in refusal(path)


# --- remote archives --------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["/*.tar", "/p-{0..1}.tar", ""])
def test_remote_archives_are_fetched_once(
    photos: Path, tmp_path: Path, s3: Bucket, given: str
) -> None:
    members = webdataset_members(photos)
    for n, domain in enumerate(("day", "night")):
        part = {name: content for name, content in members.items() if name.startswith(domain)}
        s3.put(f"tars/p-{n}.tar", write_tar(tmp_path / "x.tar", part).read_bytes())
    s3.put("tars/README.md", b"")
    listing = list_tars(Url(f"{s3.url}/tars{given}"), None)
    assert contents(listing) == contents(list_folder(photos))
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


# --- properties -------------------------------------------------------------------------------

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
