"""`oodzoo import`, `oodzoo fit`, results of other commands in `--from`, and `oodzoo export`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.conftest import Run

import oodzoo


@pytest.fixture
def onnx() -> Any:
    return pytest.importorskip("onnx", reason='exporting needs onnx: pip install "oodzoo[onnx]"')


def test_import_of_numbers_and_of_several_labels(run: Run, tmp_path: Path) -> None:
    domains = ["day"] * 5 + ["night"] * 7
    numbers = np.arange(24).reshape(12, 2) / 4
    names: dict[str, Any] = {"label_names": ["age", "height"], "domains": domains}
    np.savez(tmp_path / "a.npz", net=np.ones((12, 4)), labels=numbers, **names)
    document = run("import", tmp_path / "a.npz", "--store", tmp_path / "a", "--json").document
    assert (document["task"], document["classes"]) == ("regression", ["age", "height"])
    store = oodzoo.FeatureStore(tmp_path / "a")
    assert np.concatenate([store.labels(d) for d in store.domains]).tolist() == numbers.tolist()
    rows = [f"{d},{'a|b' if at % 2 else 'b'}" for at, d in enumerate(domains)]
    (tmp_path / "rows.csv").write_text("\n".join(["site,what", *rows]))
    np.save(tmp_path / "net.npy", np.ones((12, 4)))
    given = ["--table", tmp_path / "rows.csv", "--columns", "label=what,domain=site"]
    arguments = ["import", tmp_path / "net.npy", "--store", tmp_path / "b", *given]
    assert "say which with --task" in run(*arguments).complaint
    assert run(*arguments, "--task", "multilabel").out == "1 model, 12 rows, 2 domains, 2 labels\n"
    labels = [[0, 1], [1, 1]] * 2 + [[0, 1]]
    assert oodzoo.FeatureStore(tmp_path / "b").labels("day").tolist() == labels
    np.savez(tmp_path / "a.npz", net=np.ones((12, 4)), labels=["cat", "dog"] * 6, domains=domains)
    complaint = run("import", tmp_path / "a.npz", "--store", tmp_path / "b").complaint
    assert "has labels for multilabel ('a', 'b'), the import for classification" in complaint
    assert "unknown task" in run(*arguments, "--task", "labels").complaint


def test_constraints_and_numbers_of_models(
    run: Run, store: oodzoo.FeatureStore, tmp_path: Path
) -> None:
    sizes = {name: store.model(name).parameters or 0 for name in store.models}
    largest = max(sizes, key=lambda name: sizes[name])
    limit = ("--max-parameters", str(sizes[largest] - 1), "--out", tmp_path / "model")
    done = run("fit", store.path, "--top-k", "2,3", *limit)
    assert f"model '{largest}' is not used: more than" in done.err
    assert "--top-k 2,3: the best 2 models, chosen on held-out domains" in done.err
    assert largest not in [model.name for model in oodzoo.load(tmp_path / "model").models]
    complaint = run("fit", store.path, "--models", ",".join(sizes), *limit).complaint
    assert f"the model '{largest}' was named, but not allowed: more than" in complaint


def test_a_predictor_at_a_url(
    run: Run,
    store: oodzoo.FeatureStore,
    unseen: list[Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    onnx: Any,
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


# --- results in files ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("results")


@pytest.fixture
def evaluated(run: Run, store: oodzoo.FeatureStore, made: Path) -> Path:
    """The result of an evaluation, made once."""
    file = made / "evaluation.json"
    if not file.exists():
        options = ("--no-baselines", "--max-models", "2", "--score", "logme", "--out", file)
        printed = run("evaluate", store.path, *options, "--json").document
        assert json.loads(file.read_text()) == printed
    return file


def test_fit_takes_what_an_evaluation_recommends(
    run: Run, store: oodzoo.FeatureStore, evaluated: Path, tmp_path: Path
) -> None:
    out = tmp_path / "model"
    fitted = run("fit", store.path, "--from", evaluated, "--out", out, "--json").document
    recommended = json.loads(evaluated.read_text())["recommended"]
    assert fitted["choice"] == recommended["choice"]
    assert set(fitted["models"]) == set(recommended["models"])
    assert len(fitted["models"]) <= 2
    provenance = oodzoo.load(out).provenance
    assert provenance.score == "logme"
    assert provenance.accuracy == recommended["average"]
    assert provenance.accuracy_by_domain == recommended["domains"]
    assert f"{recommended['average']:.1f}" in (out / "README.md").read_text(encoding="utf-8")


def test_fit_takes_selected_features(run: Run, store: oodzoo.FeatureStore, tmp_path: Path) -> None:
    file, out = tmp_path / "selection.json", tmp_path / "model"
    said = run("select", store.path, "--top-k", "1,2", "--out", file)
    assert "--top-k 1,2: the best " in said.err
    fitted = run("fit", store.path, "--from", file, "--out", out, "--json").document
    selection = json.loads(file.read_text())
    assert fitted["choice"] == "selection"
    for name in ("n_features", "n_selected"):
        assert fitted[name] == selection[name]
    kept = {model: text for model, text in selection["columns"].items() if text}
    assert oodzoo.load(out).columns.to_dict() == kept


@pytest.mark.parametrize(
    ("changes", "options", "words"),
    [
        ({"store": {"name": "x", "data": "0"}}, "",
         "is of other images or labels ('x') than the store"),
        ({"store": None}, "", "does not say which data it is of; write it again with --out"),
        ({"recommended": 3}, "", "is damaged: Expected `object`, got `int`"),
        ({"single": None, "ranking": []}, "",
         "is a ranking; --from takes what oodzoo evaluate or"),
        ({"single": None}, "", "is no result of oodzoo; --from takes"),
        ({"stages": [], "settings": {}}, "", "is the record of a run, whose predictor is in"),
        *(({}, option, f"says what to fit; leave out {option.split()[0]}")
          for option in ("--choose pool", "--top-k auto", "--models x", "--score lda",
                         "--max-ms 3", "--licence mit", "--method paper")),
    ],
)  # fmt: skip
def test_other_files_and_options_are_refused(
    run: Run,
    store: oodzoo.FeatureStore,
    evaluated: Path,
    tmp_path: Path,
    changes: dict[str, Any],
    options: str,
    words: str,
) -> None:
    document = json.loads(evaluated.read_text()) | changes
    file = tmp_path / "changed.json"
    file.write_text(json.dumps({key: v for key, v in document.items() if v is not None}))
    arguments = ("--from", file, "--out", tmp_path / "model", *options.split())
    assert words in run("fit", store.path, *arguments).complaint
    assert not (tmp_path / "model").exists()


# --- export --------------------------------------------------------------------------------------


def test_export(run: Run, saved: Path, unseen: list[Path], tmp_path: Path, onnx: Any) -> None:
    import onnxruntime

    file, head = tmp_path / "model.onnx", tmp_path / "head.onnx"
    done = run("export", saved, file, "--json")
    assert done.document["inputs"] == {"pixels": [32, 32, 3]}
    assert done.document["classes"] == ["0", "1", "2"]
    predictor = oodzoo.load(saved)
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    found = session.run(["probabilities"], predictor.preprocess(unseen))[0]
    np.testing.assert_allclose(found, predictor.predict_proba(unseen), atol=1e-5)
    assert run("export", saved, head, "--head-only").out.splitlines()[1:] == [
        *(f"input {m.name}: float32 (n, {m.feature_dim})" for m in predictor.models),
        "output probabilities: float32 (n, 3)",
    ]
    assert run("export", saved, "--raw", "--out", tmp_path / "raw.onnx").out.splitlines()[1:] == [
        "input image: uint8 (height, width, 3)",
        "output probabilities: float32 (1, 3)",
    ]
    assert (tmp_path / "raw.onnx").is_file()
    for arguments, words in (
        ((head, "--raw", "--head-only"), "the head takes features, not an image; leave out --raw"),
        ((), "give the file to write"),
        ((file, "--out", file), "the file is given twice"),
    ):
        assert words in run("export", saved, *arguments).complaint
