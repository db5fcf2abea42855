"""Folders of images, local and remote: what is taken, what is ignored, what is noted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.s3 import Bucket

from oodzoo import ImageDomains
from oodzoo.core.remote.location import Url
from oodzoo.data.listing import Issue, Sample
from oodzoo.data.sources.folder import images_below, list_images

WriteImage = Callable[[Path], Path]


def paths(data: ImageDomains) -> list[str]:
    return sorted(sample.path for sample in data)


def issues(folder: Path) -> list[Issue]:
    """What the source has found, and the classes that a domain lacks."""
    found = ImageDomains(folder).summary(quick=True).issues
    return [issue for issue in found if issue.kind != "missing class"]


def test_images_at_any_depth_with_any_name(photos: Path, write_image: WriteImage) -> None:
    suffixes = ("JPG", "Jpeg", "TIF", "tiff", "webp", "BMP", "gif", "avif", "pgm")
    names = [f"day/cat/3.{suffix}" for suffix in suffixes]
    names += ["day/cat/roll 1/left/3.png", "day/cat/x.jpg/3.png"]
    names += ["nächtliche Straße/猫 und Hund/smile :dog: [red] 100%.png"]
    for name in names:
        write_image(photos / name)
    found = [s for s in ImageDomains(photos) if s.path in names]
    assert found == [Sample(name, *name.split("/")[:2]) for name in sorted(names)]
    assert len(ImageDomains(photos)) == 8 + len(names)


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


@pytest.mark.parametrize(
    ("name", "link", "kind", "message"),
    [
        ("day/bird/", None, "empty class", "'day/bird' has no images"),
        ("dawn/", None, "empty domain", "'dawn' has no class with images; ignored"),
        ("day/stray.png", None, "no class", "'day' has 1 image outside any class folder; ignored"),
        *((name, "{}", "link loop", None) for name in ("up", "day/up", "day/cat/deep/up")),
        *((name, "self", "broken link", None) for name in ("self", "day/self", "day/cat/self")),
        ("day/cat/self", "nowhere", "broken link", None),
    ],
)
def test_what_is_ignored_is_noted(
    photos: Path,
    write_image: WriteImage,
    name: str,
    link: str | None,
    kind: str,
    message: str | None,
) -> None:
    (photos / name).parent.mkdir(exist_ok=True)
    if link:
        (photos / name).symlink_to(link.format(photos))
    elif name.endswith("/"):
        (photos / name).mkdir()
    else:
        write_image(photos / name)
    (issue,) = issues(photos)
    assert (issue.kind, issue.message) == (kind, message or issue.message)
    assert not link or issue.paths == (name,)
    assert len(ImageDomains(photos)) == 8


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
        kinds = [issue.kind for issue in data.summary(quick=True).issues]
        assert kinds.count("no class") == 1
    assert list(images_below(Url(bucket))[0]) == sorted(
        key.removeprefix("photos/") for key in KEYS if "/." not in key and not key.endswith("txt")
    )
