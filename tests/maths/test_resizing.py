"""Resizing and cropping as an ONNX graph."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnxruntime
import pytest
from PIL import Image

from oodzoo.predictor.resizing import build_resizing
from oodzoo.zoo import Geometry

onnx = pytest.importorskip("onnx")

SIZES = [(40, 30), (30, 41), (16, 16), (17, 9), (5, 64), (71, 12), (1, 1), (33, 32), (90, 7)]


def _session(*geometries: Geometry) -> Any:
    proto = build_resizing(onnx, {f"p{i}": each for i, each in enumerate(geometries)})
    onnx.checker.check_model(proto)
    content = proto.SerializeToString()
    return onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])


def _smooth(height: int, width: int) -> Any:
    """An image with edges, and no noise: passes in another order change little."""
    y, x = np.mgrid[:height, :width]
    planes = [127 + 120 * np.sin(x / 5 + y / 9), 8 * (x + y) % 256, 255 * (x * 2 > width)]
    return np.stack(planes, 2).astype(np.uint8)


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear", "bicubic"])
@pytest.mark.parametrize(
    "geometry",
    [
        Geometry((16, 16), (16, 16)),
        Geometry((24, 20), (16, 20)),
        Geometry((18, 18), (16, 16), "cover"),
        Geometry((19, 19), (16, 16), "cover", centring="down"),
        Geometry((16, 20), (16, 20), "cover"),
        Geometry((16, 16), (16, 16), "contain", fill=99),
        Geometry((16, 24), (17, 23), "contain", fill=7, centring="down"),
        Geometry((8, 8), (15, 16), fill=255),
    ],
)
def test_pixels_equal_those_of_pillow(geometry: Geometry, interpolation: Any) -> None:
    geometry = replace(geometry, interpolation=interpolation)
    session = _session(geometry)
    for height, width in SIZES:
        image = _smooth(height, width)
        (found,) = session.run(None, {"image": image})
        expected = geometry.apply(Image.fromarray(image))
        assert found.shape == (1, *expected.shape)
        difference = np.abs(found[0].astype(int) - expected)
        most = {"nearest": 0, "bilinear": 0.1, "bicubic": 0.3}[interpolation]
        assert difference.mean() <= most, (height, width)
