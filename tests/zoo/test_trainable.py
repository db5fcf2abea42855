"""Models that can be trained, or that say why not."""

from __future__ import annotations

from pathlib import Path

import pytest

from oodzoo.errors import InputError
from oodzoo.zoo import ModelSpec
from oodzoo.zoo.preprocessing import square
from oodzoo.zoo.sources import load_trainable, load_trainable_network

PREPROCESSING = square(8, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
TEXTS = ModelSpec("minilm", "sentence-transformers/all-MiniLM-L6-v2")


def test_a_source_without_weights_to_train() -> None:
    expected = "model 'minilm': a model of the kind sentence-transformers cannot be trained"
    with pytest.raises(InputError, match=expected):
        load_trainable(TEXTS, PREPROCESSING)
    with pytest.raises(InputError, match=expected):
        load_trainable_network([TEXTS], PREPROCESSING)


def test_an_absent_file(tmp_path: Path) -> None:
    spec = ModelSpec("net", "onnx/absent.onnx", folder=tmp_path)
    with pytest.raises(InputError, match=r"cannot read .*absent\.onnx|needs the package"):
        load_trainable(spec, PREPROCESSING)
