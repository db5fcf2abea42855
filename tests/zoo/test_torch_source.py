"""Models of PyTorch libraries as modules that return features."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.zoo.data import noise

from oodzoo.errors import InputError
from oodzoo.zoo import ModelSpec, load_model
from oodzoo.zoo.layers import with_layer
from oodzoo.zoo.sources import load_trainable, load_trainable_network

PIXELS = noise(3, 32)


@pytest.fixture
def spec(timm: Any) -> ModelSpec:
    return ModelSpec("tiny", "timm/test_resnet", pretrained=False, input_size=32)


def test_features_are_those_of_the_model(spec: ModelSpec) -> None:
    import torch

    model = load_model(spec)
    made = load_trainable(spec, model.info.preprocessing)
    assert not made.module.training
    assert (made.name, made.feature_dim) == ("tiny", model.info.feature_dim)
    batch = torch.from_numpy(made.preprocessing.normalise(PIXELS))
    found = made.module(batch)
    np.testing.assert_allclose(found.detach().numpy(), model(PIXELS).features, atol=1e-5)
    (found**2).sum().backward()
    frozen = {name for name, weight in made.module.named_parameters() if not weight.requires_grad}
    assert frozen == {"network.fc.weight", "network.fc.bias"}
    for name, weight in made.module.named_parameters():
        assert (weight.grad is None) is (name in frozen), name


def test_changed_weights_are_written(spec: ModelSpec, tmp_path: Path) -> None:
    import torch

    pytest.importorskip("onnxscript", reason="torch.onnx needs it")
    made = load_trainable(spec, load_model(spec).info.preprocessing)
    with torch.no_grad():
        for weight in made.module.parameters():
            weight.mul_(0.9)
    made.write_onnx(tmp_path / "net.onnx")
    preprocessing = made.preprocessing
    stated: dict[str, Any] = {"mean": preprocessing.mean, "std": preprocessing.std}
    written = load_model(ModelSpec("net", "onnx/net.onnx", folder=tmp_path, **stated))
    with torch.no_grad():
        found = made.module(torch.from_numpy(preprocessing.normalise(PIXELS)))
    np.testing.assert_allclose(written(PIXELS).features, found.numpy(), atol=1e-5)


def test_layers_share_one_network(spec: ModelSpec) -> None:
    import torch

    specs = [with_layer(spec, "layer2", None), spec, with_layer(spec, "layer1", None)]
    models = [load_model(each) for each in specs]
    preprocessing = models[0].info.preprocessing
    network = load_trainable_network(specs, preprocessing)
    batch = torch.from_numpy(preprocessing.normalise(PIXELS))
    for features, model in zip(network(batch), models, strict=True):
        np.testing.assert_allclose(features.detach().numpy(), model(PIXELS).features, atol=1e-5)


def test_what_follows_a_layer_is_frozen_and_not_run(spec: ModelSpec) -> None:
    import torch

    layer = with_layer(spec, "layer1", None)
    made = load_trainable(layer, load_model(layer).info.preprocessing)
    made.module.network.layer2.forward = None  # cannot be called
    batch = torch.from_numpy(made.preprocessing.normalise(PIXELS))
    assert made.module(batch).shape == (3, made.feature_dim)
    trained = {name for name, weight in made.module.named_parameters() if weight.requires_grad}
    assert any(name.startswith("network.layer1.") for name in trained)
    assert not any(name.startswith("network.layer2.") for name in trained)


def test_an_unknown_layer(spec: ModelSpec) -> None:
    preprocessing = load_model(spec).info.preprocessing
    with pytest.raises(InputError, match="model 'tiny@layer9': there is no layer 'layer9'"):
        load_trainable(with_layer(spec, "layer9", None), preprocessing)
