"""Text encoders of sentence-transformers, from local folders."""

from __future__ import annotations

import shutil
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.text_models import WORDS, save_text_model

from oodzoo.core.errors import InputError
from oodzoo.zoo import ModelSpec, load_model
from oodzoo.zoo.preprocessing import TextPreprocessing

TEXTS = ["a good film", "the room was not warm and the meal was cold", "", "unknown words"]


def _load(folder: Path, **options: Any) -> Any:
    return load_model(ModelSpec("text", f"sentence-transformers/{folder}"), **options)


@pytest.mark.parametrize(
    "options", [{}, {"normalise": True}, {"pooling": "cls"}, {"prompt": "really: "}]
)
def test_features_are_sentence_embeddings(tmp_path: Path, options: dict[str, Any]) -> None:
    encoder = save_text_model(tmp_path / "text", **options)
    model = _load(tmp_path / "text")
    assert model.modality == "text"
    outputs = model(TEXTS)
    expected = np.stack([encoder.encode(text) for text in TEXTS])
    np.testing.assert_allclose(outputs.features, expected, atol=1e-5)
    assert (outputs.features.dtype, outputs.logits) == (np.float32, None)
    info = model.info
    assert info.preprocessing == TextPreprocessing(64, options.get("prompt", ""))
    assert info.feature_dim == expected.shape[1]
    assert info.parameters == sum(each.numel() for each in encoder.parameters())


def test_fingerprint(tmp_path: Path) -> None:
    def fingerprint(name: str, **options: Any) -> str:
        save_text_model(tmp_path / name, **options)
        found: str = _load(tmp_path / name).info.fingerprint
        return found

    first = fingerprint("first")
    shutil.copytree(tmp_path / "first", tmp_path / "copy")
    assert _load(tmp_path / "copy").info.fingerprint == first
    others = [
        fingerprint("weights", seed=1),
        fingerprint("pooling", pooling="max"),
        fingerprint("normalised", normalise=True),
        fingerprint("tokens", words=("The", "quick", "jumps_over", *WORDS[3:])),
    ]
    assert len({first, *others}) == 5


def test_precision(tmp_path: Path) -> None:
    save_text_model(tmp_path / "text")
    single, half = (_load(tmp_path / "text", precision=each) for each in ("float32", "bfloat16"))
    difference = np.abs(single(TEXTS).features - half(TEXTS).features).max()
    assert 0 < difference < 0.1
    assert half.info.fingerprint == single.info.fingerprint


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"input_size": 32}, "takes text and has no input_size; remove it"),
        ({"mean": (0.0, 0.0, 0.0)}, "takes text and has no mean"),
        ({"sha256": "0" * 64}, "sha256 can be verified only for"),
        ({"feature_dim": 5}, "returns 32 features, but its zoo file sets feature_dim = 5"),
    ],
)
def test_fields_that_do_not_apply(tmp_path: Path, fields: dict[str, Any], words: str) -> None:
    save_text_model(tmp_path / "text")
    with pytest.raises(InputError, match=words):
        load_model(ModelSpec("text", f"sentence-transformers/{tmp_path}/text", **fields))


def test_inputs_must_be_texts(tmp_path: Path) -> None:
    save_text_model(tmp_path / "text")
    model = _load(tmp_path / "text")
    for wrong in ("one text", [1, 2], [None]):
        with pytest.raises(InputError, match="takes a list of strings, got"):
            model(wrong)


def test_no_progress_bars(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    if find_spec("sentence_transformers") is None:
        pytest.skip("sentence-transformers is not installed")
    bars: Any = import_module("transformers.utils.logging")
    downloads: Any = import_module("huggingface_hub.utils")
    save_text_model(tmp_path / "text")
    before = downloads.are_progress_bars_disabled()
    bars.enable_progress_bar()
    capfd.readouterr()
    try:
        for show in (downloads.enable_progress_bars, downloads.disable_progress_bars):
            show()
            state = downloads.are_progress_bars_disabled()
            _load(tmp_path / "text")
            assert capfd.readouterr().err == ""
            assert bars.is_progress_bar_enabled()
            assert downloads.are_progress_bars_disabled() == state
    finally:
        (downloads.disable_progress_bars if before else downloads.enable_progress_bars)()
