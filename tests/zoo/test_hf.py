from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oodzoo.errors import InputError
from oodzoo.zoo import load_model, load_zoo
from oodzoo.zoo.hf_preprocessing import image_preprocessing
from oodzoo.zoo.spec import ModelSpec

_VIT = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "image_size": 32,
    "patch_size": 8,
}
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
_SQUARE = ("ViTImageProcessor", {"size": {"height": 32, "width": 32}})
_CUT = (
    "BitImageProcessor",
    {"size": {"shortest_edge": 37}, "crop_size": {"height": 32, "width": 32}},
)


def _processor(transformers: Any, kind: str, settings: dict[str, Any]) -> Any:
    """Pillow's variant: its name in transformers 5, or in transformers 4."""
    return (getattr(transformers, kind + "Pil", None) or getattr(transformers, kind))(**settings)


def _save(transformers: Any, model: Any, folder: Path, processor: tuple[str, Any]) -> Any:
    model.eval().save_pretrained(folder)
    _processor(transformers, *processor).save_pretrained(folder)
    return model


def _load(folder: Path, **fields: Any) -> Any:
    return load_model(ModelSpec("model", f"hf/{folder}", **fields))


def _run(torch: Any, network: Any) -> tuple[Any, Any]:
    """What a model gives for noise, and the same noise as a normalised tensor."""
    side = network.info.preprocessing.geometry.crop[0]
    pixels = np.random.default_rng(0).integers(0, 256, (2, side, side, 3), dtype=np.uint8)
    return network(pixels), torch.from_numpy(network.info.preprocessing.normalise(pixels))


@pytest.mark.parametrize(
    ("kind", "config", "processor", "head"),
    [
        ("ViTForImageClassification", ("ViTConfig", _VIT), _SQUARE, "classifier"),
        ("BeitForImageClassification", ("BeitConfig", _VIT), _SQUARE, "classifier"),
        ("Dinov2ForImageClassification", ("Dinov2Config", _VIT), _CUT, "classifier"),
        (
            "ConvNextV2ForImageClassification",
            ("ConvNextV2Config", _STAGES),
            ("ConvNextImageProcessor", {"size": {"shortest_edge": 64}}),
            "classifier",
        ),
        (
            "ResNetForImageClassification",
            ("ResNetConfig", {**_STAGES, "embedding_size": 8, "layer_type": "basic"}),
            _CUT,
            "classifier.1",
        ),
    ],
)
def test_a_classifier_gives_what_goes_into_its_head_and_what_comes_out(
    transformers: Any, torch: Any, tmp_path: Path, kind: str, config: Any, processor: Any, head: str
) -> None:
    torch.manual_seed(0)
    settings = getattr(transformers, config[0])(**config[1], num_labels=7)
    model = _save(transformers, getattr(transformers, kind)(settings), tmp_path, processor)
    seen: list[Any] = []
    model.get_submodule(head).register_forward_pre_hook(lambda _, inputs: seen.extend(inputs))
    network = _load(tmp_path)
    outputs, batch = _run(torch, network)
    with torch.no_grad():
        logits = model(pixel_values=batch).logits
    np.testing.assert_allclose(outputs.features, seen[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(outputs.logits, logits, rtol=1e-4, atol=1e-5)
    assert network.info.n_logits == 7
    assert network.info.parameters == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("kind", ["CLIP", "Siglip"])
def test_a_model_of_images_and_texts_gives_image_embeddings(
    transformers: Any, torch: Any, tmp_path: Path, kind: str
) -> None:
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(
        text_config=_TEXT, vision_config=_VIT, **({"projection_dim": 16} if kind == "CLIP" else {})
    )
    model = getattr(transformers, f"{kind}Model")(config)
    _save(transformers, model, tmp_path, _SQUARE)
    network = _load(tmp_path)
    outputs, batch = _run(torch, network)
    with torch.no_grad():
        pooled = model.vision_model(pixel_values=batch).pooler_output
        expected = model.visual_projection(pooled) if kind == "CLIP" else pooled
    np.testing.assert_allclose(outputs.features, expected, rtol=1e-4, atol=1e-5)
    assert outputs.logits is None
    image_parts = [model.vision_model] + ([model.visual_projection] if kind == "CLIP" else [])
    assert network.info.parameters == sum(
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
def test_a_backbone_gives_its_pooled_output_and_never_a_random_one(
    transformers: Any, torch: Any, tmp_path: Path, kind: str, options: Any, taken: str
) -> None:
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**_VIT)
    model = getattr(transformers, f"{kind}Model")(config, **options)
    _save(transformers, model, tmp_path, _SQUARE)
    network = _load(tmp_path)
    outputs, batch = _run(torch, network)
    model.config.mask_ratio = 0.0  # of ViTMAE, which otherwise hides most of the image
    with torch.no_grad():
        given = model(pixel_values=batch)
    expected = given.pooler_output if taken == "pooler" else given.last_hidden_state[:, 0]
    np.testing.assert_allclose(outputs.features, expected, rtol=1e-4, atol=1e-5)
    assert _load(tmp_path).info.fingerprint == network.info.fingerprint


def test_weights_that_the_checkpoint_lacks_are_not_made_up(
    transformers: Any, torch: Any, tmp_path: Path
) -> None:
    _save(transformers, transformers.ViTModel(transformers.ViTConfig(**_VIT)), tmp_path, _SQUARE)
    config = transformers.ViTConfig(**_VIT, architectures=["ViTForImageClassification"])
    config.save_pretrained(tmp_path)
    with pytest.raises(InputError, match=r"lacks 2 weights of ViTForImageClassification"):
        _load(tmp_path)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        _SQUARE,
        _CUT,
        ("CLIPImageProcessor", {}),
        ("SiglipImageProcessor", {}),
        ("ConvNextImageProcessor", {"size": {"shortest_edge": 224}, "crop_pct": 0.95}),
        ("ConvNextImageProcessor", {"size": {"shortest_edge": 384}}),
        ("BeitImageProcessor", {"do_center_crop": True, "crop_size": {"height": 99, "width": 95}}),
        ("ViTImageProcessor", {"do_normalize": False, "resample": 1}),
        ("ViTImageProcessor", {"rescale_factor": 1 / 127.5, "image_mean": [1, 1, 1]}),
        (
            "BitImageProcessor",
            {"size": {"shortest_edge": 30}, "crop_size": {"height": 33, "width": 41}},
        ),
    ],
)
def test_preprocessing_gives_the_tensor_the_processor_gives(
    transformers: Any, tmp_path: Path, images: list[Any], kind: str, settings: Any
) -> None:
    processor = _processor(transformers, kind, settings)
    processor.save_pretrained(tmp_path)
    spec = ModelSpec("model", f"hf/{tmp_path}")
    ours = image_preprocessing(transformers, str(tmp_path), spec)
    for image in images:
        theirs = processor(image, return_tensors="np")["pixel_values"]
        np.testing.assert_allclose(ours([image]), theirs, atol=1e-6, err_msg=str(image.size))


def test_a_processor_of_another_kind_is_refused(transformers: Any, tmp_path: Path) -> None:
    _processor(transformers, "EfficientNetImageProcessor", {}).save_pretrained(tmp_path)
    spec = ModelSpec("model", f"hf/{tmp_path}")
    with pytest.raises(InputError, match=r"EfficientNetImageProcessor.* does more than resize"):
        image_preprocessing(transformers, str(tmp_path), spec)


def test_without_a_processor_a_zoo_file_must_say_it_all(
    transformers: Any, torch: Any, tmp_path: Path
) -> None:
    transformers.Dinov2Model(transformers.Dinov2Config(**_VIT)).save_pretrained(tmp_path / "net")
    with pytest.raises(InputError, match="has no usable image processor"):
        _load(tmp_path / "net")
    (tmp_path / "zoo.toml").write_text(
        '[[model]]\nname = "mine"\nsource = "hf/./net"\ninput_size = 32\n'
        "mean = [0.5, 0.5, 0.5]\nstd = [0.5, 0.5, 0.5]\n"
    )
    info = load_model(load_zoo(tmp_path / "zoo.toml")[0]).info
    assert info.preprocessing.geometry.crop == (32, 32)


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("./nowhere", "'nowhere' is not a transformers checkpoint: it has no config.json"),
        ("nobody/nothing-at-all", "cannot load hf/nobody/nothing-at-all: .*; weights are downloaded"),
    ],
)
def test_what_cannot_be_loaded_is_said_in_one_line(
    transformers: Any, where: str, message: str
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        load_model(ModelSpec("model", f"hf/{where}"))
    assert "\n" not in str(caught.value)


def test_torchvision_is_not_needed(transformers: Any, torch: Any, tmp_path: Path) -> None:
    _save(transformers, transformers.ViTModel(transformers.ViTConfig(**_VIT)), tmp_path, _SQUARE)
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
