"""Folders of images, local and remote: what is taken, what is ignored, what is noted."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.s3 import Bucket

from oodzoo import ImageDomains, InputError
from oodzoo.core.remote.location import Url
from oodzoo.data.listing import Issue
from oodzoo.data.sources.base import Options
from oodzoo.data.sources.choice import open_source
from oodzoo.data.sources.folder import images_below, is_by_class, list_images

WriteImage = Callable[[Path], Path]
CLASSES = ("cat", "dog")

linux_names = pytest.mark.skipif(
    os.name == "nt" or os.uname().sysname != "Linux", reason="names are bytes only on Linux"
)


def paths(data: ImageDomains) -> list[str]:
    return sorted(sample.path for sample in data)


def issues(folder: Path) -> list[Issue]:
    """What the source has found, and the classes that a domain lacks."""
    return [issue for issue in ImageDomains(folder).quick_check() if issue.kind != "missing class"]


# --- what is taken --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "day/cat/3.JPG", "day/cat/3.Jpeg", "day/cat/3.TIF", "day/cat/3.tiff", "day/cat/3.webp",
        "day/cat/3.BMP", "day/cat/3.gif", "day/cat/3.avif", "day/cat/3.pgm",
        "day/cat/roll 1/left/3.png",
        "day/cat/x.jpg/3.png",
        "nächtliche Straße/猫 und Hund/smile :dog: [red] 100%.png",
    ],
)  # fmt: skip
def test_images_at_any_depth_with_any_name(
    photos: Path, write_image: WriteImage, name: str
) -> None:
    write_image(photos / name)
    (found,) = [s for s in ImageDomains(photos) if s.path == name]
    domain, label, *_ = name.split("/")
    assert found == (name, domain, label, None)
    assert len(ImageDomains(photos)) == 9


def test_folders_deeper_than_pythons_stack(photos: Path, write_image: WriteImage) -> None:
    folders = [photos / "day/cat"]
    for _ in range(1100):
        folders.append(folders[-1] / "d")
        folders[-1].mkdir()
    image = write_image(folders[-1] / "3.png")
    assert len(ImageDomains(photos)) == 9
    # pytest removes its folders by recursion, and would not get these away
    image.unlink()
    for folder in reversed(folders[1:]):
        folder.rmdir()


def test_hidden_plain_and_foreign_files_are_ignored(photos: Path, write_image: WriteImage) -> None:
    for name in (
        ".cache/cat/1.png", "day/.trash/1.png", "day/cat/.thumbnails/1.png", "day/cat/._1.png",
        "overview.png",
    ):  # fmt: skip
        write_image(photos / name)
    for name in ("README.txt", "day/notes.txt", "day/cat/labels.json", "day/cat/png"):
        (photos / name).write_text("not an image")
    assert len(ImageDomains(photos)) == 8
    assert not ImageDomains(photos).check()


def test_names_of_folders_do_not_say_what_they_are(photos: Path, tmp_path: Path) -> None:
    renamed = photos.rename(photos.with_name("photos.csv"))
    assert len(ImageDomains(renamed)) == 8
    (tmp_path / "link").symlink_to(renamed)
    assert ImageDomains(tmp_path / "link").samples == ImageDomains(renamed).samples
    assert ImageDomains(f"file://{renamed}").samples == ImageDomains(str(renamed)).samples


@linux_names
def test_ignored_file_may_have_any_name(photos: Path) -> None:
    for folder in ("", "day", "day/cat"):
        (photos / folder / os.fsdecode(b"caf\xe9.txt")).write_text("notes")
    assert len(ImageDomains(photos)) == 8


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("day/bird/", "empty class", "'day/bird' has no images"),
        ("day/y.jpg/", "empty class", "'day/y.jpg' has no images"),
        ("dawn/", "empty domain", "'dawn' has no class with images; ignored"),
        ("day/stray.png", "no class", "'day' has 1 image outside any class folder; ignored"),
    ],
)
def test_what_is_ignored_is_noted(
    photos: Path, write_image: WriteImage, name: str, kind: str, message: str
) -> None:
    if name.endswith("/"):
        (photos / name).mkdir()
    else:
        write_image(photos / name)
    (issue,) = issues(photos)
    assert (issue.kind, issue.message) == (kind, message)
    assert len(ImageDomains(photos)) == 8


def test_images_of_a_folder_are_those_of_its_domains(photos: Path, tmp_path: Path) -> None:
    (photos / "day/cat/deep").mkdir()
    (photos / "day/cat/1.png").rename(photos / "day/cat/deep/1.png")
    (photos / "day/cat/up").symlink_to("..")
    found, noted = list_images(photos)
    assert found == paths(ImageDomains(photos))
    assert [issue.kind for issue in noted] == ["link loop"]
    (tmp_path / "empty").mkdir()
    assert list_images(tmp_path / "empty") == ([], [])


# --- links ----------------------------------------------------------------------------------------


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
        data = ImageDomains(photos)
    assert data.domains == ("day", "night")
    assert {"day/cat/3.png", "night/copy/1.png"} <= set(paths(data))
    with pytest.warns(UserWarning, match="has 3 links"):
        assert list_images(photos)[0] == paths(data)
    (photos / "again").unlink()
    monkeypatch.setenv("OODZOO_FOLLOW_LINKS", "1")
    data = ImageDomains(photos)
    assert {"dusk/cat/1.png", "day/kitten/1.png", "day/cat/3.png"} <= set(paths(data))


@pytest.mark.parametrize("place", ["up", "day/up", "day/cat/up", "day/cat/deep/up"])
def test_link_to_an_ancestor_ends(photos: Path, place: str) -> None:
    link = photos / place
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(photos)
    (issue,) = issues(photos)
    assert (issue.kind, issue.paths) == ("link loop", (place,))
    assert len(ImageDomains(photos)) == 8


def test_two_links_at_each_other_end(photos: Path, write_image: WriteImage) -> None:
    for one, other in (("a", "b"), ("b", "a")):
        write_image(photos / f"day/cat/{one}/1.png")
        (photos / f"day/cat/{one}/other").symlink_to(photos / f"day/cat/{other}")
    assert {issue.kind for issue in issues(photos)} == {"link loop"}


@pytest.mark.parametrize("place", ["self", "day/self", "day/cat/self"])
@pytest.mark.parametrize("target", ["self", "nowhere"])
def test_link_to_itself_or_to_nothing_is_noted(photos: Path, place: str, target: str) -> None:
    (photos / place).symlink_to(target)
    (issue,) = issues(photos)
    assert (issue.kind, issue.paths) == ("broken link", (place,))
    assert len(ImageDomains(photos)) == 8


@pytest.mark.parametrize("target", ["3.png", "nowhere.png"])
def test_broken_link_to_an_image_stays_listed(photos: Path, target: str) -> None:
    # so that it is named when the images are read, and no image is lost in silence
    (photos / "day/cat/3.png").symlink_to(target)
    assert list(ImageDomains(photos).unreadable) == ["day/cat/3.png"]


# --- folders of classes ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (["cat/1.png", "dog/2.png"], True),
        (["cat/roll/1.png", "dog/roll/2.png"], True),
        (["day/cat/1.png", "day/dog/2.png"], False),
        (["cat/dog/1.png"], False),  # a domain may have the name of a class
        (["Cat/1.png", "Dog/2.png"], True),  # other names, but there are no domains
        (["x/y/1.png"], False),
        (["1.png"], False),
        ([], False),
    ],
)
def test_the_names_of_the_classes_tell(paths: list[str], expected: bool) -> None:
    assert is_by_class(paths, CLASSES) is expected


def test_a_folder_of_classes_is_one_domain_with_its_name(
    photos: Path, write_image: WriteImage
) -> None:
    write_image(photos / "day/loose.png")
    listing = open_source(str(photos / "day"), Options(classes=CLASSES))
    assert {(s.domain, s.label, s.path) for s in listing.samples} == {
        ("day", label, f"{label}/{name}.png") for label in CLASSES for name in "12"
    }
    assert listing.files[0].read() == (photos / "day" / listing.samples[0].path).read_bytes()
    assert "1 image outside any class folder" in str(listing.issues[0])
    domains = open_source(str(photos), Options(classes=CLASSES))
    assert {s.domain for s in domains.samples} == {"day", "night"}
    memory = pytest.importorskip("fsspec").filesystem("memory")
    memory.put(str(photos / "night"), "/by-class/night", recursive=True)
    remote = open_source("memory://by-class/night", Options(classes=CLASSES))
    assert sorted((s.domain, s.label) for s in remote.samples) == sorted(
        [("night", label) for label in CLASSES] * 2
    )


def test_folders_by_domain(photos: Path) -> None:
    shutil.copy(photos / "day/cat/1.png", photos / "day/0.png")
    memory = pytest.importorskip("fsspec").filesystem("memory")
    memory.put(str(photos / "night"), "/by_domain/night", recursive=True)
    data = ImageDomains({"day": photos / "day", "night": "memory://by_domain/night"})
    assert data.samples == ImageDomains(photos).samples
    assert data.digests == ImageDomains(photos).digests
    messages = [issue.message for issue in data.quick_check()]
    assert messages == ["'day' has 1 image outside any class folder; ignored"]


# --- buckets --------------------------------------------------------------------------------------

KEYS = [
    "photos/day/cat/1.png",
    "photos/day/cat/nested/deep/2.JPG",
    "photos/day/dog/a b ü%20#?.png",
    "photos/night/cat/1.png",
    "photos/night/dog/1.webp",
    "photos/night/dog/notes.txt",
    "photos/night/dog/.hidden.png",
    "photos/.hidden/dog/1.png",
    "photos/readme.png",
    "photos/night/loose.png",
]


@pytest.fixture
def bucket(s3: Bucket) -> str:
    for key in KEYS:
        s3.put(key, key.encode())
    return f"{s3.url}/photos"


def test_a_bucket_is_as_a_local_folder(s3: Bucket, bucket: str, tmp_path: Path) -> None:
    for key in KEYS:
        path = tmp_path / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(key.encode())
    s3.proxy.forget()
    remote, local = ImageDomains(f"{bucket}/"), ImageDomains(tmp_path / "photos")
    assert 1 <= len(s3.proxy.asked("list-type")) <= 2  # whatever the number of images
    assert not s3.proxy.asked("^GET .*png")
    assert remote.samples == local.samples
    assert remote.digests == local.digests
    assert remote.root is None
    assert (remote.name, remote.short_name) == (bucket, "photos")
    for data in (remote, local):
        kinds = [issue.kind for issue in data.quick_check()]
        assert kinds.count("no class") == 1
    assert list(images_below(Url(bucket))[0]) == sorted(
        key.removeprefix("photos/") for key in KEYS if "/." not in key and not key.endswith("txt")
    )


def test_empty_parts_of_a_key_are_no_names() -> None:
    memory = pytest.importorskip("fsspec").filesystem("memory")
    for key in ("day//cat/1.png", "v1.0/dog/deep/er/2.png"):
        memory.pipe_file(f"memory://odd/x/{key}", b"1")
    found = {tuple(sample) for sample in ImageDomains("memory://odd/x")}
    assert found == {
        ("day//cat/1.png", "day", "cat", None),
        ("v1.0/dog/deep/er/2.png", "v1.0", "dog", None),
    }


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (["x/cat/1.png", "x/dog/2.png"], "expected url/domain/class/image; found 2 one level too"),
        (["x/day/cat/1.txt"], "no image found in 's3://"),
        ([], "no files found below"),
    ],
)
def test_buckets_that_are_refused(s3: Bucket, keys: list[str], words: str) -> None:
    for key in keys:
        s3.put(key, b"1")
    with pytest.raises(InputError, match=words):
        ImageDomains(f"{s3.url}/x")


def test_buckets_that_cannot_be_listed(s3: Bucket, bucket: str) -> None:
    def refusal(source: Any) -> str:
        with pytest.raises(InputError) as caught:
            ImageDomains(source)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    assert "no-such-bucket-anywhere" in refusal("s3://no-such-bucket-anywhere/photos")
    s3.proxy.refuse("list-type")
    assert bucket in refusal(bucket)
