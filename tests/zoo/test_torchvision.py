from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.zoo.data import noise

from oodzoo.errors import InputError
from oodzoo.zoo import load_model
from oodzoo.zoo import torchvision as source
from oodzoo.zoo.spec import ModelSpec
from oodzoo.zoo.torch_model import assemble


def _spec(where: str, **fields: Any) -> ModelSpec:
    return ModelSpec(name="model", source=f"torchvision/{where}", **fields)


@pytest.mark.parametrize(
    ("name", "head"),
    [
        ("resnet18", "fc"),
        ("densenet121", "classifier"),
        ("mobilenet_v2", "classifier.1"),
        ("googlenet", "fc"),
        ("squeezenet1_1", "classifier.1"),
        ("swin_t", "head"),
    ],
)
def test_features_are_the_input_of_the_last_layer(
    torchvision: Any, torch: Any, name: str, head: str
) -> None:
    torch.manual_seed(0)
    built = source.build(_spec(name, input_size=64), pretrained=False)
    torch.manual_seed(0)
    options = {"transform_input": True, "init_weights": False, "aux_logits": False}
    reference = torchvision.models.get_model(name, **options if name == "googlenet" else {}).eval()
    seen: list[Any] = []
    reference.get_submodule(head).register_forward_pre_hook(lambda _, inputs: seen.extend(inputs))
    model = assemble(built, _spec(name, input_size=64))
    pixels = noise(2, 64)
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in _normalisation(model))
    with torch.no_grad():
        logits = reference(
            (torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous() / 255 - mean) / std
        )
    features = seen[0].mean((2, 3)) if seen[0].ndim == 4 else seen[0]
    outputs: Any = model(pixels)
    np.testing.assert_allclose(outputs.features, features, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(outputs.logits, logits, rtol=1e-5, atol=1e-6)
    assert model.info.parameters == sum(p.numel() for p in reference.parameters())


def _normalisation(model: Any) -> tuple[Any, Any]:
    return model.info.preprocessing.mean, model.info.preprocessing.std


@pytest.mark.parametrize(
    "where",
    [
        "resnet50.IMAGENET1K_V1",
        "resnet50",
        "efficientnet_b4",
        "inception_v3",
        "vit_b_16.IMAGENET1K_SWAG_E2E_V1",
        "swin_t",
    ],
)
def test_preprocessing_equals_torchvision(
    torchvision: Any, torch: Any, images: list[Any], where: str
) -> None:
    with torch.device("meta"):
        ours = source.build(_spec(where), pretrained=False).preprocessing
    name, _, weights = where.partition(".")
    theirs = torchvision.models.get_model_weights(name)[weights or "DEFAULT"].transforms()
    for image in images:
        np.testing.assert_allclose(
            ours([image])[0], theirs(image), atol=1e-6, err_msg=str(image.size)
        )


def test_input_size_keeps_the_crop_ratio(torchvision: Any) -> None:
    spec = _spec("resnet18.IMAGENET1K_V1", input_size=112)
    geometry = source.build(spec, pretrained=False).preprocessing.geometry
    assert (geometry.resize, geometry.crop) == ((128, 128), (112, 112))


def test_weights_in_the_cache_are_loaded(
    torchvision: Any, torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(1)
    reference = torchvision.models.shufflenet_v2_x0_5().eval()
    weights = torchvision.models.ShuffleNet_V2_X0_5_Weights.IMAGENET1K_V1
    (tmp_path / "hub" / "checkpoints").mkdir(parents=True)
    torch.save(reference.state_dict(), tmp_path / "hub" / "checkpoints" / Path(weights.url).name)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    model: Any = load_model(_spec("shufflenet_v2_x0_5.IMAGENET1K_V1"))
    pixels = noise(2, 224)
    batch = torch.from_numpy(model.info.preprocessing.normalise(pixels))
    with torch.no_grad():
        np.testing.assert_allclose(model(pixels).logits, reference(batch), rtol=1e-4, atol=1e-5)
    assert model.info.pretraining == "IMAGENET1K_V1"


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("resnet5", "has no classification model 'resnet5'; did you mean .*resnet50"),
        ("resnet50.V9", "no weights 'V9' for resnet50; it has IMAGENET1K_V1, IMAGENET1K_V2"),
        ("fasterrcnn_resnet50_fpn", "has no classification model"),
    ],
)
def test_unknown_names(torchvision: Any, where: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_model(_spec(where))
