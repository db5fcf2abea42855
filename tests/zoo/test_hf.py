from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.zoo.data import CROP, SQUASH, VIT, noise, save_checkpoint

from oodzoo.core.errors import InputError
from oodzoo.zoo import load_model, load_zoo
from oodzoo.zoo.spec import ModelSpec

_TEXT = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "vocab_size": 50,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_STAGES = {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1]}


def _load(folder: Path, **fields: Any) -> Any:
    return load_model(ModelSpec("model", f"hf/{folder}", **fields))


def _run(torch: Any, model: Any) -> tuple[Any, Any]:
    """The outputs of a model for noise, and the same noise as a normalised tensor."""
    pixels = noise(2, model.info.preprocessing.geometry.crop[0])
    return model(pixels), torch.from_numpy(model.info.preprocessing.normalise(pixels))


@pytest.mark.parametrize(
    ("kind", "config", "processor", "head"),
    [
        ("ViTForImageClassification", ("ViTConfig", VIT), SQUASH, "classifier"),
        ("BeitForImageClassification", ("BeitConfig", VIT), SQUASH, "classifier"),
        ("Dinov2ForImageClassification", ("Dinov2Config", VIT), CROP, "classifier"),
        (
            "ConvNextV2ForImageClassification",
            ("ConvNextV2Config", _STAGES),
            ("ConvNextImageProcessor", {"size": {"shortest_edge": 64}}),
            "classifier",
        ),
        (
            "ResNetForImageClassification",
            ("ResNetConfig", {**_STAGES, "embedding_size": 8, "layer_type": "basic"}),
            CROP,
            "classifier.1",
        ),
    ],
)
def test_classifier_returns_the_input_of_its_head_and_logits(
    transformers: Any, torch: Any, tmp_path: Path, kind: str, config: Any, processor: Any, head: str
) -> None:
    torch.manual_seed(0)
    settings = getattr(transformers, config[0])(**config[1], num_labels=7)
    reference = save_checkpoint(
        transformers, getattr(transformers, kind)(settings), tmp_path, processor
    )
    seen: list[Any] = []
    reference.get_submodule(head).register_forward_pre_hook(lambda _, inputs: seen.extend(inputs))
    model = _load(tmp_path)
    outputs, batch = _run(torch, model)
    with torch.no_grad():
        logits = reference(pixel_values=batch).logits
    np.testing.assert_allclose(outputs.features, seen[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(outputs.logits, logits, rtol=1e-4, atol=1e-5)
    assert model.info.n_logits == 7
    assert model.info.parameters == sum(p.numel() for p in reference.parameters())


@pytest.mark.parametrize("kind", ["CLIP", "Siglip"])
def test_image_text_model_returns_image_embeddings(
    transformers: Any, torch: Any, tmp_path: Path, kind: str
) -> None:
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(
        text_config=_TEXT, vision_config=VIT, **({"projection_dim": 16} if kind == "CLIP" else {})
    )
    reference = getattr(transformers, f"{kind}Model")(config)
    save_checkpoint(transformers, reference, tmp_path, SQUASH)
    model = _load(tmp_path)
    outputs, batch = _run(torch, model)
    with torch.no_grad():
        pooled = reference.vision_model(pixel_values=batch).pooler_output
        expected = reference.visual_projection(pooled) if kind == "CLIP" else pooled
    np.testing.assert_allclose(outputs.features, expected, rtol=1e-4, atol=1e-5)
    assert outputs.logits is None
    image_parts = [reference.vision_model] + (
        [reference.visual_projection] if kind == "CLIP" else []
    )
    assert model.info.parameters == sum(
        p.numel() for part in image_parts for p in part.parameters()
    )


@pytest.mark.parametrize(
    ("kind", "options", "taken"),
    [
        ("ViT", {}, "pooler"),
        ("ViT", {"add_pooling_layer": False}, "class token"),
        ("Dinov2", {}, "pooler"),
        ("ViTMAE", {}, "class token"),
    ],
)
def test_backbone_returns_pooled_output_but_never_a_random_pooler(
    transformers: Any, torch: Any, tmp_path: Path, kind: str, options: Any, taken: str
) -> None:
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**VIT)
    reference = getattr(transformers, f"{kind}Model")(config, **options)
    save_checkpoint(transformers, reference, tmp_path, SQUASH)
    model = _load(tmp_path)
    outputs, batch = _run(torch, model)
    reference.config.mask_ratio = 0.0  # of ViTMAE, which otherwise hides most of the image
    with torch.no_grad():
        given = reference(pixel_values=batch)
    expected = given.pooler_output if taken == "pooler" else given.last_hidden_state[:, 0]
    np.testing.assert_allclose(outputs.features, expected, rtol=1e-4, atol=1e-5)
    assert _load(tmp_path).info.fingerprint == model.info.fingerprint


def test_checkpoint_with_missing_weights_is_rejected(
    transformers: Any, torch: Any, tmp_path: Path
) -> None:
    save_checkpoint(
        transformers, transformers.ViTModel(transformers.ViTConfig(**VIT)), tmp_path, SQUASH
    )
    config = transformers.ViTConfig(**VIT, architectures=["ViTForImageClassification"])
    config.save_pretrained(tmp_path)
    with pytest.raises(InputError, match=r"lacks 2 weights of ViTForImageClassification"):
        _load(tmp_path)


def test_without_a_processor_a_zoo_file_must_state_the_preprocessing(
    transformers: Any, torch: Any, tmp_path: Path
) -> None:
    transformers.Dinov2Model(transformers.Dinov2Config(**VIT)).save_pretrained(tmp_path / "net")
    with pytest.raises(InputError, match="has no usable image processor"):
        _load(tmp_path / "net")
    (tmp_path / "zoo.toml").write_text(
        '[[model]]\nname = "mine"\nsource = "hf/./net"\ninput_size = 32\n'
        "mean = [0.5, 0.5, 0.5]\nstd = [0.5, 0.5, 0.5]\n"
    )
    info = load_model(load_zoo(tmp_path / "zoo.toml")[0]).info
    assert info.preprocessing.geometry.crop == (32, 32)


def test_torchvision_is_not_needed(transformers: Any, torch: Any, tmp_path: Path) -> None:
    save_checkpoint(
        transformers, transformers.ViTModel(transformers.ViTConfig(**VIT)), tmp_path, SQUASH
    )
    code = f"""
import importlib.util, sys
sys.modules["torchvision"] = None
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "torchvision" else find(name, *rest)
from oodzoo.zoo import load_model, load_zoo
print(load_model(load_zoo({f"hf/{tmp_path}"!r})[0]).info.feature_dim)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.stdout == "32\n", run.stderr


def test_a_processor_that_does_more(transformers: Any, tmp_path: Path) -> None:
    network = transformers.ViTModel(transformers.ViTConfig(**VIT))
    save_checkpoint(transformers, network, tmp_path, ("EfficientNetImageProcessor", {}))
    with pytest.raises(InputError, match=r"EfficientNetImageProcessor.* does more than resize"):
        _load(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"layers": 3}, "has no 'layers'; remove it from the arguments"),
        ({"hidden_size": 30}, "; check the arguments"),
    ],
)
def test_wrong_arguments(
    transformers: Any, tmp_path: Path, arguments: dict[str, Any], words: str
) -> None:
    network = transformers.ViTModel(transformers.ViTConfig(**VIT))
    save_checkpoint(transformers, network, tmp_path, SQUASH)
    with pytest.raises(InputError, match=words):
        _load(tmp_path, arguments=arguments)
