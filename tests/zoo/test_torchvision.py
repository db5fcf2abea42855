from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oodzoo.errors import InputError
from oodzoo.zoo import load_model
from oodzoo.zoo import torchvision as source
from oodzoo.zoo.spec import ModelSpec
from oodzoo.zoo.torch_model import assemble


def _spec(where: str, **fields: Any) -> ModelSpec:
    return ModelSpec(name="model", source=f"torchvision/{where}", **fields)


def _pixels(side: int) -> Any:
    return np.random.default_rng(0).integers(0, 256, (2, side, side, 3), dtype=np.uint8)


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
    model = torchvision.models.get_model(name, **options if name == "googlenet" else {}).eval()
    seen: list[Any] = []
    model.get_submodule(head).register_forward_pre_hook(lambda _, inputs: seen.extend(inputs))
    network = assemble(built, _spec(name, input_size=64))
    pixels = _pixels(64)
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in _normalisation(network))
    with torch.no_grad():
        logits = model(
            (torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous() / 255 - mean) / std
        )
    features = seen[0].mean((2, 3)) if seen[0].ndim == 4 else seen[0]
    outputs: Any = network(pixels)
    np.testing.assert_allclose(outputs.features, features, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(outputs.logits, logits, rtol=1e-5, atol=1e-6)
    assert network.info.parameters == sum(p.numel() for p in model.parameters())


def _normalisation(network: Any) -> tuple[Any, Any]:
    return network.info.preprocessing.mean, network.info.preprocessing.std


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
def test_preprocessing_gives_the_tensor_torchvision_gives(
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


def test_another_size_keeps_the_proportion_of_the_cut(torchvision: Any) -> None:
    spec = _spec("resnet18.IMAGENET1K_V1", input_size=112)
    geometry = source.build(spec, pretrained=False).preprocessing.geometry
    assert (geometry.resize, geometry.crop) == ((128, 128), (112, 112))


def test_weights_in_the_cache_are_loaded(
    torchvision: Any, torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(1)
    model = torchvision.models.shufflenet_v2_x0_5().eval()
    weights = torchvision.models.ShuffleNet_V2_X0_5_Weights.IMAGENET1K_V1
    (tmp_path / "hub" / "checkpoints").mkdir(parents=True)
    torch.save(model.state_dict(), tmp_path / "hub" / "checkpoints" / Path(weights.url).name)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    network: Any = load_model(_spec("shufflenet_v2_x0_5.IMAGENET1K_V1"))
    pixels = _pixels(224)
    batch = torch.from_numpy(network.info.preprocessing.normalise(pixels))
    with torch.no_grad():
        np.testing.assert_allclose(network(pixels).logits, model(batch), rtol=1e-4, atol=1e-5)
    assert network.info.pretraining == "IMAGENET1K_V1"


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("resnet5", "has no classification model 'resnet5'; did you mean .*resnet50"),
        ("resnet50.V9", "no weights 'V9' for resnet50; it has IMAGENET1K_V1, IMAGENET1K_V2"),
        ("fasterrcnn_resnet50_fpn", "has no classification model"),
    ],
)
def test_wrong_names(torchvision: Any, where: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_model(_spec(where))


def test_torchvision_is_repaired_only_where_it_does_not_import(torchvision: Any) -> None:
    code = """
import sys
try:
    import torchvision as plain
except RuntimeError:
    plain = None
from oodzoo.zoo import torchvision_import
repaired = torchvision_import.import_torchvision(extra="torchvision", purpose="this test")
assert repaired is sys.modules["torchvision"]
assert repaired.models.resnet18 and repaired.transforms.CenterCrop
if plain is None:
    assert torchvision_import._declarations
    try:
        repaired.ops.nms(*[__import__("torch").zeros(1, 4)] * 2, 0.5)
    except RuntimeError as error:
        assert "custom C++ ops" in str(error)
    else:
        raise AssertionError("an operator without implementation ran")
else:
    assert repaired is plain and not torchvision_import._declarations
print("well")
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.stdout == "well\n", run.stderr
