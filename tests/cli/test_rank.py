"""`oodzoo rank`: tables, JSON and bad input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.conftest import Run
from tests.evaluation.data import task_zoo
from tests.ranking.data import saved, simulate_models
from tests.report.example import example_run

import oodzoo
from oodzoo.cli.rank import show_ranking, show_top
from oodzoo.cli.terminal import Terminal
from oodzoo.features.importing import import_features
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.local import update_local
from oodzoo.task import Kind


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return saved(tmp_path, *simulate_models({"a": 0.5, "b": 1.5})).path


def test_json(run: Run, store: Path) -> None:
    document = run("rank", store, "--json").document
    assert document["score"] == "unseen"
    assert [row["model"] for row in document["ranking"]] == ["a", "b"]
    first = document["ranking"][0]
    assert {"rank", "model", "score", "discriminability", "stability"} <= set(first)
    assert {"expected_accuracy", "accuracy_interval"} <= set(first)
    assert [fold["domain"] for fold in first["folds"]] == ["d0", "d1", "d2", "d3"]


def test_the_table_explains_its_columns(run: Run, store: Path) -> None:
    shown = run("rank", store).out
    assert [line.split()[2] for line in shown.splitlines()[2:4]] == ["a", "b"]
    assert "Pareto-optimal" in shown
    assert max(map(len, shown.splitlines())) <= 88


def test_only_columns_that_are_shown_are_explained(
    capsys: pytest.CaptureFixture[str], store: Path
) -> None:
    terminal, ranking = Terminal(), oodzoo.rank(FeatureStore(store))
    for width, explained in ((100, True), (40, False)):
        terminal._results.width = width
        show_ranking(terminal, ranking)
        out = capsys.readouterr().out
        assert max(map(len, out.splitlines())) <= width
        assert [text in out for text in ("evid.: ", "d, M, ms: ")] == [explained] * 2
        assert "acc.: " in out


def test_another_score_orders_the_rows(run: Run, store: Path) -> None:
    document = run("rank", store, "--score", "logme", "--json").document
    scores = [row["score"] for row in document["ranking"]]
    assert document["score"] == "logme"
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--score", "logm"], "unknown score 'logm'; did you mean logme?"),
        (["--stability", "shaky"], "'shaky'"),
        (["--device", "tpu"], "'tpu'"),
        (["--max-ms", "0"], "max_ms must be a positive number of milliseconds, got 0.0"),
        (["--max-ms", "nan"], "got nan"),
        (["--max-ms", "fast"], "'--max-ms'"),
        (["--max-ms", "5"], "no model meets --max-ms 5: time per image unknown"),
        (["--max-parameters", "25Q"], "got '25Q'"),
        (["--licence", ""], "licence must be names or wildcards"),
        (["--licence", "MIT"], "no model meets --licence MIT: licence unknown"),
        (["--pareto"], "--pareto needs the time per image or the number of parameters"),
        (["--domain-weight", "d0"], "--domain-weight must be NAME=W, got 'd0'"),
        (["--domain-weight", "d0=x"], "--domain-weight 'd0=x': 'x' is not a number"),
        (["--domain-weight", "d0=-1"], "domain 'd0' must be a finite number of at least 0"),
        (["--domain-weight", "dd=1"], "unknown domain 'dd'"),
    ],
)
def test_bad_input_is_one_line(run: Run, store: Path, arguments: list[str], words: str) -> None:
    assert words in run("rank", store, *arguments).complaint


def test_no_store(run: Run, tmp_path: Path) -> None:
    assert str(tmp_path / "missing") in run("rank", tmp_path / "missing").complaint


@pytest.fixture
def timed(tmp_path: Path) -> Path:
    """A store of models with known times per image, but for one of them."""
    models = simulate_models({"good": 0.3, "middle": 1.0, "bad": 5.0, "untimed": 0.3})
    path = saved(tmp_path, *models).path
    for name, milliseconds in {"good": 30.0, "middle": 2.0, "bad": 12.3}.items():
        update_local(path, name, {"milliseconds_per_image": milliseconds})
    return path


def test_short_times_are_not_rounded_to_zero(run: Run, timed: Path) -> None:
    update_local(timed, "middle", {"milliseconds_per_image": 0.00412})
    (line,) = [line for line in run("rank", timed).out.splitlines() if " middle " in line]
    assert " 0.0041" in line
    assert " 0.0041" in run("store", "ls", timed).out


def test_constraints_leave_models_out_and_name_them(run: Run, timed: Path) -> None:
    done = run("rank", timed, "--max-ms", "20", "--json")
    assert {row["model"] for row in done.document["ranking"]} == {"middle", "bad"}
    assert done.document["left_out"] == {
        "good": "more than 20 ms per image",
        "untimed": "time per image unknown",
    }
    assert "model 'untimed' is not ranked: time per image unknown" in done.err
    assert "models 'bad', 'good' are not ranked: more than 5 ms per image" in (
        run("rank", timed, "--max-ms", "5").err
    )


def test_constraints_that_no_model_meets(run: Run, timed: Path) -> None:
    found = run("rank", timed, "--max-ms", "1.5").complaint
    assert "no model meets --max-ms 1.5: the fastest, 'middle', takes 2 ms" in found
    found = run("rank", timed, "--max-parameters", "25M").complaint
    assert "no model meets --max-parameters 25M: number of parameters unknown" in found


def test_only_the_pareto_front(run: Run, timed: Path) -> None:
    document = run("rank", timed, "--pareto", "--json").document
    assert [row["model"] for row in document["ranking"]] == ["middle", "good"]
    shown = run("rank", timed, "--pareto").out
    assert "middle" in shown
    assert "bad" not in shown


def test_weights_of_domains(run: Run, store: Path) -> None:
    """The expected accuracy is the weighted mean over domains."""
    arguments = ["--score", "accuracy", "--domain-weight", "d0=0", "--domain-weight", "d1=3"]
    for row in run("rank", store, *arguments, "--json").document["ranking"]:
        accuracy = {fold["domain"]: fold["accuracy"] for fold in row["folds"]}
        mean = (3 * accuracy["d1"] + accuracy["d2"] + accuracy["d3"]) / 5
        assert 100 * row["score"] == pytest.approx(mean)


def _store_of(folder: Path, kind: Kind) -> Path:
    features, y, domains = task_zoo(kind)
    arrays: Any = {"labels": y[:, 1] if kind == "regression" else y, "domains": domains} | features
    np.savez(folder / "f.npz", **arrays)
    return import_features([folder / "f.npz"], folder / "store", task=kind).path


@pytest.mark.parametrize(
    ("kind", "heading", "words"),
    [
        ("regression", "R² %", "R²: explained variance to expect on an unseen domain"),
        ("multilabel", "AP %", "AP: average precision to expect on an unseen domain"),
    ],
)
def test_the_metric_is_that_of_the_task(
    run: Run, tmp_path: Path, kind: Kind, heading: str, words: str
) -> None:
    store = _store_of(tmp_path, kind)
    shown = run("rank", store).out
    assert heading in shown.splitlines()[0]
    assert words in shown
    assert "accuracy" not in shown
    metric = words.split(": ")[1].split(" to ")[0].replace(" ", "_")
    by_metric = run("rank", store, "--score", metric).out.splitlines()
    assert metric not in by_metric[0]  # the column of percentages has it
    assert by_metric[2].split()[2] == "good"


def test_negative_intervals_can_be_read(run: Run, tmp_path: Path) -> None:
    store = _store_of(tmp_path, "regression")
    last = run("rank", store, "--json").document["ranking"][-1]
    low, high = last["explained_variance_interval"]
    assert low < 0 < high
    assert f" {low:.0f} to {high:.0f} " in run("rank", store).out


def test_a_target_needs_classes(run: Run, tmp_path: Path) -> None:
    store = _store_of(tmp_path, "regression")
    complaint = run("rank", store, "--target", tmp_path).complaint
    assert "--target needs classes, but the task is 'regression'; leave it out" in complaint


@pytest.mark.parametrize("target", [False, True])
def test_the_accuracy_is_that_on_the_target_if_there_is_one(
    capsys: pytest.CaptureFixture[str], target: bool
) -> None:
    ranking = example_run(target=target).ranking
    assert ranking is not None
    show_ranking(Terminal(), ranking)
    whole = " ".join(capsys.readouterr().out.split())
    show_top(Terminal(), ranking, Path("job/store"))
    top = " ".join(capsys.readouterr().out.split())
    for text in (whole, top):
        assert ("to expect on the target, with the 90 % interval" in text) == target
        assert ("to expect on an unseen domain" in text) == (not target)
        assert ("interval for a new domain" in text) == (not target)
    assert top.endswith("oodzoo rank job/store" + (" --target NAME" if target else ""))
