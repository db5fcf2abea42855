"""`--out FILE.json` of rank, select and evaluate, and `oodzoo fit --from` such a file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Run

import oodzoo


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("results")


@pytest.fixture
def evaluated(run: Run, store: oodzoo.FeatureStore, made: Path) -> Path:
    file = made / "evaluation.json"
    if not file.exists():
        options = ("--no-baselines", "--max-models", "2", "--score", "logme", "--out", file)
        done = run("evaluate", store.path, *options)
        assert done.code == 0, done.err
    return file


@pytest.mark.parametrize("command", ["rank", "select", "evaluate"])
def test_the_file_has_what_is_printed(
    run: Run, store: oodzoo.FeatureStore, tmp_path: Path, command: str
) -> None:
    file = tmp_path / "result.json"
    options = ("--no-baselines",) if command == "evaluate" else ()
    printed = run(command, store.path, "--out", file, "--json", *options).document
    assert json.loads(file.read_text()) == printed
    assert printed["store"] == {"name": store.name, "data": store.data_fingerprint}


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
    card = (out / "README.md").read_text(encoding="utf-8")
    assert f"{recommended['average']:.1f}" in card


def test_fit_takes_selected_features(run: Run, store: oodzoo.FeatureStore, tmp_path: Path) -> None:
    file, out = tmp_path / "selection.json", tmp_path / "model"
    said = run("select", store.path, "--top-k", "1,2", "--out", file)
    assert "--top-k 1,2: the best " in said.err
    assert ", chosen on left-out domains" in said.err
    fitted = run("fit", store.path, "--from", file, "--out", out, "--json").document
    selection = json.loads(file.read_text())
    assert fitted["choice"] == "selection"
    assert (fitted["n_features"], fitted["n_selected"]) == (
        selection["n_features"],
        selection["n_selected"],
    )
    kept = {model: text for model, text in selection["columns"].items() if text}
    assert oodzoo.load(out).columns.to_dict() == kept


def changed(file: Path, folder: Path, **changes: Any) -> Path:
    document = json.loads(file.read_text()) | changes
    other = folder / "changed.json"
    other.write_text(json.dumps({key: v for key, v in document.items() if v is not None}))
    return other


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"store": {"name": "x", "data": "0"}},
            "is of other images or labels ('x') than the store",
        ),
        ({"store": None}, "does not say which data it is of; write it again with --out"),
        ({"recommended": 3}, "is damaged: Expected `object`, got `int`"),
        ({"single": None, "ranking": []}, "is a ranking; --from takes what oodzoo evaluate or"),
        ({"single": None}, "is no result of oodzoo; --from takes"),
        ({"stages": [], "settings": {}}, "is the record of a run, whose predictor is in"),
    ],
)
def test_other_files_are_refused(
    run: Run,
    store: oodzoo.FeatureStore,
    evaluated: Path,
    tmp_path: Path,
    changes: dict[str, Any],
    words: str,
) -> None:
    file = changed(evaluated, tmp_path, **changes)
    complaint = run("fit", store.path, "--from", file, "--out", tmp_path / "model").complaint
    assert words in complaint
    assert not (tmp_path / "model").exists()


def test_a_model_that_was_removed_since(
    run: Run, store: oodzoo.FeatureStore, evaluated: Path, tmp_path: Path
) -> None:
    copied = tmp_path / "store"
    shutil.copytree(store.path, copied)
    gone = json.loads(evaluated.read_text())["recommended"]["models"][0]
    assert run("store", "rm", copied, gone).code == 0
    arguments = ("--from", evaluated, "--out", tmp_path / "model")
    assert gone in run("fit", copied, *arguments).complaint


@pytest.mark.parametrize(
    "option",
    [("--choose", "pool"), ("--top-k", "auto"), ("--models", "x"), ("--score", "lda"),
     ("--max-ms", "3"), ("--licence", "mit"), ("--method", "paper")],
)  # fmt: skip
def test_options_that_say_the_same_are_refused(
    run: Run,
    store: oodzoo.FeatureStore,
    evaluated: Path,
    tmp_path: Path,
    option: tuple[str, str],
) -> None:
    arguments = ("--from", evaluated, "--out", tmp_path / "model", *option)
    assert (
        f"says what to fit; leave out {option[0]}" in run("fit", store.path, *arguments).complaint
    )
