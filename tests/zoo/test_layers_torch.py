"""Layers of PyTorch networks, against what the libraries themselves return for them."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from tests.oracles.pooling import pool_map
from tests.zoo.data import noise

from oodzoo.core.errors import InputError
from oodzoo.zoo import Model, ModelSpec
from oodzoo.zoo.model import collect_together, launch_together, only_one
from oodzoo.zoo.preprocessing import square
from oodzoo.zoo.sources import load_network
from oodzoo.zoo.torch_model import Built, TorchModel, assemble_layers
from oodzoo.zoo.zoos import expand_layers

close = partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5)


def load(source: str, **fields: Any) -> list[Model | InputError]:
    """Load the layers that a source names, of a network with random weights."""
    spec = ModelSpec("net", source, **fields)
    specs = expand_layers(spec, "this test", name=lambda network: network.name)
    return load_network(specs, device="cpu", precision="float32")


def run(models: list[Model | InputError]) -> tuple[dict[str | None, Any], Any]:
    """Features of noise by layer, in one forward pass; and the normalised batch."""
    loaded = [model for model in models if isinstance(model, Model)]
    assert len(loaded) == len(models), models
    preprocessing = loaded[0].info.preprocessing
    pixels = noise(2, preprocessing.geometry.crop[0])
    together = collect_together(loaded, launch_together(loaded, loaded[0].prepare(pixels)))
    features = [outputs.features for outputs in together.outputs]
    return (
        {model.info.layer: each for model, each in zip(loaded, features, strict=True)},
        preprocessing.normalise(pixels),
    )


def whole(model: Model | InputError) -> Any:
    """The module of a loaded model."""
    assert isinstance(model, TorchModel)
    return model.network.module  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "arguments", "stated", "pooling"),
    [
        ("test_vit", None, "", "cls"),
        ("test_vit", {"reg_tokens": 4}, "", "cls"),
        ("test_vit2", None, "", "mean"),  # register tokens, but no class token
        ("test_vit", {"reg_tokens": 4}, ":both", "both"),
    ],
)
def test_blocks_of_a_vision_transformer(
    timm: Any, torch: Any, name: str, arguments: Any, stated: str, pooling: str
) -> None:
    layers = "+".join(f"blocks.{n}{stated}" for n in (0, 1, 3))
    models = load(f"timm/{name}@{layers}", pretrained=False, arguments=arguments)
    features, batch = run(models)
    module = whole(models[0])
    with torch.no_grad():
        intermediates = module.forward_intermediates(
            torch.from_numpy(batch), indices=[0, 1, 3], norm=False, intermediates_only=True,
            output_fmt="NCHW", return_prefix_tokens=True,
        )  # fmt: skip
    for layer, maps in zip(features, intermediates, strict=True):
        patches, before = maps
        mean, first = pool_map(patches.numpy()), before[:, 0].numpy()
        both = np.concatenate([first, mean], axis=1)
        close(features[layer], {"mean": mean, "cls": first, "both": both}[pooling])
    assert {model.info.pooling for model in models if isinstance(model, Model)} == {pooling}


@pytest.fixture
def build(torch: Any) -> Any:
    """Build a network whose parts cover every kind of output."""

    class Parts(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.conv = torch.nn.Conv2d(3, 4, 1)
            self.twice = torch.nn.ReLU(inplace=True)
            self.tuple = Apply(lambda x: (None, x + 1, x))
            self.mapping = Apply(lambda x: {"a": 1, "b": x + 2})
            self.integers = Apply(lambda x: (x > 0).long())
            self.nothing = Apply(lambda x: "text")
            self.infinite = Apply(lambda x: x.flatten(1) / 0)
            self.scalar = Apply(lambda x: x.mean())
            self.noise = Apply(lambda x: torch.randn_like(x).flatten(1))
            self.unused = torch.nn.Linear(2, 2)
            self.last = Apply(mean)

        def forward(self, x: Any) -> Any:
            x = self.conv(x)
            for part in (self.tuple, self.mapping, self.integers, self.nothing, self.infinite,
                         self.scalar, self.noise):  # fmt: skip
                part(x)
            x = self.twice(x - 0.1)
            x = self.twice(x * 2)
            x += 1  # in place
            return self.last(x)

    def mean(x: Any) -> Any:
        calls.append(1)
        return x.mean((2, 3))

    class Apply(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, function: Any) -> None:
            super().__init__()
            self.function = function

        def forward(self, x: Any) -> Any:
            return self.function(x)

    calls: list[int] = []
    torch.manual_seed(0)
    module = Parts()
    preprocessing = square(8, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
    built = Built(module, lambda parts, batch: (parts(batch), None), preprocessing, "parts")
    built.module.calls = calls
    return built


def layer(name: str, **fields: Any) -> ModelSpec:
    return ModelSpec(f"net@{name}", "timm/net", layer=name, **fields)


def test_kinds_of_outputs(torch: Any, build: Any) -> None:
    names = ["conv", "tuple", "mapping", "twice"]
    models = assemble_layers(build, [layer(name) for name in names])
    features, batch = run([*models])
    conv = build.module.conv(torch.from_numpy(batch)).detach().numpy()
    expected = {
        "conv": conv,
        "tuple": conv + 1,
        "mapping": conv + 2,
        "twice": 2 * np.maximum(conv - 0.1, 0),  # the last call, before what follows in place
    }
    for name in names:
        close(features[name], pool_map(expected[name]))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("conf", r"there is no layer 'conf'; did you mean conv\?"),
        ("integers", "layer 'integers' gives integers, not features"),
        ("nothing", "layer 'nothing' gives no tensor"),
        ("unused", "layer 'unused' is not called in the forward pass"),
        ("scalar", r"layer 'scalar' gives an output of shape \(\) for 2 images"),
        ("infinite", "returns NaN or infinite features"),
        ("noise", "returns different features each time"),
    ],
)
def test_a_layer_that_cannot_be_used_leaves_the_others(build: Any, name: str, words: str) -> None:
    good, bad = assemble_layers(build, [layer("conv"), layer(name)])
    assert isinstance(good, TorchModel)
    assert isinstance(bad, InputError)
    assert str(bad).startswith(f"model 'net@{name}'")
    assert "\n" not in str(bad)
    with pytest.raises(InputError, match=words):
        only_one(assemble_layers(build, [layer(name)]))


def test_the_pass_ends_after_the_last_layer(build: Any) -> None:
    early = only_one(assemble_layers(build, [layer("conv")]))
    build.module.calls.clear()
    early(noise(2, 8))
    assert build.module.calls == []
    both = assemble_layers(build, [layer("conv"), ModelSpec("net", "timm/net")])
    build.module.calls.clear()
    run([*both])
    assert build.module.calls == [1]
