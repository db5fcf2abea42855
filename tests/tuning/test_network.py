"""A head in a network and back, and images that fit into memory, which no call can limit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.oracles import lora as oracle
from tests.tuning import small

from oodzoo.core.errors import InputError
from oodzoo.linear.heads.linear import LinearHead
from oodzoo.tasks import task_of
from oodzoo.tuning import network as networks
from oodzoo.tuning.network import HeadedNetwork, add_adapters, find_batch_size, head_weights

torch = pytest.importorskip("torch")

REGRESSION, CLASSES = [-3e5, 2.5, 7e4], [0.5, -np.inf, 0.1]
"""Biases: of large numbers, and of classes of which one has no training images."""


@pytest.mark.parametrize(
    ("kind", "bias"), [("classification", CLASSES), ("regression", REGRESSION)]
)
def test_head_there_and_back(kind: Any, bias: list[float]) -> None:
    network, rng = HeadedNetwork(small.trainable(), small.CLASSES, "cpu"), np.random.default_rng(1)
    head = LinearHead(rng.normal(size=(3, small.DIM)), np.array(bias), 2.0, task_of(kind))
    weights = head_weights(head)
    assert all(each.isfinite().all() for each in weights.values())
    network.load(weights)
    found = network.head(task_of(kind))
    assert found.task.kind == kind
    np.testing.assert_allclose(found.weights, head.weights, rtol=1e-6)
    np.testing.assert_allclose(found.bias, head.bias, rtol=1e-6)
    if kind == "classification":
        with torch.no_grad(), np.errstate(divide="ignore"):
            batch = network.images(rng.integers(0, 256, (4, 8, 8, 3), dtype=np.uint8))
            expected = np.log(head.probabilities(network.features(batch).numpy()))
            np.testing.assert_allclose(network.log_probabilities(batch), expected, atol=1e-5)


WIDTH = 1000


class Layers:
    """Three layers that each save an activation for the backward pass, and the input."""

    def __init__(self) -> None:
        nn = torch.nn
        layers = [nn.Linear(WIDTH, 8), nn.Tanh(), nn.Linear(8, WIDTH), nn.Tanh()]
        self.module = nn.Sequential(*layers)
        self.sizes: list[int] = []

    def step(self, n: int) -> None:
        self.sizes.append(n)
        self.module(torch.randn(n, WIDTH)).sum().backward()


@pytest.mark.parametrize(("images", "expected"), [(96, 96), (95, 48), (24, 24), (1, 1)])
def test_images_that_fit(monkeypatch: pytest.MonkeyPatch, images: int, expected: int) -> None:
    """Each image saves its input and its output, 2 x 1000 numbers, and 2 x 8 in between.

    The second weight does not depend on their number. Large passes are not tried, and the random
    state is kept.
    """
    each, layers = 2 * 4 * WIDTH + 4 * 8, Layers()
    free = (4 * 8 * WIDTH + images * each + each / 2) / (1 - networks.RESERVE)
    monkeypatch.setattr(networks, "available_memory", lambda: int(free))
    torch.manual_seed(0)
    numbers = torch.rand(3)
    torch.manual_seed(0)
    assert find_batch_size(layers.step, 96, "cpu") == expected
    assert torch.equal(torch.rand(3), numbers)
    assert max(layers.sizes) == 2


def test_what_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(networks, "available_memory", lambda: 50_000)
    with pytest.raises(InputError, match=r"needs about 80\.\d kB, 50\.0 kB are free"):
        find_batch_size(Layers().step, 16, "cpu")
    with pytest.raises(InputError, match="no matrix or convolution"):
        add_adapters(torch.nn.Sequential(torch.nn.ReLU()), 2, seed=0)


def test_adapters_are_their_factors_applied_one_after_the_other() -> None:
    nn, images = torch.nn, torch.randn(6, 3, 8, 8, generator=torch.Generator().manual_seed(7))
    convolution, linear = nn.Conv2d(3, 8, 3, bias=False), nn.Linear(10, 7)
    module = nn.ModuleList([convolution, linear])
    plain = [convolution.weight.detach().clone(), linear.weight.detach().clone()]
    add_adapters(module, 3, seed=0)
    A, B, linear_A, linear_B = (each for each in module.parameters() if each.requires_grad)
    for each in (A, B, linear_A, linear_B):
        nn.init.normal_(each)
    rows = torch.randn(5, 10)
    expected = oracle.linear(rows, plain[1], linear.bias, linear_A, linear_B)
    torch.testing.assert_close(linear(rows), expected)
    expected = oracle.convolution(images, plain[0], A, B)
    torch.testing.assert_close(convolution(images), expected, rtol=1e-4, atol=1e-4)
