"""The examples in the documentation that use an exported file without oodzoo."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

import oodzoo

pytest.importorskip("onnx")

PAGE = Path(__file__).parents[2] / "docs" / "predictor.md"
GUARD = """
import sys
sys.modules["oodzoo"] = None  # importing it is an error
sys.modules["torch"] = None
sys.modules["onnx"] = None
"""


def test_examples(predictor: oodzoo.Predictor, unseen: list[Path], tmp_path: Path) -> None:
    section = PAGE.read_text(encoding="utf-8").partition("### Without oodzoo")[2]
    section = section.partition("\n## ")[0]
    examples = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    assert len(examples) == 2
    predictor.export(tmp_path / "model.onnx")
    predictor.export(tmp_path / "raw.onnx", raw=True)
    for path in unseen[:2]:
        with Image.open(path) as image:
            image.convert("RGB").resize((70, 50)).save(tmp_path / "photo.jpg")
        (expected,) = predictor.predict([tmp_path / "photo.jpg"]).tolist()
        for example in examples:
            done = subprocess.run(
                [sys.executable, "-c", GUARD + example],
                cwd=tmp_path,
                capture_output=True,
                text=True,
            )
            assert done.returncode == 0, done.stderr
            assert done.stdout.split() == [expected]
