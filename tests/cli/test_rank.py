"""`oodzoo rank`: tables, JSON and bad input."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import Run
from tests.ranking.data import saved, simulate_models
from tests.report.example import example_run

import oodzoo
from oodzoo.cli.rank import show_ranking, show_top
from oodzoo.cli.terminal import Terminal
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.local import update_local


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return saved(tmp_path, *simulate_models({"a": 0.5, "b": 1.5})).path


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
