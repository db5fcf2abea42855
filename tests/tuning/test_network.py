"""A network with a head: its inputs, weights, outputs and losses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.tuning import small

from oodzoo.heads.linear import LinearHead
from oodzoo.tuning.network import Network, add_adapters, head_weights, loss

torch = pytest.importorskip("torch")


@pytest.fixture
def network() -> Network:
    return Network(small.trainable(), small.CLASSES, "cpu")


def pixels(n: int = 4) -> Any:
    return np.random.default_rng(0).integers(0, 256, (n, 8, 8, 3), dtype=np.uint8)


def test_features_are_those_of_the_model(network: Network) -> None:
    batch = torch.from_numpy(small.PREPROCESSING.normalise(pixels()))
    with torch.no_grad():
        expected = small.features()(batch)
        found = network.features(network.images(pixels()))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_weights_with_adapters(network: Network) -> None:
    before = network.weights()
    add_adapters(network.parts["features"], 2, seed=0)
    trained = network.trained()
    assert {name for name in trained if "parametrizations" not in name} == {
        "head.weight",
        "head.bias",
    }
    name = next(name for name in trained if name.endswith("features.0.parametrizations.weight.0.B"))
    network.load({name: torch.ones_like(trained[name])})
    matrix = trained[name] @ trained[name[:-1] + "A"]
    expected = before["features.0.weight"] + matrix.view(before["features.0.weight"].shape)
    torch.testing.assert_close(network.weight("features.0.weight").detach(), expected)
    torch.testing.assert_close(network.weight("features.0.bias"), before["features.0.bias"])


@pytest.mark.parametrize("kind", ["classification", "regression", "multilabel"])
def test_head_there_and_back(network: Network, kind: Any) -> None:
    rng = np.random.default_rng(1)
    # regressions of large numbers have a large bias
    head = LinearHead(rng.normal(size=(3, small.DIM)), np.array([-3e5, 2.5, 7e4]), 2.0, kind)
    network.load(head_weights(head))
    found = network.head(kind)
    assert found.kind == kind
    np.testing.assert_allclose(found.weights, head.weights, rtol=1e-6)
    np.testing.assert_allclose(found.bias, head.bias, rtol=1e-6)


def test_classes_without_training_images(network: Network) -> None:
    rng = np.random.default_rng(1)
    head = LinearHead(rng.normal(size=(3, small.DIM)), np.array([0.5, -np.inf, 0.1]), 1.0)
    weights = head_weights(head)
    assert all(each.isfinite().all() for each in weights.values())
    network.load(weights)
    assert network.head().bias[1] == -np.inf
    batch = network.images(pixels())
    with torch.no_grad():
        found = network.log_probabilities(batch).numpy()
        features = network.features(batch).numpy()
    with np.errstate(divide="ignore"):
        expected = np.log(head.probabilities(features))
    assert (found[:, 1] == -np.inf).all()
    np.testing.assert_allclose(found[:, [0, 2]], expected[:, [0, 2]], atol=1e-5)


def test_outputs_are_not_rounded_in_mixed_precision(network: Network) -> None:
    """Years differ by less than the precision of bfloat16."""
    network.precision = torch.bfloat16
    network.load(
        {"head.weight": torch.zeros(3, 6), "head.bias": torch.tensor([2001.0, 2002, 2003])}
    )
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        found = network.outputs(network.images(pixels()))
    assert found.dtype == torch.float32
    assert found.tolist() == [[2001, 2002, 2003]] * 4


def test_losses() -> None:
    rng = np.random.default_rng(2)
    z = rng.normal(size=(5, 3))
    outputs = torch.from_numpy(z)
    classes = np.array([0, 2, 1, 1, 0])
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    expected = -np.log(p[np.arange(5), classes]).mean()
    assert float(loss("classification", outputs, torch.from_numpy(classes))) == pytest.approx(
        expected
    )
    several = rng.integers(2, size=(5, 3)).astype(float)
    q = 1 / (1 + np.exp(-z))
    expected = -(several * np.log(q) + (1 - several) * np.log(1 - q)).mean()
    assert float(loss("multilabel", outputs, torch.from_numpy(several))) == pytest.approx(expected)
    numbers, scale = rng.normal(size=(5, 3)), np.array([1.0, 10, 0.1])
    expected = (((z - numbers) / scale) ** 2).mean()
    found = loss("regression", outputs, torch.from_numpy(numbers), torch.from_numpy(scale))
    assert float(found) == pytest.approx(expected)
