"""Low-rank adapters of linear and convolutional layers."""

from __future__ import annotations

from typing import Any

import pytest
from tests.oracles import lora as oracle

from oodzoo.errors import InputError
from oodzoo.tuning.network import add_adapters, merge_adapters

torch = pytest.importorskip("torch")
nn = torch.nn


def network() -> Any:
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


def test_depthwise_convolutions_get_a_lower_rank() -> None:
    adapters = adapted(nn.Sequential(nn.Conv2d(32, 32, 3, groups=32)), 16)
    assert [tuple(each.shape) for each in adapters] == [(9, 9), (32, 9)]


def test_merged_weights_are_plain() -> None:
    module = network()
    names = set(module.state_dict())
    trained(module, adapted(module, 2))
    expected = module(IMAGES)
    merge_adapters(module)
    assert set(module.state_dict()) == names
    torch.testing.assert_close(module(IMAGES), expected, rtol=0, atol=0)
    assert all(each.requires_grad for each in module.parameters())
    plain = network()
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


def test_seed() -> None:
    first, again, other = (adapted(network(), 2, seed) for seed in (1, 1, 2))
    torch.testing.assert_close(first, again, rtol=0, atol=0)
    assert not torch.equal(first[0], other[0])


def test_no_layer() -> None:
    with pytest.raises(InputError, match="no matrix or convolution"):
        add_adapters(nn.Sequential(nn.ReLU()), 2, seed=0)
