"""ERM under DomainBed's protocol: its update, its runs, and the search."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.tuning import small

from oodzoo.events import Listener, Stage
from oodzoo.linear.heads.domainbed.protocol import (
    CHECKPOINT_EVERY,
    Record,
    hyperparameters,
    seed_hash,
)
from oodzoo.tuning.domainbed import ErmKey, ErmSettings, ErmTuner
from oodzoo.tuning.images import augmented
from oodzoo.tuning.problem import TuningData
from oodzoo.tuning.tuner import Tuned

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def checkpoint_every(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CHECKPOINT_EVERY, "default", 2)


def drawn_with_dropout() -> int:
    """A draw of trial 1 with dropout and weight decay."""
    return next(draw for draw in range(1, 20) if hyperparameters(draw, 1).dropout > 0)


def test_run_of_domainbed(problem: TuningData) -> None:
    """Updates, accuracies and checkpoints against DomainBed's ERM on the same images."""
    oracle = pytest.importorskip("tests.oracles.domainbed_erm")
    draw = drawn_with_dropout()
    key = ErmKey((1,), 1, draw, 6)
    listener = Recorder()
    mine = tuner(problem, "training-domain", stage=Stage(listener, "tuning"))
    run = mine.train(key, lambda record: record.step == 5)

    chosen = hyperparameters(draw, 1)
    hparams = {
        "lr": chosen.lr,
        "weight_decay": chosen.weight_decay,
        "resnet_dropout": chosen.dropout,
    }
    seed = seed_hash(0, "ERM", [1], draw, 1)
    torch.manual_seed(seed)
    classifier = torch.nn.Linear(small.DIM, small.CLASSES)
    featurizer = oracle.Featurizer(copy.deepcopy(small.features()), small.DIM, hparams)
    twin = oracle.ERM(featurizer, small.CLASSES, hparams)
    twin.classifier.load_state_dict(classifier.state_dict())
    twin.train()
    mean, std = (torch.tensor(each).view(3, 1, 1) for each in (small.MEAN, small.STD))

    def images(pixels: Any) -> Any:
        return torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255

    def accuracy(rows: Any, colours: int | None = None) -> float:
        if colours is None:
            batch = images(problem.images.prepared(rows))
        else:
            batch = augmented(images(problem.images.cropped(rows, colours)), colours)
        labels = torch.from_numpy(problem.labels[rows])
        return float(oracle.accuracy(twin, [((batch - mean) / std, labels)]))

    expected_losses, since = [], []
    checkpoints = iter(run.records)
    for step in range(6):
        rng = np.random.default_rng(seed_hash(seed, step, "images"))
        splits = [problem.split(name, 1)[0] for name in ("art", "sketch")]
        rows = np.concatenate([rng.choice(each, chosen.batch_size) for each in splits])
        batch = images(problem.images.cropped(rows, seed_hash(seed, step, "crops")))
        batch = (augmented(batch, seed_hash(seed, step, "colours")) - mean) / std
        labels = torch.from_numpy(problem.labels[rows])
        size = chosen.batch_size
        torch.manual_seed(seed_hash(seed, step, "dropout"))
        since.append(twin.update([(batch[:size], labels[:size]), (batch[size:], labels[size:])]))
        if step in (0, 2, 4, 5):
            expected_losses.append(np.mean([each["loss"] for each in since]))
            since = []
            record = next(checkpoints)
            assert (record.test_domains, record.trial, record.draw) == ((1,), 1, draw)
            assert record.step == step
            for number, name in enumerate(small.DOMAINS):
                for at, found in enumerate((record.inside, record.outside)):
                    part = problem.split(name, 1)[at]
                    colours = None if number == 1 else seed_hash(seed, step, number, at)
                    assert found[number] == pytest.approx(accuracy(part, colours))
    assert next(checkpoints, None) is None
    assert listener.values == pytest.approx(expected_losses, abs=1e-6)
    weights = mine.weights(key)["kept"]
    for name, each in twin.featurizer.network.named_parameters():
        torch.testing.assert_close(weights[f"features.{name}"], each.detach(), rtol=0, atol=1e-6)
    for name, each in twin.classifier.named_parameters():
        torch.testing.assert_close(weights[f"head.{name}"], each.detach(), rtol=0, atol=1e-6)


STEPS, DRAWS = 5, 2
CHECKPOINTS = [0, 2, 4]
RULES = ("training-domain", "leave-one-domain-out")


class Recorder(Listener):
    """Counts steps, and interrupts the work after some of them."""

    def __init__(self, limit: int | None = None) -> None:
        self.steps: list[tuple[int, int]] = []
        self.metrics: set[str] = set()
        self.values: list[float] = []
        self._limit = limit

    def progress(self, stage: str, done: int, total: int, **facts: Any) -> None:
        if not facts:
            self.steps.append((done, total))
            if len(self.steps) == self._limit:
                raise KeyboardInterrupt

    def metric(self, stage: str, name: str, value: float, *, step: int | None = None) -> None:
        self.metrics.add(name)
        self.values.append(value)


def tuner(problem: TuningData, rule: Any, folder: Path | None = None, **options: Any) -> ErmTuner:
    settings = ErmSettings(choose_by=rule, draws=DRAWS, steps=STEPS)
    return ErmTuner(small.trainable, problem, settings, device="cpu", folder=folder, **options)


def weights(tuned: Tuned) -> dict[str, Any]:
    return {name: each.detach().clone() for name, each in tuned.trainable.module.named_parameters()}


def sweep(problem: TuningData, folder: Path) -> list[Record]:
    settings = ErmSettings(draws=DRAWS, steps=STEPS)
    return ErmTuner(small.trainable, problem, settings, device="cpu", folder=folder).sweep(trials=1)


def test_by_held_out_images(problem: TuningData, tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    tuned = tuner(problem, "training-domain", folder).tuned()
    every: list[tuple[float, int, int]] = []
    finished = tuner(problem, "training-domain", folder)
    for draw in range(DRAWS):
        run = finished.run(finished.key((), draw), None)
        every += [(float(np.mean([*r.outside.values()])), draw, -r.step) for r in run.records]
    value, draw, step = max(every)
    assert (tuned.choice["draw"], tuned.choice["step"]) == (draw, -step)
    assert np.mean([*tuned.metrics["erm"].values()]) == pytest.approx(100 * value)
    assert set(tuned.metrics["erm"]) == set(small.DOMAINS)
    assert tuned.left_out == {}
    assert len([*folder.glob("*-weights.safetensors")]) == 1


def test_by_domain(problem: TuningData, tmp_path: Path) -> None:
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
    assert (tuned.choice["draw"], tuned.choice["step"]) == (draw, -step)
    assert np.mean([*tuned.metrics["erm"].values()]) == pytest.approx(100 * value)
    for name in small.DOMAINS:
        inside, _ = problem.split(name, 0)
        rows = problem.rows(name)
        right = tuned.left_out[name].argmax(axis=1) == problem.labels[rows]
        accuracy = right[np.isin(rows, inside)].mean()
        assert tuned.metrics["erm"][name] == pytest.approx(100 * accuracy)


@pytest.mark.parametrize("rule", RULES)
def test_weights_of_the_chosen_step(problem: TuningData, rule: str) -> None:
    """The weights are those of a run on all domains that ends there."""
    mine = tuner(problem, rule)
    tuned = mine.tuned()
    found = weights(tuned)
    step = tuned.choice["step"]
    key = mine.key((), tuned.choice["draw"])._replace(steps=step + 1)
    mine.train(key, lambda record: record.step == step)
    expected = mine.weights(key)["kept"]
    for name, each in found.items():
        torch.testing.assert_close(each, expected[f"features.{name}"], rtol=0, atol=0)
    np.testing.assert_array_equal(tuned.head.weights, expected["head.weight"].double().numpy())
    np.testing.assert_array_equal(tuned.head.bias, expected["head.bias"].double().numpy())


@pytest.mark.parametrize("rule", RULES)
def test_resumes(problem: TuningData, tmp_path: Path, rule: str) -> None:
    whole = tuner(problem, rule).tuned()
    listener = Recorder(limit=2 * STEPS - 1)
    with pytest.raises(KeyboardInterrupt), Stage(listener, "tuning") as stage:
        tuner(problem, rule, tmp_path / "runs", stage=stage).tuned()
    rest, nothing = Recorder(), Recorder()
    for each in (rest, nothing):
        with Stage(each, "tuning") as stage:
            resumed = tuner(problem, rule, tmp_path / "runs", stage=stage).tuned()
        torch.testing.assert_close(weights(resumed), weights(whole), rtol=0, atol=0)
        np.testing.assert_array_equal(resumed.head.weights, whole.head.weights)
        assert (resumed.choice, resumed.metrics) == (whole.choice, whole.metrics)
    runs = DRAWS if rule == "training-domain" else 3 * DRAWS
    last = whole.choice["step"] + 1 if rule == "leave-one-domain-out" else 0
    assert len(rest.steps) == (runs - 1) * STEPS + last
    assert rest.steps[-1][0] == rest.steps[-1][1]
    assert rest.metrics == {"loss"}
    assert nothing.steps == []


def test_planned_steps(problem: TuningData, tmp_path: Path) -> None:
    held_out = tuner(problem, "training-domain", tmp_path / "a")
    assert held_out.planned_steps() == DRAWS * STEPS
    assert held_out.estimated_seconds() > 0
    held_out.tuned()
    assert held_out.planned_steps() == 0
    assert tuner(problem, "leave-one-domain-out").planned_steps() == (3 * DRAWS + 1) * STEPS
