from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.zoo.data import CROP, SQUASH, image_processor

from oodzoo.errors import InputError
from oodzoo.zoo.hf import _image_preprocessing as image_preprocessing
from oodzoo.zoo.spec import ModelSpec


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        SQUASH,
        CROP,
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
def test_preprocessing_equals_the_image_processor(
    transformers: Any, tmp_path: Path, images: list[Any], kind: str, settings: Any
) -> None:
    processor = image_processor(transformers, kind, settings)
    processor.save_pretrained(tmp_path)
    spec = ModelSpec("model", f"hf/{tmp_path}")
    ours = image_preprocessing(transformers, str(tmp_path), spec)
    for image in images:
        theirs = processor(image, return_tensors="np")["pixel_values"]
        np.testing.assert_allclose(ours([image]), theirs, atol=1e-6, err_msg=str(image.size))


def test_unsupported_processor_is_rejected(transformers: Any, tmp_path: Path) -> None:
    image_processor(transformers, "EfficientNetImageProcessor", {}).save_pretrained(tmp_path)
    spec = ModelSpec("model", f"hf/{tmp_path}")
    with pytest.raises(InputError, match=r"EfficientNetImageProcessor.* does more than resize"):
        image_preprocessing(transformers, str(tmp_path), spec)


def test_a_zoo_file_replaces_a_missing_processor(transformers: Any, tmp_path: Path) -> None:
    spec = ModelSpec("model", f"hf/{tmp_path}", 16, (0.5, 0.5, 0.5), (0.2, 0.2, 0.2))
    ours = image_preprocessing(transformers, str(tmp_path), spec)
    assert (ours.geometry.crop, ours.geometry.fit) == ((16, 16), "squash")
    assert (ours.mean, ours.std) == (spec.mean, spec.std)


def test_a_zoo_file_overrides_the_processor(transformers: Any, tmp_path: Path) -> None:
    image_processor(transformers, *CROP).save_pretrained(tmp_path)
    spec = ModelSpec("model", f"hf/{tmp_path}", input_size=64, mean=(0.1, 0.2, 0.3))
    ours = image_preprocessing(transformers, str(tmp_path), spec)
    assert (ours.geometry.resize, ours.geometry.crop) == ((74, 74), (64, 64))
    assert ours.mean == (0.1, 0.2, 0.3)
