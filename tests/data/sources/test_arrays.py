"""Sequences of images."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from oodzoo import ImageDomains, InputError
from oodzoo.data.images import decode

ROLES: dict[str, Any] = {"labels": [0, 1, 0, 1], "domains": ["day", "day", "night", "night"]}
PIXELS = np.random.default_rng(0).integers(0, 256, (4, 6, 7, 3), np.uint8)


def pixels_of(data: ImageDomains) -> list[Any]:
    return [np.asarray(decode(data.open(i))).tolist() for i in range(len(data))]


@pytest.mark.parametrize(
    "images",
    [
        PIXELS,
        list(PIXELS),
        PIXELS / 255,
        (PIXELS / 255).astype(np.float32).transpose(0, 3, 1, 2),
        PIXELS.astype(np.int64),
        [Image.fromarray(pixels) for pixels in PIXELS],
    ],
    ids=["array", "list", "floats", "channels first", "wide", "Pillow"],
)
def test_pixels(images: Any) -> None:
    data = ImageDomains(images, **ROLES)
    assert pixels_of(data) == PIXELS.tolist()
    assert [sample.path for sample in data] == ["000000", "000001", "000002", "000003"]
    assert [sample.label for sample in data] == ["0", "1", "0", "1"]
    assert data.digests == ImageDomains(PIXELS, **ROLES).digests
    assert repr(data).endswith("4 images, 2 domains, 2 classes)")


def test_grey_images_and_images_of_several_sizes() -> None:
    grey = ImageDomains(PIXELS[..., 0], **ROLES)
    assert pixels_of(grey) == [np.stack([p[..., 0]] * 3, -1).tolist() for p in PIXELS]
    sizes = ImageDomains([np.full((5 + n, 9 - n), n, np.uint8) for n in range(4)], **ROLES)
    assert [decode(sizes.open(i)).size for i in range(4)] == [(9, 5), (8, 6), (7, 7), (6, 8)]


def test_tensors() -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.from_numpy(PIXELS).permute(0, 3, 1, 2)
    roles = {"labels": torch.tensor([0, 1, 0, 1]), "domains": ROLES["domains"]}
    for images in (tensor, tensor / 255, list(tensor)):
        assert ImageDomains(images, **roles).digests == ImageDomains(PIXELS, **ROLES).digests


def test_an_array_on_disk_is_read_when_needed(tmp_path: Path) -> None:
    np.save(tmp_path / "pixels.npy", PIXELS)
    mapped = np.load(tmp_path / "pixels.npy", mmap_mode="r")
    assert pixels_of(ImageDomains(mapped, **ROLES)) == PIXELS.tolist()


def test_bytes_and_paths_have_the_digests_of_the_folder(
    photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = ImageDomains(photos)
    roles: dict[str, Any] = {
        "labels": [s.label for s in folder],
        "domains": [s.domain for s in folder],
    }
    contents = [folder.open(i) for i in range(len(folder))]
    assert ImageDomains(contents, **roles).digests == folder.digests
    paths = [photos / sample.path for sample in folder]
    assert ImageDomains(paths, **roles).samples == folder.samples
    assert ImageDomains(np.array([str(p) for p in paths]), **roles).samples == folder.samples
    inside = [sample.path for sample in folder]
    assert ImageDomains(inside, root=photos, **roles).samples == folder.samples
    monkeypatch.chdir(photos)
    assert ImageDomains(inside, **roles).digests == folder.digests


def test_urls() -> None:
    memory = pytest.importorskip("fsspec").filesystem("memory")
    urls = [f"memory://arrays/{n}.png" for n in range(4)]
    for n, url in enumerate(urls):
        memory.pipe(url, bytes([n]))
    data = ImageDomains(urls, **ROLES)
    assert [data.open(i) for i in range(4)] == [b"\0", b"\1", b"\2", b"\3"]


def test_tuples_of_image_label_and_domain(photos: Path) -> None:
    folder = ImageDomains(photos)
    rows = [(photos / s.path, s.label, s.domain, f"g{s.domain}") for s in folder]
    data = ImageDomains(rows)
    assert data.digests == folder.digests
    assert {(s.domain, s.group) for s in data} == {("day", "gday"), ("night", "gnight")}
    pairs = [(pixels, label) for pixels, label in zip(PIXELS, ROLES["labels"], strict=True)]
    assert pixels_of(ImageDomains(pairs, domains=ROLES["domains"])) == PIXELS.tolist()
    dicts = [{"img": row[0], "label": row[1], "domain": row[2]} for row in rows]
    assert ImageDomains(dicts, columns={"image": "img"}).digests == folder.digests


def test_a_pillow_image_may_occur_twice_and_be_unread(photos: Path) -> None:
    image = Image.open(photos / "day/cat/1.png")
    data = ImageDomains([image] * 4, **ROLES)
    assert len(set(data.digests)) == 1
    assert data.unreadable == {}


def test_a_damaged_image_is_unreadable(photos: Path) -> None:
    half = io.BytesIO((photos / "day/cat/1.png").read_bytes()[:50])
    data = ImageDomains([Image.open(half), *map(Image.fromarray, PIXELS[1:])], **ROLES)
    assert list(data.unreadable) == ["000000"]


@pytest.mark.parametrize(
    ("images", "words"),
    [
        (PIXELS * 1.0, r"'ndarray', image 0: float pixels from .* to 2\d\d; give them as uint8"),
        ([*PIXELS[:3], PIXELS[3] / 128.0], "'list', image 3: float pixels"),
        (PIXELS.astype(np.int32) * 9, "'ndarray', image 0: pixels of type int32"),
        (np.zeros((4, 3, 5, 3), np.uint8), "'ndarray', image 0: .* channels first or last"),
        (np.zeros((4, 5, 3), np.uint8), r"'ndarray' of shape \(4, 5, 3\) is one image, or several"),
        (PIXELS[:3], "labels= has 4 values, but 'ndarray' has 3 images"),
        ([], "'list' has no images"),
        ([*PIXELS[:3], "a.png"], "'list' mixes paths and images in memory"),
        ([*PIXELS[:3], None], "'list', image 3: NoneType is not an image"),
        ([1, 2, 3, 4], "'list', image 0: int is not an image"),
        (["a.png", "b.png", "c.png", "d.png"], "'list', row 0: no such file in .*: 'a.png'"),
        ([(b"", 0), (b"", 1), 5, (b"", 1)], "'list': sample 2 has other parts than the first"),
        ([(b"",)] * 4, "a sample has 1 part; expected"),
    ],
)
def test_bad_images(images: Any, words: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=words) as caught:
        ImageDomains(images, **ROLES)
    assert "\n" not in str(caught.value)


def test_options_without_use() -> None:
    with pytest.raises(InputError, match="columns= is not used with 'ndarray'"):
        ImageDomains(PIXELS, columns={"label": "y"}, **ROLES)


def test_images_in_memory_have_no_root(photos: Path) -> None:
    images = [path.read_bytes() for path in sorted(photos.rglob("*.png"))]
    with pytest.raises(InputError, match="root= is not used with 'list': its images are not given"):
        ImageDomains(images, labels=["a", "b"] * 4, domains=["x"] * 4 + ["y"] * 4, root=photos)
