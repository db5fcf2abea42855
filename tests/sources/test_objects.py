"""Python objects: sequences, arrays, dicts, data sets of PyTorch and WILDS, sources of others."""

from __future__ import annotations

import io
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image
from tests.sources.kinds import torchvision

from oodzoo import ImageDomains, InputError
from oodzoo.data.files import UnreadableImageError
from oodzoo.data.images import as_rgb, decode
from oodzoo.data.listing import Sample
from oodzoo.data.sources.base import ImageSource
from oodzoo.data.sources.items import name_classes
from oodzoo.data.sources.pixels import image_bytes, require_image

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


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_all_levels_survive_division_by_255(kind: type) -> None:
    levels = np.arange(256, dtype=np.uint8).reshape(16, 16)
    assert image_bytes((levels / 255).astype(kind)) == image_bytes(levels)


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


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "CMYK", "1", "I;16", "LA"])
def test_pillow_images_are_converted_as_files_are(mode: str) -> None:
    image = Image.radial_gradient("L").resize((8, 6))
    image = image.convert("I;16") if mode == "I;16" else image.convert("RGB").convert(mode)
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
        (np.full((5, 6, 3), -0.1), "float pixels from -0.1 to -0.1"),
        (np.full((5, 6, 3), np.nan), "float pixels from nan to nan"),
        (np.full((5, 6, 3), 256), "pixels of type int64 from 256 to 256; give them as uint8"),
        (np.full((5, 6, 3), -1), "from -1 to -1"),
        (np.ones((5, 6, 3), bool), "pixels of type bool"),
        (np.ones((5, 6, 3), complex), "pixels of type complex128"),
        (np.zeros((3, 6, 3), np.uint8), r"shape \(3, 6, 3\) has its channels first or last"),
        (np.zeros((5, 6, 2), np.uint8), r"shape \(5, 6, 2\) is not an image"),
        (np.zeros((0, 6, 3), np.uint8), r"shape \(0, 6, 3\) is not an image"),
        (np.zeros((0, 6), np.float32), r"shape \(0, 6\) is not an image"),
        (np.zeros(6, np.uint8), r"shape \(6,\) is not an image"),
        (np.zeros((2, 5, 6, 3), np.uint8), "is not an image"),
        ([[1, 2], [3]], "list is not an array of pixels"),
        (None, "NoneType is not an image; give a Pillow image"),
        (7, "int is not an image"),
    ],
)
def test_what_is_not_an_image(image: Any, words: str) -> None:
    for function in (image_bytes, require_image):
        with pytest.raises(UnreadableImageError, match=words) as caught:
            function(image)
        assert not caught.value.transient


# --- sequences ------------------------------------------------------------------------------------


def test_pixels() -> None:
    expected = ImageDomains(FOUR, **ROLES)
    assert pixels_of(expected) == FOUR.tolist()
    assert [tuple(s)[:3] for s in expected] == [
        (f"00000{n}", domain, str(n % 2)) for n, domain in enumerate(ROLES["domains"])
    ]
    first = (FOUR / 255).astype(np.float32).transpose(0, 3, 1, 2)
    for images in (list(FOUR), first, FOUR.astype(np.int64), list(map(Image.fromarray, FOUR))):
        assert ImageDomains(images, **ROLES).digests == expected.digests


def test_grey_images_images_of_several_sizes_and_arrays_on_disk(tmp_path: Path) -> None:
    grey = ImageDomains(FOUR[..., 0], **ROLES)
    assert pixels_of(grey) == [np.stack([p[..., 0]] * 3, -1).tolist() for p in FOUR]
    sizes = ImageDomains([np.full((5 + n, 9 - n), n, np.uint8) for n in range(4)], **ROLES)
    assert [decode(sizes.open(i)).size for i in range(4)] == [(9, 5), (8, 6), (7, 7), (6, 8)]
    np.save(tmp_path / "pixels.npy", FOUR)
    mapped = np.load(tmp_path / "pixels.npy", mmap_mode="r")
    assert pixels_of(ImageDomains(mapped, **ROLES)) == FOUR.tolist()


def test_urls_and_given_labels() -> None:
    memory = pytest.importorskip("fsspec").filesystem("memory")
    urls = [f"memory://arrays/{n}.png" for n in range(4)]
    for n, url in enumerate(urls):
        memory.pipe(url, bytes([n]))
    data = ImageDomains(urls, **ROLES)
    assert [data.open(i) for i in range(4)] == [b"\0", b"\1", b"\2", b"\3"]
    pairs = list(zip(FOUR, [7, 8, 7, 8], strict=True))
    data = ImageDomains(pairs, domains=ROLES["domains"])
    assert (pixels_of(data), data.classes) == (FOUR.tolist(), ("7", "8"))
    given = ImageDomains(pairs, **ROLES, groups=[None, 7, 7, None])  # which comes first
    assert [(s.label, s.group) for s in given] == [("0", None), ("1", "7"), ("0", "7"), ("1", None)]


def test_pillow_images_may_occur_twice_be_unread_or_damaged(photos: Path) -> None:
    image = Image.open(photos / "day/cat/1.png")
    data = ImageDomains([image] * 4, **ROLES)
    assert len(set(data.digests)) == 1
    assert data.unreadable == {}
    half = io.BytesIO((photos / "day/cat/1.png").read_bytes()[:50])
    data = ImageDomains([Image.open(half), *map(Image.fromarray, FOUR[1:])], **ROLES)
    assert list(data.unreadable) == ["000000"]


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


def test_classes_are_named_where_all_have_names() -> None:
    assert name_classes([1, 0], ["cat", "dog"]) == ["dog", "cat"]
    assert name_classes([2, 0], ["cat", "dog"]) == [2, 0]
    assert name_classes(["x", "y"], ["cat", "dog"]) == ["x", "y"]
    assert name_classes([True, False], ["cat", "dog"]) == [True, False]
    assert name_classes([1, 0], None) == [1, 0]


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


def test_files_of_other_kinds_are_loaded_by_the_data_set(tmp_path: Path) -> None:
    for n, pixels in enumerate(PIXELS):
        folder = tmp_path / "cd"[n % 2]
        folder.mkdir(exist_ok=True)
        np.save(folder / f"{n}.npy", pixels)
    kind = torchvision("datasets").DatasetFolder
    data = ImageDomains(kind(str(tmp_path), np.load, extensions=(".npy",)), domains=["a", "b"] * 4)
    assert data.classes == ("c", "d")
    assert np.asarray(decode(data.open(0))).shape == (6, 7, 3)


def test_a_subset_with_transforms_of_its_own_is_read_as_it_is(photos: Path) -> None:
    subset: Any = pytest.importorskip("torch").utils.data.Subset

    class Flipped(subset):  # type: ignore[misc]
        def __getitem__(self, i: int) -> Any:
            image, _ = super().__getitem__(i)
            return image, "flipped" if i % 2 else "not"

        def __getitems__(self, indices: Any) -> Any:
            return [self[i] for i in indices]

    data = ImageDomains(Flipped(folders(photos)[0], range(4)), domains=["a", "a", "b", "b"])
    assert data.classes == ("flipped", "not")
    assert data.samples[0].path == "000001"


def test_what_totensor_makes_becomes_the_pixels_again(photos: Path) -> None:
    torch: Any = pytest.importorskip("torch")
    transforms = torchvision("transforms")

    class Photos(torch.utils.data.Dataset):  # type: ignore[misc]
        def __init__(self, transform: Any) -> None:
            self.images = folders(photos)[0]
            self.transform = transform

        def __len__(self) -> int:
            return len(self.images)

        def __getitem__(self, i: int) -> Any:
            image, label = self.images[i]
            return self.transform(image.resize((7, 6))), torch.tensor(label), "ab"[i % 2], i // 2

    plain = ImageDomains(Photos(lambda image: image))
    floats = ImageDomains(Photos(transforms.ToTensor()))
    assert (floats.samples, floats.digests) == (plain.samples, plain.digests)
    assert [s.group for s in plain] == ["0", "1", "0", "1"]
    normalised = transforms.Compose([transforms.ToTensor(), transforms.Normalize([0.5], [0.2])])
    with pytest.raises(InputError, match=r"'Photos', sample 0: float pixels .* any normalisation"):
        ImageDomains(Photos(normalised))


def test_concatenated_data_sets_of_both_kinds(photos: Path) -> None:
    torch: Any = pytest.importorskip("torch")
    pair = [folders(photos)[0], torch.utils.data.Subset(tensors([5] * 8), [6, 2])]
    both = torch.utils.data.ConcatDataset(pair)
    data = ImageDomains(both, labels=[0, 1] * 3, domains=["a"] * 3 + ["b"] * 3)
    assert [s.path for s in data] == ["000000", "000002", "000001", "000004", "000003", "000005"]
    by_path = {s.path: data.open(i) for i, s in enumerate(data)}
    assert by_path["000000"] == (photos / "day/cat/1.png").read_bytes()
    assert np.asarray(decode(by_path["000005"])).tolist() == PIXELS[2].tolist()


def test_labels_that_are_vectors() -> None:
    torch: Any = pytest.importorskip("torch")
    pixels, domains = torch.from_numpy(PIXELS), ["a", "b"] * 4
    dataset = torch.utils.data.TensorDataset(pixels, torch.eye(8))
    classes = ImageDomains(dataset, domains=domains, task="classification").classes
    assert classes == tuple(map(str, range(8)))
    dataset = torch.utils.data.TensorDataset(pixels, torch.arange(8.0)[:, None] / 3)
    assert ImageDomains(dataset, domains=domains).task.kind == "regression"


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


class CamelyonSubset(Camelyon):
    """As WILDSSubset: `get_input` does not take its positions."""

    def __init__(self, dataset: Camelyon, indices: np.ndarray) -> None:
        self.dataset = dataset
        self.indices = indices
        self.y_array = dataset.y_array[indices]
        self.metadata_array = dataset.metadata_array[indices]

    def get_input(self, i: int) -> Image.Image:
        raise NotImplementedError


def test_a_field_of_the_metadata_is_the_domain() -> None:
    data = ImageDomains(Camelyon(), columns={"domain": "hospital", "group": "slide"})
    assert (data.domains, data.classes) == (("7", "9"), ("normal", "tumour"))
    for i, sample in enumerate(data):
        n = int(sample.path)
        assert sample.label == ["normal", "tumour"][n % 2]
        assert (sample.domain, sample.group) == ("79"[n // 4], str(n // 2))
        assert np.asarray(decode(data.open(i))).tolist() == PIXELS[n].tolist()


def test_a_subset() -> None:
    data = ImageDomains(
        CamelyonSubset(Camelyon(), np.array([7, 0, 4, 3])), columns={"domain": "hospital"}
    )
    found = {s.path: (s.domain, s.label) for s in data}
    assert found == {
        "000000": ("9", "tumour"),
        "000001": ("7", "normal"),
        "000002": ("9", "normal"),
        "000003": ("7", "tumour"),
    }
    first = next(i for i, s in enumerate(data) if s.path == "000000")
    assert np.asarray(decode(data.open(first))).tolist() == PIXELS[7].tolist()


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


# --- dicts by domain ------------------------------------------------------------------------------


def test_pairs_of_images_and_labels() -> None:
    data = ImageDomains({1: (FOUR, [0, 1, 0, 1]), 2: (list(FOUR), [1, 0, 1, 0], "aabb")})
    assert data.domains == ("1", "2")
    assert [s.path for s in data][:4] == ["1/000000", "1/000002", "1/000001", "1/000003"]
    assert [s.group for s in data if s.domain == "2"] == ["aabb"] * 4
    assert np.asarray(decode(data.open(1))).tolist() == FOUR[2].tolist()


# --- sources of others ----------------------------------------------------------------------------


class Squares:
    """Eight images of one pixel."""

    def __init__(self, samples: Any = None) -> None:
        default = [Sample(f"{n}.ppm", f"d{n % 2}", f"c{n // 2 % 2}", f"g{n}") for n in range(8)]
        self.samples = default if samples is None else samples

    def open(self, i: int) -> bytes:
        if i == 7:
            raise RuntimeError("the archive is closed")
        return b"P6 1 1 255 " + bytes([i, i, i])


def test_samples_and_bytes_of_an_object() -> None:
    source = Squares()
    assert isinstance(source, ImageSource)
    data = ImageDomains(source)
    assert data.name == "Squares"
    assert sorted(data.samples) == sorted(source.samples)
    for at, sample in enumerate(data.samples):
        number = int(sample.path[0])
        if number != 7:
            assert data.open(at) == source.open(number)
    assert data.unreadable == {"7.ppm": "RuntimeError: the archive is closed"}
    with pytest.raises(UnreadableImageError, match="the archive is closed"):
        data.open([sample.path for sample in data.samples].index("7.ppm"))


def test_samples_of_another_class_and_integers() -> None:
    class Mine(NamedTuple):
        label: str
        domain: str
        path: str

    samples = [Mine(f"c{n % 2}", f"d{n // 2}", str(n)) for n in range(4)]
    assert ImageDomains(Squares(samples)).samples[0] == Sample("0", "d0", "c0", None)
    numbers = [Sample(f"{n}", n % 2, n // 2 % 2, n) for n in range(8)]  # type: ignore[arg-type]
    data = ImageDomains(Squares(numbers))
    assert (data.domains, data.classes) == (("0", "1"), ("0", "1"))
    assert data.samples[0] == Sample("0", "0", "0", "0")
