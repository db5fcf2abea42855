"""DomainBed's protocol with ERM: the search, and the final model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.tuning import small

from oodzoo.errors import InputError
from oodzoo.events import Listener, Stage
from oodzoo.heads.domainbed.protocol import CHECKPOINT_EVERY, folds, hyperparameters
from oodzoo.heads.domainbed.rules import Record, chosen
from oodzoo.tuning.domainbed import ErmSettings, ErmTuned, ErmTuner, erm_sweep
from oodzoo.tuning.problem import Problem
from oodzoo.zoo.preprocessing import square

torch = pytest.importorskip("torch")

STEPS, DRAWS = 5, 2
CHECKPOINTS = [0, 2, 4]
RULES = ("training-domain", "leave-one-domain-out")


@pytest.fixture
def problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Problem]:
    monkeypatch.setitem(CHECKPOINT_EVERY, "default", 2)
    (tmp_path / "images").mkdir()
    with small.problem(tmp_path / "images") as found:
        yield found


class Recorder(Listener):
    """Counts steps, and interrupts the work after some of them."""

    def __init__(self, limit: int | None = None) -> None:
        self.steps: list[tuple[int, int]] = []
        self.metrics: set[str] = set()
        self._limit = limit

    def progress(self, stage: str, done: int, total: int, **facts: Any) -> None:
        if not facts:
            self.steps.append((done, total))
            if len(self.steps) == self._limit:
                raise KeyboardInterrupt

    def metric(self, stage: str, name: str, value: float, *, step: int | None = None) -> None:
        self.metrics.add(name)


def tuner(problem: Problem, rule: Any, folder: Path | None = None, **options: Any) -> ErmTuner:
    settings = ErmSettings(choose_by=rule, draws=DRAWS, steps=STEPS)
    return ErmTuner(small.trainable, problem, settings, device="cpu", folder=folder, **options)


def weights(tuned: ErmTuned) -> dict[str, Any]:
    return {name: each.detach().clone() for name, each in tuned.trainable.module.named_parameters()}


def sweep(problem: Problem, folder: Path) -> list[Record]:
    return erm_sweep(
        small.trainable, problem, trials=1, draws=DRAWS, steps=STEPS, device="cpu", folder=folder
    )


def test_sweep(problem: Problem, tmp_path: Path) -> None:
    records = sweep(problem, tmp_path / "runs")
    runs = [(fold, draw, step) for fold in folds(range(3), range(3))
            for draw in range(DRAWS) for step in CHECKPOINTS]  # fmt: skip
    assert [(each.test_domains, each.draw, each.step) for each in records] == runs
    for each in records:
        assert each.hyperparameters == hyperparameters(each.draw, 0)
        assert set(each.inside) == set(each.outside) == {0, 1, 2}
    for rule in RULES:
        best = chosen(rule, 1, 0, records)
        assert best is not None
        assert best.test_domains == (1,)


def test_by_held_out_images(problem: Problem, tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    tuned = tuner(problem, "training-domain", folder).tuned()
    every: list[tuple[float, int, int]] = []
    finished = tuner(problem, "training-domain", folder)
    for draw in range(DRAWS):
        run = finished._run(finished._key((), draw))
        every += [(float(np.mean([*r.outside.values()])), draw, -r.step) for r in run.records]
    value, draw, step = max(every)
    assert (tuned.record.draw, tuned.record.step) == (draw, -step)
    assert np.mean([*tuned.accuracy.values()]) == pytest.approx(100 * value)
    assert set(tuned.accuracy) == set(small.DOMAINS)
    assert tuned.left_out == {}
    assert len([*folder.glob("*-weights.safetensors")]) == 1


def test_by_domain(problem: Problem, tmp_path: Path) -> None:
    """Against the means over the runs of the search that leave out one domain each."""
    folder = tmp_path / "runs"
    tuned = tuner(problem, "leave-one-domain-out", folder).tuned()
    found = {
        (record.draw, record.step, *record.test_domains): record
        for record in sweep(problem, folder)
    }
    every = [
        (np.mean([found[draw, step, d].inside[d] for d in range(3)]), draw, -step)
        for draw in range(DRAWS)
        for step in CHECKPOINTS
    ]
    value, draw, step = max(every)
    assert (tuned.record.draw, tuned.record.step) == (draw, -step)
    assert np.mean([*tuned.accuracy.values()]) == pytest.approx(100 * value)
    for number, name in enumerate(small.DOMAINS):
        inside, _ = problem.split(name, 0)
        rows = problem.rows(name)
        right = tuned.left_out[name].argmax(axis=1) == problem.labels[rows]
        accuracy = right[np.isin(rows, inside)].mean()
        assert tuned.accuracy[name] == pytest.approx(100 * accuracy)
        assert tuned.record.test_domains == ()
        assert number in tuned.record.inside


@pytest.mark.parametrize("rule", RULES)
def test_weights_of_the_chosen_step(problem: Problem, rule: str) -> None:
    """The weights are those of a run on all domains that ends there."""
    mine = tuner(problem, rule)
    tuned = mine.tuned()
    found = weights(tuned)
    key = mine._key((), tuned.record.draw)._replace(steps=tuned.record.step + 1)
    mine._network.parts.to("cpu")
    mine._runs.do(key, mine._events, lambda record: record.step == tuned.record.step)
    expected = mine._runs.weights(key)
    assert expected is not None
    for name, each in found.items():
        torch.testing.assert_close(each, expected[f"features.{name}"], rtol=0, atol=0)
    np.testing.assert_array_equal(tuned.head.weights, expected["head.weight"].double().numpy())
    np.testing.assert_array_equal(tuned.head.bias, expected["head.bias"].double().numpy())


@pytest.mark.parametrize("rule", RULES)
def test_resumes(problem: Problem, tmp_path: Path, rule: str) -> None:
    whole = tuner(problem, rule).tuned()
    listener = Recorder(limit=2 * STEPS - 1)
    with (
        pytest.raises(KeyboardInterrupt),
        Stage(listener, "tuning") as stage,
    ):
        tuner(problem, rule, tmp_path / "runs", stage=stage).tuned()
    rest, nothing = Recorder(), Recorder()
    for each in (rest, nothing):
        with Stage(each, "tuning") as stage:
            resumed = tuner(problem, rule, tmp_path / "runs", stage=stage).tuned()
        torch.testing.assert_close(weights(resumed), weights(whole), rtol=0, atol=0)
        np.testing.assert_array_equal(resumed.head.weights, whole.head.weights)
        assert resumed.record == whole.record
        assert resumed.accuracy == whole.accuracy
    runs = DRAWS if rule == "training-domain" else 3 * DRAWS
    last = whole.record.step + 1 if rule == "leave-one-domain-out" else 0
    assert len(rest.steps) == (runs - 1) * STEPS + last
    assert rest.steps[-1][0] == rest.steps[-1][1]
    assert rest.metrics == {"loss"}
    assert nothing.steps == []


def test_planned_steps(problem: Problem, tmp_path: Path) -> None:
    held_out = tuner(problem, "training-domain", tmp_path / "a")
    assert held_out.planned_steps() == DRAWS * STEPS
    assert held_out.estimated_seconds() > 0
    held_out.tuned()
    assert held_out.planned_steps() == 0
    assert tuner(problem, "leave-one-domain-out").planned_steps() == (3 * DRAWS + 1) * STEPS


@pytest.mark.parametrize(
    "change",
    [{"name": "small@2"}, {"preprocessing": square(small.SIZE, small.STD, small.STD)}],
    ids=["another layer", "another preprocessing"],
)
def test_runs_of_another_model(problem: Problem, tmp_path: Path, change: dict[str, Any]) -> None:
    tuner(problem, "training-domain", tmp_path / "runs")
    other = replace(small.trainable(), **change)
    with pytest.raises(InputError, match="has checkpoints of another model"):
        ErmTuner(lambda: other, problem, ErmSettings(), device="cpu", folder=tmp_path / "runs")


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ({"kind": "regression"}, "is for classes"),
        ({"domains": ("art",)}, "at least two domains, got 1 domain: art"),
    ],
)
def test_what_the_protocol_cannot_tune(tmp_path: Path, what: dict[str, Any], message: str) -> None:
    with small.problem(tmp_path, **what) as problem, pytest.raises(InputError, match=message):
        tuner(problem, "training-domain")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"draws": 0}, "draws must be 1 or more, got 0"),
        ({"steps": 2.5}, "steps must be a whole number, got 2.5"),
        ({"steps": -1}, "steps must be 1 or more, got -1"),
        ({"choose_by": "oracle"}, "choose_by must be one of"),
        ({"search_space": "PACS"}, "unknown search space 'PACS'"),
    ],
)
def test_wrong_settings(settings: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        ErmSettings(**settings)
