"""A network with a head: its inputs, weights, adapters, outputs and losses; images that fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.tuning import small

from oodzoo.core.errors import InputError
from oodzoo.linear.heads.linear import LinearHead
from oodzoo.tuning import memory
from oodzoo.tuning.memory import find_batch_size
from oodzoo.tuning.network import Network, add_adapters, head_weights, merge_adapters

torch = pytest.importorskip("torch")


@pytest.fixture
def network() -> Network:
    return Network(small.trainable(), small.CLASSES, "cpu")


def pixels(n: int = 4) -> Any:
    return np.random.default_rng(0).integers(0, 256, (n, 8, 8, 3), dtype=np.uint8)


@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_head_there_and_back(network: Network, kind: Any) -> None:
    """Regressions of large numbers have a large bias; a class may have no training images."""
    rng, bias = (
        np.random.default_rng(1),
        [-3e5, 2.5, 7e4] if kind == "regression" else [0.5, -np.inf, 0.1],
    )
    head = LinearHead(rng.normal(size=(3, small.DIM)), np.array(bias), 2.0, kind)
    weights = head_weights(head)
    assert all(each.isfinite().all() for each in weights.values())
    network.load(weights)
    found = network.head(kind)
    assert found.kind == kind
    np.testing.assert_allclose(found.weights, head.weights, rtol=1e-6)
    np.testing.assert_allclose(found.bias, head.bias, rtol=1e-6)
    if kind == "classification":
        with torch.no_grad(), np.errstate(divide="ignore"):
            batch = network.images(pixels())
            expected = np.log(head.probabilities(network.features(batch).numpy()))
            np.testing.assert_allclose(network.log_probabilities(batch), expected, atol=1e-5)


nn = torch.nn


def convolutional() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8),
        nn.Conv2d(8, 8, 3, groups=8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 5),
    ).eval()


def trained(module: Any, adapters: list[Any], steps: int = 5) -> None:
    optimiser = torch.optim.AdamW(adapters, lr=0.05)
    for step in range(steps):
        images = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(step))
        optimiser.zero_grad()
        module(images).square().sum().backward()
        optimiser.step()


IMAGES = torch.randn(6, 3, 8, 8, generator=torch.Generator().manual_seed(7))


def adapted(module: Any, rank: int, seed: int = 0) -> list[Any]:
    """Add adapters; return A and B of each, which are all that is trained."""
    add_adapters(module, rank, seed=seed)
    return [each for each in module.parameters() if each.requires_grad]


def test_merged_weights_are_plain() -> None:
    module = convolutional()
    names = set(module.state_dict())
    trained(module, adapted(module, 2))
    expected = module(IMAGES)
    merge_adapters(module)
    assert set(module.state_dict()) == names
    torch.testing.assert_close(module(IMAGES), expected, rtol=0, atol=0)
    assert all(each.requires_grad for each in module.parameters())
    plain = convolutional()
    plain.load_state_dict(module.state_dict())
    torch.testing.assert_close(plain(IMAGES), expected, rtol=0, atol=0)


WIDTH = 1000
BYTES = 4 * WIDTH
"""Of one activation of one image."""


class Layers:
    """Three layers that each save an activation for the backward pass, and the input."""

    def __init__(self) -> None:
        layers = [nn.Linear(WIDTH, 8), nn.Tanh(), nn.Linear(8, WIDTH), nn.Tanh()]
        self.module = nn.Sequential(*layers)
        self.sizes: list[int] = []

    def step(self, n: int) -> None:
        self.sizes.append(n)
        self.module(torch.randn(n, WIDTH)).sum().backward()


def with_free(monkeypatch: pytest.MonkeyPatch, n_bytes: float) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: int(n_bytes))


@pytest.fixture
def base() -> int:
    """Bytes that do not depend on the number of images: the second weight."""
    return 4 * 8 * WIDTH


@pytest.mark.parametrize(("images", "expected"), [(96, 96), (95, 48), (24, 24), (1, 1)])
def test_images_that_fit(
    monkeypatch: pytest.MonkeyPatch, base: int, images: int, expected: int
) -> None:
    """Each image saves its input and its output, 2 x 1000 numbers, and 2 x 8 in between.

    Large passes are not tried, and the random state is kept.
    """
    each, layers = 2 * BYTES + 4 * 8, Layers()
    with_free(monkeypatch, (base + images * each + each / 2) / (1 - memory.RESERVE))
    torch.manual_seed(0)
    expected_numbers: Any = torch.rand(3)
    torch.manual_seed(0)
    assert find_batch_size(layers.step, 96, "cpu") == expected
    assert torch.equal(torch.rand(3), expected_numbers)
    assert max(layers.sizes) == 2


def test_not_even_one_image(monkeypatch: pytest.MonkeyPatch) -> None:
    with_free(monkeypatch, 50_000)
    with pytest.raises(InputError, match=r"needs about 80\.\d kB, 50\.0 kB are free"):
        find_batch_size(Layers().step, 16, "cpu")
    with pytest.raises(InputError, match="no matrix or convolution"):
        add_adapters(nn.Sequential(nn.ReLU()), 2, seed=0)
