"""Layers of PyTorch networks, against what the libraries themselves return for them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.oracles.pooling import pool_map, pool_tokens
from tests.zoo.data import SQUASH, VIT, noise, save_checkpoint

from oodzoo.errors import InputError
from oodzoo.zoo import Model, ModelSpec, load_model
from oodzoo.zoo.layers import all_layers, expand_layers
from oodzoo.zoo.layers_torch import stages
from oodzoo.zoo.model import NetworkModel, collect_together, launch_together
from oodzoo.zoo.preprocessing import square
from oodzoo.zoo.sources import load_network
from oodzoo.zoo.torch_model import Built, TorchModel, assemble, assemble_layers

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
    return model.network._module  # type: ignore[attr-defined]


# --- timm -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments", "stated", "pooling"),
    [
        ("test_vit", None, "", "cls"),
        ("test_vit", {"reg_tokens": 4}, "", "cls"),
        ("test_vit2", None, "", "mean"),  # register tokens, but no class token
        ("test_vit", None, ":mean", "mean"),
        ("test_vit", {"reg_tokens": 4}, ":mean", "mean"),
        ("test_vit", None, ":both", "both"),
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


@pytest.mark.parametrize(
    ("name", "layers"),
    [
        ("test_resnet", ["layer1", "layer2", "layer3", "layer4"]),
        ("test_convnext", ["stages.0", "stages.1", "stages.2", "stages.3"]),
        ("test_efficientnet", ["blocks.0", "blocks.1", "blocks.2"]),
        ("swin_tiny_patch4_window7_224", ["layers.0", "layers.2"]),  # channels last
    ],
)
def test_stages_of_other_networks(timm: Any, torch: Any, name: str, layers: list[str]) -> None:
    models = load(f"timm/{name}@{'+'.join(layers)}", pretrained=False)
    features, batch = run(models)
    module = whole(models[0])
    with torch.no_grad():
        maps = module.forward_intermediates(
            torch.from_numpy(batch), intermediates_only=True, output_fmt="NCHW"
        )
    oracles = [pool_map(each.numpy()) for each in maps]
    for layer in layers:
        found = features[layer]
        assert any(
            found.shape == oracle.shape and np.allclose(found, oracle, rtol=1e-4, atol=1e-5)
            for oracle in oracles
        ), layer


def test_features_beside_layers_are_those_of_the_model_alone(timm: Any) -> None:
    source = "timm/test_vit"
    plain = load(source, pretrained=False)
    both = load(f"{source}@all", pretrained=False)
    np.testing.assert_array_equal(run(plain)[0][None], run(both)[0][None])
    (alone,) = plain
    assert isinstance(alone, Model)
    assert isinstance(both[0], Model)
    assert alone.info == both[0].info


def test_a_layer_alone_equals_itself_beside_others(timm: Any) -> None:
    source = "timm/test_vit@blocks."
    (alone,) = load(f"{source}2", pretrained=False)
    together = load(f"{source}0+blocks.2+blocks.3", pretrained=False)
    np.testing.assert_array_equal(run([alone])[0]["blocks.2"], run(together)[0]["blocks.2"])
    assert isinstance(alone, Model)
    assert isinstance(together[1], Model)
    assert alone.info == together[1].info


# --- torchvision, transformers, open_clip ---------------------------------------------------------


def test_layers_of_torchvision(torchvision: Any, torch: Any) -> None:
    from torchvision.models.feature_extraction import create_feature_extractor

    names = {"layer1": "1", "layer3.0": "2", "layer4": "3", "avgpool": "4"}
    models = load(f"torchvision/resnet18@{'+'.join(names)}", pretrained=False, input_size=64)
    features, batch = run(models)
    extractor = create_feature_extractor(whole(models[0])["backbone"], names)
    with torch.no_grad():
        expected = extractor(torch.from_numpy(batch))
    for layer, key in names.items():
        close(features[layer], pool_map(expected[key].numpy()))


def test_layers_of_transformers(transformers: Any, torch: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = transformers.ViTConfig(**VIT)
    kind = transformers.ViTForImageClassification
    reference = save_checkpoint(transformers, kind(config), tmp_path, SQUASH)
    names = all_layers(ModelSpec("net", f"hf/{tmp_path}"))
    assert len(names) == 2
    features, batch = run(load(f"hf/{tmp_path}@{'+'.join(names)}"))
    with torch.no_grad():
        hidden = reference(
            pixel_values=torch.from_numpy(batch), output_hidden_states=True
        ).hidden_states
    for name, tokens in zip(names, hidden[1:], strict=True):
        close(features[name], pool_tokens(tokens.numpy(), "cls", 1))


def test_layers_of_open_clip(open_clip: Any, torch: Any) -> None:
    layers = ["transformer.resblocks.1", "transformer.resblocks.11"]
    models = load(f"open_clip/ViT-B-32/openai@{'+'.join(layers)}", pretrained=False)
    features, batch = run(models)
    with torch.no_grad():
        maps = whole(models[0]).forward_intermediates(
            torch.from_numpy(batch), indices=[1, 11], output_extra_tokens=True
        )
    for layer, prefix in zip(layers, maps["image_intermediates_prefix"], strict=True):
        close(features[layer], prefix[:, 0].numpy())


# --- modules of our own ---------------------------------------------------------------------------


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
        ("zzzzz", "there is no layer 'zzzzz'; it has "),
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
        assemble(build, layer(name))


def test_a_stated_dimension_is_checked(build: Any) -> None:
    assert assemble(build, layer("conv", feature_dim=4)).info.feature_dim == 4
    with pytest.raises(InputError, match="returns 4 features, but its zoo file sets"):
        assemble(build, layer("conv", feature_dim=5))


def test_the_pass_ends_after_the_last_layer(build: Any) -> None:
    early = assemble(build, layer("conv"))
    build.module.calls.clear()
    early(noise(2, 8))
    assert build.module.calls == []
    both = assemble_layers(build, [layer("conv"), ModelSpec("net", "timm/net")])
    build.module.calls.clear()
    run([*both])
    assert build.module.calls == [1]


def test_shares_of_the_time_grow_with_depth(build: Any) -> None:
    specs = [layer("twice"), layer("conv"), ModelSpec("net", "timm/net")]
    models = [m for m in assemble_layers(build, specs) if isinstance(m, NetworkModel)]
    network = models[0].network
    shares = network.collect(network.launch(network.prepare(noise(2, 8)), models)).shares
    assert 0 < shares[1] < shares[0] < shares[2] == 1
    alone = network.collect(network.launch(network.prepare(noise(2, 8)), models[1:2])).shares
    assert 0.5 < alone[0] <= 1


def test_layer_and_pooling_are_part_of_the_identity(timm: Any) -> None:
    source = "timm/test_vit"
    texts = ["", "@blocks.1", "@blocks.2", "@blocks.1:mean", "@blocks.1:both", "@blocks.1:cls"]
    prints = []
    for text in texts:
        (model,) = load(source + text, pretrained=False)
        assert isinstance(model, Model)
        prints.append(model.info.fingerprint)
    assert prints[1] == prints[5]  # what the default is
    assert len(set(prints)) == 5


def test_the_fingerprint_of_a_model_without_a_layer_has_not_changed(build: Any) -> None:
    """Stores in use have this one: the identity and the weights, in this form."""
    import hashlib

    from oodzoo.zoo.torch_model import weights_digest

    digest = weights_digest(build.module)
    expected = hashlib.sha256(f"parts\n{digest}".encode()).hexdigest()
    assert assemble(build, ModelSpec("net", "timm/net")).info.fingerprint == expected


def test_half_precision(build: Any) -> None:
    exact = assemble(build, layer("conv"))(noise(2, 8)).features
    half = assemble(build, layer("conv"), precision="bfloat16")(noise(2, 8)).features
    assert half.dtype == np.float32
    np.testing.assert_allclose(half, exact, rtol=0.05, atol=0.02)


def test_a_source_without_layers(tmp_path: Path) -> None:
    spec = ModelSpec("net", f"sentence-transformers/{tmp_path}", layer="x")
    with pytest.raises(InputError, match="has no layers to choose from; remove '@x'"):
        load_model(spec)


def test_a_module_without_parts(torch: Any) -> None:
    assert stages(torch.nn.Linear(2, 2)) == []
    assert stages(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())) == ["0"]
