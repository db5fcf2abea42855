from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.zoo.data import noise

from oodzoo.core.errors import InputError
from oodzoo.zoo import load_model
from oodzoo.zoo import open_clip as source
from oodzoo.zoo.spec import ModelSpec


def _spec(where: str, **fields: Any) -> ModelSpec:
    return ModelSpec(name="model", source=f"open_clip/{where}", **fields)


_TEXT = {"context_length": 4, "vocab_size": 16, "width": 16, "heads": 2, "layers": 1}
_TOWERS = {
    "small-vit": {"image_size": 32, "layers": 2, "width": 32, "head_width": 16, "patch_size": 8},
    "small-resnet": {"image_size": 64, "layers": [1, 1, 1, 1], "width": 8, "patch_size": None},
    "small-timm": {
        "image_size": 64,
        "timm_model_name": "test_vit",
        "timm_model_pretrained": False,
        "timm_pool": "token",
        "timm_proj": "linear",
    },
}


@pytest.fixture(scope="session")
def architectures(open_clip: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """open_clip with small architectures added."""
    folder = tmp_path_factory.mktemp("architectures")
    for name, tower in _TOWERS.items():
        config = {"embed_dim": 24, "vision_cfg": tower, "text_cfg": _TEXT}
        (folder / f"{name}.json").write_text(json.dumps(config))
    open_clip.add_model_config(folder)
    return open_clip


@pytest.mark.parametrize("name", _TOWERS)
def test_features_are_the_embedding_of_a_loaded_file(
    architectures: Any, torch: Any, tmp_path: Path, name: str
) -> None:
    torch.manual_seed(0)
    reference = architectures.create_model(name).eval()
    torch.save(reference.state_dict(), tmp_path / "weights.pt")
    digest = hashlib.sha256((tmp_path / "weights.pt").read_bytes()).hexdigest()
    spec = _spec(f"{name}/./weights.pt", folder=tmp_path, sha256=digest)
    model = load_model(spec)
    pixels = noise(3, model.info.preprocessing.geometry.crop[0])
    batch = torch.from_numpy(model.info.preprocessing.normalise(pixels))
    features, logits = model(pixels)
    with torch.no_grad():
        np.testing.assert_allclose(features, reference.encode_image(batch), rtol=1e-4, atol=1e-5)
    assert logits is None
    assert model.info.feature_dim == 24
    assert model.info.parameters == sum(p.numel() for p in reference.visual.parameters())
    with pytest.raises(InputError, match="has the sha256"):
        load_model(_spec(f"{name}/./weights.pt", folder=tmp_path, sha256="0" * 64))


def test_quickgelu_follows_the_pretrained_weights(open_clip: Any, torch: Any) -> None:
    with torch.device("meta"):
        kinds = {
            tag: {type(part).__name__ for part in _module(f"ViT-B-16/{tag}").modules()}
            for tag in ("openai", "datacomp_xl_s13b_b90k")
        }
    assert "QuickGELU" in kinds["openai"]
    assert "QuickGELU" not in kinds["datacomp_xl_s13b_b90k"]


def _module(where: str) -> Any:
    return source.build(_spec(where), pretrained=False).module


@pytest.mark.parametrize("mode", ["longest", "shortest", "squash"])
def test_every_resize_mode_equals_open_clip(open_clip: Any, images: list[Any], mode: str) -> None:
    config = {
        "size": (96, 96),
        "mean": (0.5, 0.4, 0.3),
        "std": (0.2, 0.3, 0.4),
        "interpolation": "bicubic",
        "resize_mode": mode,
        "fill_color": 7,
    }
    _compare(open_clip, source._preprocessing(config), config, images)


def _compare(open_clip: Any, ours: Any, config: dict[str, Any], images: list[Any]) -> None:
    transform = open_clip.transform.image_transform_v2(
        open_clip.transform.PreprocessCfg(**config), is_train=False
    )
    for image in images:
        np.testing.assert_allclose(
            ours([image])[0], transform(image), atol=1e-6, err_msg=str(image.size)
        )
