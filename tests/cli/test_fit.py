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
    options = ("--top-k", "2", "--choose", "selection", "--method", "paper")
    done = run("fit", store.path, "--out", out, *options, "--json")
    assert done.code == 0, done.err
    assert done.document["choice"] == "selection"
    assert done.document["models"] == ["resnet_glyphs_augmented", "separable_glyphs_colour"]
    assert done.document["n_selected"] < done.document["n_features"] == 152
    assert oodzoo.load(out).classes_.tolist() == done.document["classes"] == ["0", "1", "2"]


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


def test_the_file_of_an_export_is_given_once(run: Run, saved: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnx", reason='exporting needs onnx: pip install "oodzoo[onnx]"')
    file = tmp_path / "head.onnx"
    assert "give the file to write" in run("export", saved).complaint
    assert "the file is given twice" in run("export", saved, file, "--out", file).complaint
    assert run("export", saved, "--head-only", "--out", file).code == 0
    assert file.is_file()


def test_constraints_and_numbers_of_models(
    run: Run, store: oodzoo.FeatureStore, tmp_path: Path
) -> None:
    sizes = {name: store.model(name).parameters or 0 for name in store.models}
    largest = max(sizes, key=lambda name: sizes[name])
    limit = ("--max-parameters", str(sizes[largest] - 1), "--out", tmp_path / "model")
    done = run("fit", store.path, "--top-k", "2,3", *limit)
    assert f"model '{largest}' is not used: more than" in done.err
    assert "--top-k 2,3: the best 2 models, chosen on left-out domains" in done.err
    assert largest not in [model.name for model in oodzoo.load(tmp_path / "model").models]
    complaint = run("fit", store.path, "--models", ",".join(sizes), *limit).complaint
    assert f"the model '{largest}' was named, but not allowed: more than" in complaint
    assert (
        "no model meets --licence gpl"
        in run("fit", store.path, "--licence", "gpl", *limit[2:]).complaint
    )


def test_export_of_the_head(
    run: Run, saved: Path, store: oodzoo.FeatureStore, tmp_path: Path
) -> None:
    pytest.importorskip("onnx", reason='exporting needs onnx: pip install "oodzoo[onnx]"')
    done = run("export", saved, tmp_path / "head.onnx", "--head-only")
    predictor = oodzoo.load(saved)
    assert done.out.splitlines()[1:] == [
        *(f"input {m.name}: float32 (n, {m.feature_dim})" for m in predictor.models),
        "output probabilities: float32 (n, 3)",
    ]


def test_export_of_the_raw_form(run: Run, saved: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnx", reason='exporting needs onnx: pip install "oodzoo[onnx]"')
    done = run("export", saved, tmp_path / "raw.onnx", "--raw")
    assert done.out.splitlines()[1:] == [
        "input image: uint8 (height, width, 3)",
        "output probabilities: float32 (1, 3)",
    ]
    done = run("export", saved, tmp_path / "raw.onnx", "--raw", "--head-only")
    assert "the head takes features, not an image; leave out --raw" in done.complaint


def test_imported_features(run: Run, tmp_path: Path) -> None:
    y, domains = np.tile(["no", "yes"], 45), np.repeat(["a", "b", "c"], 30)
    X = np.random.default_rng(0).normal(size=(90, 2)) + 3 * (y == "yes")[:, None]
    np.savez(tmp_path / "x.npz", wine=X, labels=y, domains=domains)
    run("import", tmp_path / "x.npz", "--store", tmp_path / "store")
    done = run("fit", tmp_path / "store", "--out", tmp_path / "model")
    assert "from 2 features, trained on 90 rows of 3 domains; saved in" in done.out
    assert "FEATURES.npz" in done.err
    assert oodzoo.load(tmp_path / "model").score(X, y) > 0.9


def test_a_predictor_at_a_url(
    run: Run,
    store: oodzoo.FeatureStore,
    unseen: list[Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("fsspec")
    monkeypatch.setenv("OODZOO_CACHE", str(tmp_path / "cache"))
    url = f"memory://{tmp_path.name}/model"
    done = run("fit", store.path, "--models", "mlp_glyphs_augmented", "--out", f"{url}/")
    assert done.code == 0, done.err
    assert f"saved in {url}\n" in done.out
    predicted = run("predict", url, *unseen[:3], "--json").document["predictions"]
    labels = oodzoo.load(url).predict(unseen[:3]).tolist()
    assert [row["label"] for row in predicted] == labels
    exported = run("export", url, tmp_path / "model.onnx")
    assert exported.code == 0, exported.err
    assert (tmp_path / "model.onnx").stat().st_size > 1000
