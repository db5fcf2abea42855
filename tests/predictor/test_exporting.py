"""The pixels and features that exported files take."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import oodzoo
from oodzoo.errors import InputError


def test_preprocessed_images_have_the_shapes_of_the_inputs(
    predictor: oodzoo.Predictor, unseen: list[Path]
) -> None:
    pixels = predictor.preprocess(unseen[:2])
    assert {name: each.shape[1:] for name, each in pixels.items()} == predictor.export_inputs()
    assert {each.dtype for each in pixels.values()} == {np.dtype(np.uint8)}
    assert predictor.export_inputs(raw=True) == {"image": ("height", "width", 3)}
    features = predictor.export_inputs(head_only=True)
    assert [*features.values()] == [(model.feature_dim,) for model in predictor.models]


def test_the_head_alone_takes_no_image(predictor: oodzoo.Predictor, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the head takes features, not an image"):
        predictor.export(tmp_path / "model.onnx", head_only=True, raw=True)
