"""A network with a head: its inputs, weights, adapters, outputs and losses; images that fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.oracles import lora as oracle
from tests.tuning import small

from oodzoo.core.errors import InputError
from oodzoo.linear.heads.linear import LinearHead
from oodzoo.tuning import memory
from oodzoo.tuning.memory import find_batch_size
from oodzoo.tuning.network import Network, add_adapters, head_weights, loss, merge_adapters

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


# --- adapters -------------------------------------------------------------------------------------


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


def test_formula() -> None:
    """Against the factors applied one after the other to the inputs."""
    convolution, linear = nn.Conv2d(3, 8, 3, bias=False), nn.Linear(10, 7)
    module = nn.ModuleList([convolution, linear])
    plain = [convolution.weight.detach().clone(), linear.weight.detach().clone()]
    adapters = adapted(module, 3)
    assert [tuple(each.shape) for each in adapters] == [(3, 27), (8, 3), (3, 10), (7, 3)]
    for each in adapters:
        nn.init.normal_(each)
    (A, B), (linear_A, linear_B) = adapters[:2], adapters[2:]
    rows = torch.randn(5, 10)
    torch.testing.assert_close(
        linear(rows), oracle.linear(rows, plain[1], linear.bias, linear_A, linear_B)
    )
    torch.testing.assert_close(
        convolution(IMAGES),
        oracle.convolution(IMAGES, plain[0], A, B),
        rtol=1e-4,
        atol=1e-4,
    )


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


def test_attention() -> None:
    """Its matrices are not those of linear layers."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    tokens = torch.randn(2, 5, 8)
    before, names = layer(tokens), set(layer.state_dict())
    adapters = adapted(layer, 2)
    assert len(adapters) == 8
    torch.testing.assert_close(layer(tokens), before)
    for each in adapters:
        nn.init.normal_(each, std=0.1)
    changed = layer(tokens)
    assert not torch.allclose(changed, before)
    merge_adapters(layer)
    assert set(layer.state_dict()) == names
    torch.testing.assert_close(layer(tokens), changed)


def test_no_layer() -> None:
    with pytest.raises(InputError, match="no matrix or convolution"):
        add_adapters(nn.Sequential(nn.ReLU()), 2, seed=0)


# --- memory ---------------------------------------------------------------------------------------


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
    """Each image saves its input and its output, 2 x 1000 numbers, and 2 x 8 in between."""
    each = 2 * BYTES + 4 * 8
    with_free(monkeypatch, (base + images * each + each / 2) / (1 - memory.RESERVE))
    assert find_batch_size(Layers().step, 96, "cpu") == expected


def test_large_passes_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    layers = Layers()
    with_free(monkeypatch, 2**40)
    find_batch_size(layers.step, 64, "cpu")
    assert max(layers.sizes) == 2


def test_not_even_one_image(monkeypatch: pytest.MonkeyPatch) -> None:
    with_free(monkeypatch, 50_000)
    with pytest.raises(InputError, match=r"needs about 80\.\d kB, 50\.0 kB are free") as caught:
        find_batch_size(Layers().step, 16, "cpu")
    assert "\n" not in str(caught.value)


def test_random_state_is_kept() -> None:
    layers = Layers()
    torch.manual_seed(0)
    expected: Any = torch.rand(3)
    torch.manual_seed(0)
    find_batch_size(layers.step, 4, "cpu")
    torch.testing.assert_close(torch.rand(3), expected, rtol=0, atol=0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda() -> None:
    free, _ = torch.cuda.mem_get_info()
    taken: list[Any] = []

    def step(n: int) -> None:
        taken[:] = [torch.empty(n * (free // 10), dtype=torch.uint8, device="cuda")]
        taken.clear()

    assert find_batch_size(step, 64, "cuda") == 8
    with pytest.raises(InputError, match="even with one image at a time"):
        find_batch_size(lambda n: step(100 * n), 64, "cuda")
