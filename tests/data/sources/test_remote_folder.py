"""A folder of images at a URL: listed as a local one is, by one request."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.s3 import Bucket

from oodzoo.data.dataset import ImageDomains
from oodzoo.data.sources.folder import images_below
from oodzoo.errors import InputError
from oodzoo.remote.location import Url

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
def photos(s3: Bucket) -> str:
    for key in KEYS:
        s3.put(key, key.encode())
    return f"{s3.url}/photos"


def test_as_a_local_folder(photos: str, tmp_path: Path) -> None:
    for key in KEYS:
        path = tmp_path / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(key.encode())
    remote, local = ImageDomains(photos), ImageDomains(tmp_path / "photos")
    assert remote.samples == local.samples
    assert remote.digests == local.digests
    assert remote.root is None
    assert (remote.name, remote.short_name) == (photos, "photos")
    assert [issue.kind for issue in remote.quick_check() if issue.kind == "no class"] == [
        "no class"
    ]


def test_one_listing_whatever_the_number_of_images(s3: Bucket, photos: str) -> None:
    s3.proxy.forget()
    ImageDomains(f"{photos}/")
    assert 1 <= len(s3.proxy.asked("list-type")) <= 2
    assert not s3.proxy.asked("^GET .*png")


def test_all_images_below(photos: str) -> None:
    found = images_below(Url(photos))[0]
    assert list(found) == sorted(
        key.removeprefix("photos/") for key in KEYS if "/." not in key and not key.endswith("txt")
    )


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (["x/cat/1.png", "x/dog/2.png"], "expected url/domain/class/image; found 2 one level too"),
        (["x/day/cat/1.txt"], "no image found in 's3://"),
    ],
)
def test_no_domains(s3: Bucket, keys: list[str], words: str) -> None:
    for key in keys:
        s3.put(key, b"1")
    with pytest.raises(InputError) as caught:
        ImageDomains(f"{s3.url}/x")
    assert words in str(caught.value)


def test_a_url_that_does_not_exist(s3: Bucket) -> None:
    with pytest.raises(InputError) as caught:
        ImageDomains(f"{s3.url}/nothing")
    assert str(caught.value) == f"no files found below '{s3.url}/nothing'; check the URL"
    with pytest.raises(InputError) as caught:
        ImageDomains("s3://no-such-bucket-anywhere/photos")
    assert "no-such-bucket-anywhere" in str(caught.value)


def test_a_bucket_that_refuses(s3: Bucket, photos: str) -> None:
    s3.proxy.refuse("list-type")
    with pytest.raises(InputError) as caught:
        ImageDomains(photos)
    assert photos in str(caught.value)
    assert "\n" not in str(caught.value)
