"""Resizing and cropping of an image as an ONNX graph, computed from the image's shape.

The operator is Resize with antialiasing, on uint8. ONNX Runtime computes it with Pillow's weights,
in two passes that each round and clip to 8 bits, first along the rows. Pillow takes the columns
first for some images; apart from these, nearly all pixels are equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from oodzoo.core.errors import InputError
from oodzoo.zoo import Geometry

OPSET = 18
"""The first opset whose Resize has antialiasing."""

IMAGE = "image"
"""Name of the input."""

_SCALED: dict[str, Any] = {"antialias": 1, "exclude_outside": 1}
_MODES: dict[str, dict[str, Any]] = {
    "bilinear": {"mode": "linear", **_SCALED},
    "bicubic": {"mode": "cubic", "cubic_coeff_a": -0.5, **_SCALED},
}


def require_resizable(geometry: Geometry, name: str) -> None:
    """Raise InputError if ONNX has no operator for the interpolation of a model."""
    if geometry.interpolation not in ("nearest", *_MODES):
        raise InputError(
            f"model {name!r} resizes images with {geometry.interpolation!r}, which ONNX does not "
            f"have; only nearest, {', '.join(_MODES)} can be part of the file: export without "
            "--raw (raw=)"
        )


def build_resizing(onnx: Any, outputs: Mapping[str, Geometry]) -> Any:
    """Build a ModelProto from an image of any size to the pixels of several geometries.

    Its input is `image`, uint8 (height, width, 3); its outputs are uint8 (1, height, width, 3).
    """
    helper, types = onnx.helper, onnx.TensorProto
    graph = _Resizing(onnx)
    for name, geometry in outputs.items():
        graph.add_geometry(geometry, name)
    return helper.make_model(
        helper.make_graph(
            graph.nodes,
            "resizing",
            [helper.make_tensor_value_info(IMAGE, types.UINT8, ["height", "width", 3])],
            [
                helper.make_tensor_value_info(name, types.UINT8, [1, *geometry.crop, 3])
                for name, geometry in outputs.items()
            ],
            graph.constants,
        ),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=8,
    )


class _Resizing:
    """Collects the nodes; all intermediate names begin with `resize_`."""

    def __init__(self, onnx: Any) -> None:
        self.onnx = onnx
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        planes = self.add("Transpose", [IMAGE], perm=[2, 0, 1])
        self.planes = self.add("Unsqueeze", [planes, self.constant([0])])
        shape = self.add("Shape", [IMAGE])
        self.sides = self.add("Slice", [shape, self.constant([0]), self.constant([2])])

    def add(self, operator: str, inputs: list[str], output: str = "", **attributes: Any) -> str:
        name = output or f"resize_{len(self.nodes)}"
        node = self.onnx.helper.make_node(operator, inputs, [name], name, **attributes)
        self.nodes.append(node)  # with a name: some versions of onnxruntime derive others from it
        return name

    def constant(self, values: Any, dtype: Any = np.int64) -> str:
        name = f"resize_constant_{len(self.constants)}"
        array = np.asarray(values, dtype)
        self.constants.append(self.onnx.numpy_helper.from_array(array, name))
        return name

    def add_geometry(self, geometry: Geometry, output: str) -> None:
        """Add the nodes of :meth:`Geometry.apply <oodzoo.zoo.Geometry.apply>`."""
        size = self._size(geometry)
        if geometry.interpolation == "nearest":
            resized = self._nearest(size)
        else:
            mode = _MODES[geometry.interpolation]
            sizes = self.add("Concat", [self.constant([1, 3]), size], axis=0)
            resized = self.add("Resize", [self.planes, "", "", sizes], **mode)
        if geometry.fit != "squash" or geometry.resize != geometry.crop:
            resized = self._centre(resized, size, geometry)
        self.add("Transpose", [resized], output, perm=[0, 2, 3, 1])

    def _nearest(self, size: str) -> str:
        """Take the pixels below the centres, whose positions Pillow adds up in double precision.

        Resize computes them in single precision, so that pixels would differ at each tie.
        """
        planes, types = self.planes, self.onnx.TensorProto
        one, half = self.constant([1]), self.constant([0.5], np.float64)
        for axis in (0, 1):
            side, length = (
                self.add("Gather", [sides, self.constant([axis])]) for sides in (self.sides, size)
            )
            exact = [self.add("Cast", [each], to=types.DOUBLE) for each in (side, length)]
            step = self.add("Div", exact)
            others = self.add("Expand", [step, self.add("Sub", [length, one])])
            steps = self.add("Concat", [self.add("Mul", [step, half]), others], axis=0)
            positions = self.add("CumSum", [steps, self.constant(0)])
            index = self.add("Cast", [self.add("Floor", [positions])], to=types.INT64)
            inside = self.add("Min", [index, self.add("Sub", [side, one])])
            planes = self.add("Gather", [planes, inside], axis=axis + 2)
        return planes

    def _size(self, geometry: Geometry) -> str:
        """Height and width of the resized image."""
        height, width = geometry.resize
        if geometry.fit == "squash":
            return self.constant([height, width])
        if geometry.fit == "cover" and height == width:
            # the shorter side exactly, the longer one rounded down
            shorter = self.add("ReduceMin", [self.sides], keepdims=1)
            product = self.add("Mul", [self.sides, self.constant([height])])
            return self.add("Div", [product, shorter])
        reduce = "ReduceMax" if geometry.fit == "contain" else "ReduceMin"
        types = self.onnx.TensorProto
        sides = self.add("Cast", [self.sides], to=types.DOUBLE)
        ratios = self.add("Div", [sides, self.constant([height, width], np.float64)])
        ratio = self.add(reduce, [ratios], keepdims=1)
        rounded = self.add("Round", [self.add("Div", [sides, ratio])])
        size = self.add("Cast", [rounded], to=types.INT64)
        return self.add("Max", [size, self.constant([1])])

    def _centre(self, resized: str, size: str, geometry: Geometry) -> str:
        """Crop the centre, padding where the image is smaller."""
        crop, none = self.constant(geometry.crop), self.constant([0, 0])
        offset = self._offset(self.add("Sub", [size, crop]), geometry)
        start = self.add("Max", [offset, none])
        stop = self.add("Min", [self.add("Add", [offset, crop]), size])
        kept = self.add("Slice", [resized, start, stop, self.constant([2, 3])])
        before = self.add("Sub", [start, offset])
        after = self.add("Sub", [crop, self.add("Add", [before, self.add("Sub", [stop, start])])])
        pads = self.add("Concat", [none, before, none, after], axis=0)
        return self.add("Pad", [kept, pads, self.constant(geometry.fill, np.uint8)])

    def _offset(self, spare: str, geometry: Geometry) -> str:
        """Pixels before the crop, as in :class:`Geometry`; Div of integers rounds towards zero."""
        two = self.constant([2])
        if geometry.centring == "down":
            odd = self.add("Mod", [spare, two])
            return self.add("Div", [self.add("Sub", [spare, odd]), two])
        types = self.onnx.TensorProto
        exact = self.add("Cast", [spare], to=types.DOUBLE)
        half = self.add("Mul", [exact, self.constant([0.5], np.float64)])
        even = self.add("Cast", [self.add("Round", [half])], to=types.INT64)
        # a negative one is rounded towards zero, which is up
        return self.add("Max", [even, self.add("Div", [spare, two])])
