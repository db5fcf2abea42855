"""Images for training: prepared as in extraction, cropped and augmented as in torchvision."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from itertools import count, islice
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from tests.oracles.augmentation import augmented_image
from tests.oracles.crops import random_resized_crop

from oodzoo.core.errors import InputError
from oodzoo.core.packages import import_torchvision, torchvision_installed
from oodzoo.data.files import ImageFile, LocalFile
from oodzoo.predictor.chunks import preprocess_images
from oodzoo.tuning.images import DeviceImages, TrainingImages, augmented, draw, prefetched
from oodzoo.zoo.preprocessing import Geometry

SMALL = Geometry((8, 8), (8, 8))
SCALE, RATIO = (0.7, 1.0), (3 / 4, 4 / 3)
SIZES = [(12, 10), (12, 12), (40, 30), (5, 60), (60, 5), (7, 9), (64, 64), (1, 1)]
"""Width and height; the third and the seventh are large enough to be reduced to 12 pixels."""


@pytest.fixture
def files(tmp_path: Path) -> list[ImageFile]:
    rng = np.random.default_rng(0)
    for number, (width, height) in enumerate(SIZES):
        pixels = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
    return [LocalFile(str(tmp_path / f"{number}.png")) for number in range(len(SIZES))]


def open_image(file: ImageFile) -> Image.Image:
    return Image.open(str(file)).convert("RGB")


def reduced(image: Image.Image, side: int = 12) -> Image.Image:
    """What is cropped instead of an image that is larger than this side in both directions."""
    scale = side / min(image.size)
    if scale >= 1:
        return image
    size = (math.ceil(scale * image.width), math.ceil(scale * image.height))
    return image.resize(size, Image.Resampling.LANCZOS)


def draws_of(seed: int, n: int) -> NDArray[np.float64]:
    return np.random.default_rng(seed).random((n, 22))


def expected_box(height: int, width: int, draws: NDArray[np.float64]) -> tuple[int, ...]:
    numbers: Iterator[float] = iter(draws.tolist())
    return random_resized_crop(
        height,
        width,
        SCALE,
        RATIO,
        lambda low, high: low + next(numbers) * (high - low),
        lambda n: int(next(numbers) * n),
    )


def test_crops_are_cropped_and_then_resized(files: list[ImageFile]) -> None:
    """Pillow's own box would mix pixels from outside of it into the margin."""
    with TrainingImages(files, SMALL) as images:
        for seed in range(10):
            found = images.cropped(range(len(files)), seed)
            assert found.shape == (len(files), 8, 8, 3)
            assert found.dtype == np.uint8
            for file, pixels, draws in zip(files, found, draws_of(seed, len(files)), strict=True):
                image = reduced(open_image(file))
                top, left, height, width = expected_box(image.height, image.width, draws)
                crop = image.crop((left, top, left + width, top + height))
                expected = crop.resize((8, 8), Image.Resampling.BILINEAR)
                np.testing.assert_array_equal(pixels, np.asarray(expected))


@pytest.mark.parametrize(
    ("geometry", "memory_bytes"),
    [
        (SMALL, 1000),
        (Geometry((10, 10), (8, 6), fit="cover", interpolation="bicubic"), 0),
        (Geometry((9, 12), (9, 12), fit="contain", fill=7), 1 << 20),
    ],
)
def test_neither_images_nor_crops_depend_on_memory(
    files: list[ImageFile], geometry: Geometry, memory_bytes: int
) -> None:
    """Images are prepared as in extraction."""
    expected = preprocess_images([str(file) for file in files], geometry)
    rows = [3, 0, 0, 7, 2, 1, 6]
    with TrainingImages(files, geometry) as images:
        crops = [images.cropped(rows, seed) for seed in range(3)]
        # decoded images are kept, some of them reduced
        np.testing.assert_array_equal(images.prepared(np.array(rows)), expected[rows])
    with TrainingImages(files, geometry, memory_bytes=memory_bytes) as images:
        for _ in range(2):
            np.testing.assert_array_equal(images.prepared(rows), expected[rows])
            for seed in range(3):
                np.testing.assert_array_equal(images.cropped(rows, seed), crops[seed])


def readable(images: TrainingImages, *, cropped: bool) -> list[int]:
    rows = []
    for row in range(len(SIZES)):
        with suppress(InputError):
            images.cropped([row], 0) if cropped else images.prepared([row])
            rows.append(row)
    return rows


def test_images_are_kept_as_long_as_they_fit(files: list[ImageFile]) -> None:
    """The third one is kept reduced to 16 x 12 pixels, and so only for crops."""
    memory_bytes = 3 * (12 * 10 + 12 * 12 + 16 * 12 + 7 * 9)
    with (
        TrainingImages(files, SMALL, memory_bytes=memory_bytes) as decoded,
        TrainingImages(files, SMALL, memory_bytes=3 * 8 * 8 * 3 + 191) as prepared,
    ):
        for _ in range(2):
            for row in range(6):
                decoded.cropped([row], 0)
            for row in (4, 2, 6, 0, 1):
                prepared.prepared([row])
        for file in files:
            Path(str(file)).unlink()
        assert readable(decoded, cropped=True) == [0, 1, 2, 5]
        assert readable(decoded, cropped=False) == [0, 1, 5]
        assert readable(prepared, cropped=False) == [2, 4, 6]
        assert readable(prepared, cropped=True) == []


def test_unreadable_images_are_named(files: list[ImageFile]) -> None:
    Path(str(files[4])).write_bytes(b"no image")
    Path(str(files[6])).unlink()
    with TrainingImages(files, SMALL) as images:
        for row, reason in ((4, "not an image that Pillow can identify"), (6, "No such file")):
            message = re.escape(f"cannot read the image {str(files[row])!r}: {reason}")
            with pytest.raises(InputError, match=message):
                images.prepared([0, row, 1])
            with pytest.raises(InputError, match=message):
                images.cropped([0, row, 1], 0)
        assert len(images.cropped([0, 1, 2, 3, 5, 7], 0)) == 6


@pytest.mark.parametrize("taken", [0, 5])
def test_prefetched_leaves_no_thread(taken: int) -> None:
    """Also if a call is still running when the caller stops."""
    before = set(threading.enumerate())
    release = threading.Event()
    ended: list[int] = []

    def make(number: int) -> int:
        if number >= taken:
            assert release.wait(60)
            ended.append(number)
        return number

    results = prefetched(make, count(), depth=2)
    assert list(islice(results, taken)) == list(range(taken))
    timer = threading.Timer(0.05, release.set)
    timer.start()
    results.close()
    timer.join()
    assert set(threading.enumerate()) == before
    assert len(ended) <= 2


torch = pytest.importorskip("torch")


@pytest.mark.parametrize("seed", range(3))
def test_crops_on_a_device_are_those_of_pillow(files: list[ImageFile], seed: int) -> None:
    rows = np.arange(len(files))
    with TrainingImages(files, Geometry((20, 16), (20, 16))) as images:
        crops = DeviceImages(images, rows, torch.device("cpu")).cropped(rows, seed)
        expected = images.cropped(rows, seed)
    assert (crops.shape, crops.dtype) == ((len(files), 3, 20, 16), torch.float32)
    # Pillow rounds to whole levels twice
    difference = np.abs(crops.permute(0, 2, 3, 1).double().numpy() * 255 - expected)
    assert 0.1 < difference.max() < 1.1


@pytest.mark.skipif(not torchvision_installed(), reason="needs torchvision")
@pytest.mark.parametrize("seed", range(3))
def test_equals_torchvision_image_by_image(seed: int) -> None:
    import_torchvision(extra="tune", purpose="this test")
    functional = import_module("torchvision.transforms.v2.functional")
    images = torch.rand((24, 3, 9, 7), generator=torch.Generator().manual_seed(0))
    images[1] = images[1, :1]  # without colour, all black, all white, with few levels
    images[2], images[3], images[4] = 0, 1, images[4].round()
    flip, order, factors, grey = (drawn.tolist() for drawn in draw(len(images), seed))
    expected = torch.stack(
        [
            augmented_image(functional, image, flip[i], order[i], factors[i], grey[i])
            for i, image in enumerate(images)
        ]
    )
    torch.testing.assert_close(augmented(images, seed), expected, rtol=0, atol=1e-5)


def test_parameters_have_domainbeds_distribution() -> None:
    n = 20_000
    draws = draw(n, 0)
    assert draws.flip.double().mean().item() == pytest.approx(0.5, abs=0.02)
    assert draws.grey.double().mean().item() == pytest.approx(0.1, abs=0.01)
    assert torch.equal(draws.order.sort(1).values, torch.arange(4).expand(n, 4))
    _, counts = (draws.order @ torch.tensor([64, 16, 4, 1])).unique(return_counts=True)
    assert (counts.double() / n).tolist() == pytest.approx([1 / 24] * 24, abs=0.008)
    spread = (draws.factors - torch.tensor([0.7, 0.7, 0.7, -0.3], dtype=torch.float64)) / 0.6
    assert 0 <= spread.min() < 0.001 < 0.999 < spread.max() <= 1
    assert spread.mean(0).numpy() == pytest.approx(0.5, abs=0.01)
    assert spread.var(0).numpy() == pytest.approx(1 / 12, abs=0.003)
    places = draws.order.argsort(1)
    everything = torch.column_stack([draws.flip, draws.factors, draws.grey, places])
    correlation = torch.corrcoef(everything.T)[:6] - torch.eye(6, 10)
    assert correlation.abs().max() < 0.03
