"""`oodzoo fit` and `oodzoo export`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oodzoo

Run = Callable[..., Any]


def test_fit(run: Run, store: oodzoo.FeatureStore, tmp_path: Path) -> None:
    out = tmp_path / "model"
    done = run("fit", store.path, "--out", out, "--top-k", "2", "--json")
    assert done.code == 0, done.err
    assert done.document["models"] == ["resnet_glyphs_augmented", "separable_glyphs_colour"]
    assert done.document["n_selected"] < done.document["n_features"] == 152
    assert oodzoo.load(out).classes_.tolist() == done.document["classes"] == ["0", "1", "2"]


def test_fit_with_named_models(run: Run, store: oodzoo.FeatureStore, tmp_path: Path) -> None:
    arguments = ("--models", "mlp_glyphs_augmented", "--no-select", "--out", tmp_path / "model")
    done = run("fit", store.path, *arguments)
    assert done.code == 0
    assert "3 classes from 48 features, trained on 108 images of 3 domains" in done.out


def test_invalid_options(run: Run, store: oodzoo.FeatureStore, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert "is not a predictor" in run("fit", store.path, "--out", tmp_path).complaint
    assert "top_k" in run("fit", store.path, "--out", "x", "--top-k", "0").complaint


def test_export(run: Run, saved: Path, unseen: list[Path], tmp_path: Path) -> None:
    pytest.importorskip("onnx", reason='merging graphs needs onnx: pip install "oodzoo[onnx]"')
    import onnxruntime

    file = tmp_path / "model.onnx"
    done = run("export", saved, file, "--json")
    assert done.document["inputs"] == {"pixels": [32, 32, 3]}
    assert done.document["classes"] == ["0", "1", "2"]
    predictor = oodzoo.load(saved)
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    found = session.run(["probabilities"], predictor.preprocess(unseen))[0]
    np.testing.assert_allclose(found, predictor.predict_proba(unseen), atol=1e-5)
