"""A trainable model writes its file through its source."""

from __future__ import annotations

from pathlib import Path

from oodzoo.zoo.model import Trainable
from oodzoo.zoo.preprocessing import square


def test_the_source_writes_the_file(tmp_path: Path) -> None:
    preprocessing = square(8, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))

    def write(file: Path) -> None:
        file.write_bytes(b"x")

    made = Trainable("net", None, preprocessing, 3, write)
    made.write_onnx(tmp_path / "net.onnx")
    assert (tmp_path / "net.onnx").read_bytes() == b"x"
