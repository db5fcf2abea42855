from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.zoo.data import noise

from oodzoo.core.errors import InputError
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


def _published(torch: Any, kind: str, weights: dict[str, Any]) -> dict[str, Any]:
    """Weights of a ResNet in the form in which checkpoints are published."""
    backbone = {key: value for key, value in weights.items() if not key.startswith("fc.")}
    other = {key: 2 * value for key, value in backbone.items()}  # a moving average of the weights

    def named(prefix: str, tensors: dict[str, Any]) -> dict[str, Any]:
        return {prefix + key: value for key, value in tensors.items()}

    extra = {
        "epoch": 9,
        "arch": "resnet18",
        "optimizer": {"state": {}, "param_groups": [{"lr": 0}]},
    }
    three = torch.zeros(3, 1, 1)
    return {
        "plain": weights,
        "swav": named("module.", backbone | {"prototypes.weight": three}),
        "moco": extra
        | {
            "state_dict": {"module.queue": three}
            | named("module.encoder_q.", backbone | {"fc.0.weight": three})
            | named("module.encoder_k.", other | {"fc.0.weight": three})
        },
        "insdis": {"model": named("module.encoder.", backbone | {"fc.weight": three})},
        "robustness": extra
        | {
            "model": {"module.normalizer.new_mean": three}
            | named("module.model.", weights)
            | {"module.attacker.normalize.new_mean": three}
            | named("module.attacker.model.", weights),
            "schedule": {"lr_lambdas": [None]},
            "amp": None,
        },
    }[kind]


@pytest.mark.parametrize("kind", ["plain", "swav", "moco", "insdis", "robustness"])
@pytest.mark.parametrize("local", [True, False])
def test_weights_in_a_published_checkpoint_are_loaded(
    torchvision: Any, torch: Any, tmp_path: Path, monkeypatch: Any, kind: str, local: bool
) -> None:
    torch.manual_seed(1)
    reference = torchvision.models.resnet18().eval()
    where = "./w.pth.tar" if local else "https://example.org/some/w.pth.tar"
    folder = tmp_path if local else tmp_path / "hub" / "checkpoints"
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(_published(torch, kind, reference.state_dict()), folder / "w.pth.tar")
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    spec = _spec(f"resnet18/{where}", folder=tmp_path)
    model: Any = load_model(spec)
    pixels = noise(2, 224)
    with torch.no_grad():
        logits = reference(torch.from_numpy(model.info.preprocessing.normalise(pixels)))
        reference.fc = torch.nn.Identity()
        features = reference(torch.from_numpy(model.info.preprocessing.normalise(pixels)))
    found = model(pixels)
    np.testing.assert_allclose(found.features, features, rtol=1e-4, atol=1e-5)
    if kind in ("plain", "robustness"):
        np.testing.assert_allclose(found.logits, logits, rtol=1e-4, atol=1e-5)
    else:
        assert found.logits is None
    assert model.info.pretraining == "w.pth.tar"
    with pytest.raises(InputError, match=r"has the sha256 .* but its zoo file sets 000000000000"):
        load_model(replace(spec, sha256="0" * 64))


def test_checkpoints_that_cannot_be_loaded(torchvision: Any, torch: Any, tmp_path: Path) -> None:
    """Nothing in a checkpoint is run."""
    ran = tmp_path / "ran"

    class Code:
        def __reduce__(self) -> Any:
            return Path.touch, (ran,)

    weights = torchvision.models.resnet18().state_dict()
    torch.save({"state_dict": weights, "opt": Code()}, tmp_path / "code.pth")
    torch.save(weights, tmp_path / "small.pth")
    torch.save([1], tmp_path / "list.pth")
    for where, message in {
        "resnet18/./code.pth": "cannot load .* Weights only load failed",
        "resnet50/./small.pth": "has not all weights of torchvision's resnet50; it has names such "
        "as 'conv1.weight'",
        "resnet50/./list.pth": "it has no names",
        "resnet50/./none.pth": "cannot read .*none.pth': No such file",
        "resnet50/swav.pth": "'swav.pth' .* is neither a URL .* nor a path that begins with",
    }.items():
        with pytest.raises(InputError, match=message):
            load_model(_spec(where, folder=tmp_path))
    assert not ran.exists()
