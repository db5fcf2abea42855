"""Real ONNX models as PyTorch modules, alone and in a predictor of real images."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.zoo.small_onnx import require_converter

import oodzoo
from oodzoo.zoo import load_model, load_zoo
from oodzoo.zoo.sources import load_trainable

onnx = require_converter()
SHARED = Path(os.environ.get("OODZOO_SHARED", "../shared")).resolve()
DATA = SHARED / "data" / "pacs_mini"
ZOO = SHARED / "zoo" / "zoo.toml"
SMALL = ("doodlenet_quickdraw", "mobilenet_v1_025_96_vww", "resnet20_cifar10")

pytestmark = pytest.mark.skipif(not ZOO.is_file(), reason=f"there is no {ZOO.name} beside us")


def names() -> list[str]:
    """All models, or small ones."""
    if os.environ.get("OODZOO_MODELS", "small") != "all" or not ZOO.is_file():
        return list(SMALL)
    return [spec.name for spec in load_zoo(ZOO)]


@pytest.mark.parametrize("name", names())
def test_a_network_as_a_module(name: str, tmp_path: Path) -> None:
    import torch

    (spec,) = (spec for spec in load_zoo(ZOO) if spec.name == name)
    model = load_model(spec)
    made = load_trainable(spec, model.info.preprocessing)
    crop = made.preprocessing.geometry.crop
    pixels = np.random.default_rng(0).integers(0, 256, (2, *crop, 3), np.uint8)
    features = made.module(torch.from_numpy(made.preprocessing.normalise(pixels)))
    expected = model(pixels).features
    limit = 1e-4 * np.abs(expected).max()
    np.testing.assert_allclose(features.detach().numpy(), expected, atol=limit)
    (features**2).sum().backward()
    assert all(weight.grad is not None for weight in made.module.parameters())
    made.write_onnx(tmp_path / "net.onnx")
    written = onnx.load(tmp_path / "net.onnx").graph.initializer
    floats = [np.prod(each.dims) for each in written if each.data_type == onnx.TensorProto.FLOAT]
    weights = sum(weight.numel() for weight in made.module.parameters())
    assert weights == sum(size for size in floats if size > 1)


def test_a_predictor_of_real_images(tmp_path: Path) -> None:
    import torch

    zoo = [spec for spec in load_zoo(ZOO) if spec.name in SMALL]
    data = oodzoo.ImageDomains(DATA).sample(200)
    store = oodzoo.extract(data, zoo, tmp_path / "store", device="cpu")
    predictor = oodzoo.fit(store, models=list(SMALL))
    module = predictor.to_torch()
    images: list[Any] = sorted(DATA.rglob("*.jpg"))[::50][:20]
    pixels = predictor.preprocess(images)
    assert len(pixels) == 3
    with torch.no_grad():
        logits = module({name: torch.from_numpy(array) for name, array in pixels.items()})
    found = logits.softmax(1).numpy()
    np.testing.assert_allclose(found, predictor.predict_proba(images), atol=1e-4)
