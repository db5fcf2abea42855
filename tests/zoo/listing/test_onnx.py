from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from oodzoo.errors import InputError
from oodzoo.zoo import load_model, load_zoo
from oodzoo.zoo.sources import get_source
from oodzoo.zoo.spec import ModelSpec
from oodzoo.zoo.weights import Weights

listing: Any = get_source("onnx")


def test_a_file() -> None:
    spec = dataclasses.replace(load_zoo("demo")[0], parameters=None)
    assert listing.measure(spec).parameters == load_model(spec).info.parameters
    assert listing.weights(spec) == Weights(spec.file.parent, True, spec.file.stat().st_size)
    assert listing.licence(spec) is None


def test_external_weights_are_counted(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    file = tmp_path / "net.onnx"
    proto = onnx.load(load_zoo("demo")[0].file)
    onnx.save(proto, file, save_as_external_data=True, location="net.data", size_threshold=0)
    size = sum((tmp_path / name).stat().st_size for name in ("net.onnx", "net.data"))
    assert size > file.stat().st_size
    spec = ModelSpec("net", f"onnx/{file}")
    assert listing.weights(spec) == Weights(tmp_path, True, size)


@pytest.mark.parametrize(
    ("content", "reason"), [(None, "No such file"), (b"\x3a\xff\xff", "it is not an ONNX file")]
)
def test_bad_files(tmp_path: Path, content: bytes | None, reason: str) -> None:
    if content is not None:
        (tmp_path / "net.onnx").write_bytes(content)
    spec = ModelSpec("net", f"onnx/{tmp_path}/net.onnx")
    for question in (listing.measure, listing.weights):
        with pytest.raises(InputError, match=f"cannot read '.*net.onnx': {reason}"):
            question(spec)
