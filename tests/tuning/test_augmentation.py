"""The augmentation of training images, against torchvision image by image."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
from tests.oracles.augmentation import augmented_image

from oodzoo.tuning.augmentation import augmented, draw
from oodzoo.zoo.torchvision_import import import_torchvision, torchvision_installed

torch: Any = pytest.importorskip("torch")


def make_images(n: int = 24, height: int = 9, width: int = 7, seed: int = 0) -> Any:
    """Noise; among it images without colour, all black, all white, and with few levels."""
    images = torch.rand((n, 3, height, width), generator=torch.Generator().manual_seed(seed))
    if n > 4:
        images[1] = images[1, :1]
        images[2] = 0
        images[3] = 1
        images[4] = images[4].round()
    return images


@pytest.mark.skipif(not torchvision_installed(), reason="needs torchvision")
@pytest.mark.parametrize("seed", range(8))
def test_equals_torchvision_image_by_image(seed: int) -> None:
    import_torchvision(extra="tune", purpose="this test")
    functional = import_module("torchvision.transforms.v2.functional")
    images = make_images()
    flip, order, factors, grey = (drawn.tolist() for drawn in draw(len(images), seed))
    expected = torch.stack(
        [
            augmented_image(functional, image, flip[i], order[i], factors[i], grey[i])
            for i, image in enumerate(images)
        ]
    )
    torch.testing.assert_close(augmented(images, seed), expected, rtol=0, atol=1e-5)


def test_global_generator_is_not_used() -> None:
    images = make_images()
    state = torch.get_rng_state()
    augmented(images, 5)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("kept", [1, 5, 23])
def test_an_image_does_not_depend_on_its_neighbours(kept: int) -> None:
    images = make_images()
    whole = augmented(images, 5)
    torch.testing.assert_close(augmented(images[:kept], 5), whole[:kept], rtol=0, atol=1e-6)
    images[kept:] = make_images(seed=1)[kept:]
    torch.testing.assert_close(augmented(images, 5)[:kept], whole[:kept], rtol=0, atol=1e-6)


def test_hue_of_grey_pixels_stays() -> None:
    """Not even rounding gives an image without colour a colour."""
    images = make_images()[:, :1].expand(-1, 3, -1, -1)
    result = augmented(images, 5)
    torch.testing.assert_close(result[:, 0], result[:, 1], rtol=0, atol=1e-6)
    torch.testing.assert_close(result[:, 0], result[:, 2], rtol=0, atol=1e-6)


def test_parameters_have_domainbeds_distribution() -> None:
    n = 20_000
    draws = draw(n, 0)
    assert draws.flip.double().mean().item() == pytest.approx(0.5, abs=0.02)
    assert draws.grey.double().mean().item() == pytest.approx(0.1, abs=0.01)
    assert torch.equal(draws.order.sort(1).values, torch.arange(4).expand(n, 4))
    codes = draws.order @ torch.tensor([64, 16, 4, 1])
    orders, counts = codes.unique(return_counts=True)
    assert len(orders) == 24
    assert (counts.double() / n).numpy() == pytest.approx(1 / 24, abs=0.008)
    low = torch.tensor([0.7, 0.7, 0.7, -0.3], dtype=torch.float64)
    spread = (draws.factors - low) / 0.6
    assert 0 <= spread.min() < 0.001
    assert 0.999 < spread.max() <= 1
    assert spread.mean(0).numpy() == pytest.approx(0.5, abs=0.01)
    assert spread.var(0).numpy() == pytest.approx(1 / 12, abs=0.003)
    places = draws.order.argsort(1)
    everything = torch.column_stack([draws.flip, draws.factors, draws.grey, places])
    correlation = torch.corrcoef(everything.T)[:6] - torch.eye(6, 10)
    assert correlation.abs().max() < 0.03


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
def test_on_cuda_without_waiting() -> None:
    images = make_images()
    on_device = images.cuda()
    try:
        torch.cuda.set_sync_debug_mode("error")
        result = augmented(on_device, 5)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.testing.assert_close(result.cpu(), augmented(images, 5), rtol=0, atol=1e-5)
