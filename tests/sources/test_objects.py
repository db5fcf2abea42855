"""Python objects: sequences, arrays, dicts, data sets of PyTorch and WILDS, sources of others."""

from __future__ import annotations

import io
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image
from tests.sources.kinds import torchvision

from oodzoo import ImageDomains, InputError
from oodzoo.data.files import UnreadableImageError
from oodzoo.data.pixels import as_rgb, decode
from oodzoo.data.sources.sequences import image_bytes, require_image

ROLES: dict[str, Any] = {"labels": [0, 1, 0, 1], "domains": ["day", "day", "night", "night"]}
EIGHT: dict[str, Any] = {"labels": [0, 1] * 4, "domains": ["day"] * 4 + ["night"] * 4}
PIXELS = np.random.default_rng(0).integers(0, 256, (8, 6, 7, 3), np.uint8)
FOUR = PIXELS[:4]


def pixels_of(data: ImageDomains) -> list[Any]:
    return [np.asarray(decode(data.open(i))).tolist() for i in range(len(data))]


# --- images in memory become image files ----------------------------------------------------------

WIDER = st.sampled_from([np.int16, np.int64, np.uint16])
FLOATS = st.sampled_from([np.float16, np.float32, np.float64])


def decoded(image: Any) -> NDArray[np.uint8]:
    return np.asarray(decode(image_bytes(image)))


@given(st.integers(0), st.integers(5, 9), st.integers(5, 9), WIDER, FLOATS)
def test_files_decode_to_the_same_pixels(
    seed: int, height: int, width: int, wider: type, floats: type
) -> None:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    np.testing.assert_array_equal(decoded(pixels), pixels)
    expected = image_bytes(pixels)
    for same in (
        np.asfortranarray(pixels), Image.fromarray(pixels), pixels.tolist(), pixels.astype(wider),
        (pixels / 255).astype(floats),
    ):  # fmt: skip
        assert image_bytes(same) == expected


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "uint8"])
def test_tensors_have_their_channels_first(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    pixels = np.arange(8 * 32 * 3, dtype=np.uint8).reshape(8, 32, 3)
    tensor = torch.from_numpy(pixels).permute(2, 0, 1)
    if dtype != "uint8":
        tensor = tensor.to(torch.float32).div(255).to(getattr(torch, dtype)).requires_grad_()
    assert image_bytes(tensor) == image_bytes(pixels)


def test_grey_and_transparent_pixels() -> None:
    grey = np.arange(30, dtype=np.uint8).reshape(5, 6)
    for image in (grey, grey[..., np.newaxis], grey[np.newaxis]):
        np.testing.assert_array_equal(decoded(image), np.stack([grey] * 3, axis=-1))
    rgba = np.zeros((5, 6, 4), np.uint8)
    rgba[0, 0] = (10, 20, 30, 255)
    assert decoded(rgba)[0, 0].tolist() == [10, 20, 30]
    assert decoded(rgba)[1, 1].tolist() == [255, 255, 255]
    assert image_bytes(rgba) == image_bytes(np.moveaxis(rgba, -1, 0))


def test_pillow_images_are_converted_as_files_are() -> None:
    for mode in ("I;16", "LA", "P"):
        image = Image.radial_gradient("L").resize((8, 6)).convert(mode)
        np.testing.assert_array_equal(decoded(image), np.asarray(as_rgb(image)))
    exif = Image.Exif()
    exif[0x0112] = 6
    turned = io.BytesIO()
    Image.new("RGB", (8, 6)).save(turned, "JPEG", exif=exif)
    assert decode(image_bytes(Image.open(turned))).size == (6, 8)


def test_files_stay_as_they_are(photos: Path) -> None:
    path = photos / "day/cat/1.png"
    content = path.read_bytes()
    assert image_bytes(content) == image_bytes(bytearray(content)) == content
    assert image_bytes({"bytes": content, "path": "elsewhere.png"}) == content
    assert image_bytes({"bytes": None, "path": str(path)}) == content
    require_image({"bytes": None, "path": "missing.png"})  # nothing is read to be checked
    require_image(b"not an image")
    memory = pytest.importorskip("fsspec").filesystem("memory")
    memory.pipe("/pixels/a.png", b"content")
    assert image_bytes({"bytes": None, "path": "memory://pixels/a.png"}) == b"content"
    for cell, words in (
        ({"bytes": None, "path": "memory://pixels/b.png"}, "no such file"),
        ({"bytes": None, "path": None}, "neither bytes nor a path"),
        ({"bytes": None, "path": str(photos)}, "not a regular file"),
    ):
        with pytest.raises(UnreadableImageError, match=words):
            image_bytes(cell)


@pytest.mark.parametrize(
    ("image", "words"),
    [
        (np.full((5, 6, 3), 1.5), "float pixels from 1.5 to 1.5; give them as uint8, or as floats"),
        (np.full((5, 6, 3), 256), "pixels of type int64 from 256 to 256; give them as uint8"),
        (np.ones((5, 6, 3), bool), "pixels of type bool"),
        (np.zeros((3, 6, 3), np.uint8), r"shape \(3, 6, 3\) has its channels first or last"),
        (np.zeros((5, 6, 2), np.uint8), r"shape \(5, 6, 2\) is not an image"),
        (np.zeros((0, 6), np.float32), r"shape \(0, 6\) is not an image"),
        ([[1, 2], [3]], "list is not an array of pixels"),
        (None, "NoneType is not an image; give a Pillow image"),
    ],
)
def test_what_is_not_an_image(image: Any, words: str) -> None:
    for function in (image_bytes, require_image):
        with pytest.raises(UnreadableImageError, match=words) as caught:
            function(image)
        assert not caught.value.transient


# --- sequences ------------------------------------------------------------------------------------


def test_pixels(tmp_path: Path) -> None:
    expected = ImageDomains(FOUR, **ROLES)
    assert pixels_of(expected) == FOUR.tolist()
    assert [tuple(s)[:3] for s in expected] == [
        (f"00000{n}", domain, str(n % 2)) for n, domain in enumerate(ROLES["domains"])
    ]
    first = (FOUR / 255).astype(np.float32).transpose(0, 3, 1, 2)
    np.save(tmp_path / "pixels.npy", FOUR)
    mapped = np.load(tmp_path / "pixels.npy", mmap_mode="r")
    for images in (list(FOUR), first, FOUR.astype(np.int64), [*map(Image.fromarray, FOUR)], mapped):
        assert ImageDomains(images, **ROLES).digests == expected.digests
    grey = ImageDomains(FOUR[..., 0], **ROLES)
    assert pixels_of(grey) == [np.stack([p[..., 0]] * 3, -1).tolist() for p in FOUR]
    sizes = ImageDomains([np.full((5 + n, 9 - n), n, np.uint8) for n in range(4)], **ROLES)
    assert [decode(sizes.open(i)).size for i in range(4)] == [(9, 5), (8, 6), (7, 7), (6, 8)]


# --- samples that are read when they are needed ---------------------------------------------------


class Items:
    """Samples that count how often they are read, and reject being read by two threads."""

    def __init__(self, rows: Iterable[Any]) -> None:
        self.rows = list(rows)
        self.reads = 0
        self.busy = Lock()

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, i: int) -> Any:
        assert self.busy.acquire(blocking=False), "read by two threads"
        try:
            self.reads += 1
            row = self.rows[i]
            if isinstance(row, Exception):
                raise row
            return row() if callable(row) else row
        finally:
            self.busy.release()


def test_pairs_tuples_and_dicts() -> None:
    items = Items((pixels, n % 2) for n, pixels in enumerate(PIXELS))
    data = ImageDomains(items, domains=EIGHT["domains"])
    found = {s.path: np.asarray(decode(data.open(i))).tolist() for i, s in enumerate(data)}
    assert found == {f"{n:06d}": pixels.tolist() for n, pixels in enumerate(PIXELS)}
    assert [s.label for s in data] == ["0", "0", "1", "1"] * 2
    assert data.name == "Items"
    rows = [(p, f"c{n % 2}", EIGHT["domains"][n], n // 4) for n, p in enumerate(PIXELS)]
    data = ImageDomains(Items(rows))
    assert {(s.domain, s.group) for s in data} == {("day", "0"), ("night", "1")}
    assert ImageDomains(Items(rows), domains=["a", "b"] * 4).domains == ("a", "b")
    named = [{"x": p, "y": label, "site": d} for p, label, d, _ in rows]
    data = ImageDomains(Items(named), columns={"image": "x", "label": "y", "domain": "site"})
    assert (data.domains, data.classes, len(data)) == (("day", "night"), ("c0", "c1"), 8)


def test_an_attribute_with_labels_saves_reading_all_samples() -> None:
    def reads(given: Any, expected: tuple[str, ...], **attributes: Any) -> int:
        items = Items((pixels, n % 2) for n, pixels in enumerate(PIXELS))
        for name, value in attributes.items():
            setattr(items, name, value)
        data = ImageDomains(items, domains=EIGHT["domains"], labels=given)
        assert data.classes == expected
        return items.reads

    few = reads([0, 1] * 4, ("0", "1"))
    targets = np.array([1, 0] * 4)
    assert reads(None, ("cat", "dog"), targets=targets, classes=["cat", "dog"]) == few
    assert reads(None, ("0", "1"), labels=["cat", "dog", "bird"]) == few + len(PIXELS)


def test_samples_are_read_by_one_thread_at_a_time() -> None:
    def slow() -> Any:
        time.sleep(0.002)
        return PIXELS[0], 1

    items = Items([slow] * 40)
    data = ImageDomains(items, labels=[0, 1] * 20, domains=["day", "day", "night", "night"] * 10)
    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(data.open, range(40)))) == 1
    items.rows[3] = OSError("gone")
    assert data.unreadable == {"000003": "gone"}


# --- PyTorch --------------------------------------------------------------------------------------


def folders(photos: Path, **options: Any) -> list[Any]:
    image_folder = torchvision("datasets").ImageFolder
    return [image_folder(photos / domain, **options) for domain in ("day", "night")]


def tensors(labels: list[int]) -> Any:
    torch = pytest.importorskip("torch")
    pixels = torch.from_numpy(PIXELS.transpose(0, 3, 1, 2).copy())
    return torch.utils.data.TensorDataset(pixels, torch.tensor(labels))


def test_image_folders_are_read_as_files(photos: Path) -> None:
    transforms = torchvision("transforms")
    random = transforms.Compose([transforms.RandomCrop(2), transforms.ToTensor()])
    options = {"transform": random, "target_transform": lambda label: 10 + label}
    data = ImageDomains(
        torchvision("datasets").ImageFolder(photos, **options), domains=["a", "b"] * 4
    )
    assert (data.classes, data.root) == (("10", "11"), photos)
    assert sorted(data.files, key=str) == sorted(ImageDomains(photos).files, key=str)
    torch: Any = pytest.importorskip("torch").utils.data
    environments: Any = type("Environments", (torch.Dataset,), {"ENVIRONMENTS": ("D", "N")})()
    environments.datasets = [tensors([0, 1] * 4), tensors([1, 0] * 4)]
    assert ImageDomains(environments).domains == ("D", "N")  # there are no folders


# --- WILDS ----------------------------------------------------------------------------------------


class Camelyon:
    """The part of `wilds.datasets.wilds_dataset.WILDSDataset` that is used; not PyTorch's."""

    metadata_fields = ("hospital", "slide", "y")
    metadata_map: ClassVar[dict[str, Any] | None] = {
        "y": ["normal", "tumour"],
        "hospital": np.array([7, 9]),
    }

    def __init__(self) -> None:
        self.y_array = np.array([0, 1] * 4)
        self.metadata_array = np.array([[n // 4, n // 2, n % 2] for n in range(8)])

    def __len__(self) -> int:
        return len(self.y_array)

    def __getitem__(self, i: int) -> Any:
        return self.get_input(i), self.y_array[i], self.metadata_array[i]

    def get_input(self, i: int) -> Image.Image:
        return Image.fromarray(PIXELS[i])


def test_a_field_of_the_metadata_is_the_domain() -> None:
    data = ImageDomains(Camelyon(), columns={"domain": "hospital", "group": "slide"})
    assert (data.domains, data.classes) == (("7", "9"), ("normal", "tumour"))
    for i, sample in enumerate(data):
        n = int(sample.path)
        assert sample.label == ["normal", "tumour"][n % 2]
        assert (sample.domain, sample.group) == ("79"[n // 4], str(n // 2))
        assert np.asarray(decode(data.open(i))).tolist() == PIXELS[n].tolist()


def test_other_fields_and_no_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Camelyon, "metadata_map", None)
    data = ImageDomains(Camelyon(), columns={"domain": "slide", "label": "hospital"})
    assert (data.domains, data.classes) == (("0", "1", "2", "3"), ("0", "1"))
    assert ImageDomains(Camelyon(), domains=["a", "b"] * 4).domains == ("a", "b")
    proposed = ImageDomains(Camelyon(), domains="propose")
    assert (proposed.domains, set(proposed.metadata)) == (("all",), set())
    assert {each.name for each in proposed.proposals} == {"hospital", "slide"}
    for columns, words in (
        (None, r"'Camelyon' has no column 'domain'.* 'hospital', 'slide'"),
        ({"domain": "hospitals"}, r"no column 'hospitals'.* did you mean hospital"),
    ):
        with pytest.raises(InputError, match=words):
            ImageDomains(Camelyon(), columns=columns)
