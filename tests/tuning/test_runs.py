"""Runs that leave domains out: candidates, which `tune` does not show, and files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import log_softmax
from tests.killing import STEP, Job, children, needs_fork
from tests.store.data import flip
from tests.tuning import small

from oodzoo.events import Listener, Stage
from oodzoo.extraction.columns import Samples
from oodzoo.linear.heads.kinds import fit_head_of
from oodzoo.tasks import task_of
from oodzoo.tuning import trainer
from oodzoo.tuning.problem import TuneSettings, TuningData
from oodzoo.tuning.runs import RunKey, TrainingRun
from oodzoo.tuning.tuner import CANDIDATES, Tuner

torch = pytest.importorskip("torch")

SETTINGS = TuneSettings(steps=6, batch_size=3, learning_rates=(3e-3,))
KEY: RunKey = (frozenset(["photo"]), 3e-3)


def runs_of(
    problem: TuningData,
    folder: Path | None = None,
    settings: TuneSettings = SETTINGS,
    stage: Stage | None = None,
) -> Tuner:
    return Tuner(small.trainable, problem, settings, device="cpu", folder=folder, stage=stage)


def features_of(problem: TuningData, rows: Any, module: Any | None = None) -> Any:
    pixels = small.PREPROCESSING.normalise(problem.images.prepared(rows))
    with torch.no_grad():
        return (module or small.features())(torch.from_numpy(pixels)).numpy()


def assert_same(found: TrainingRun, expected: TrainingRun) -> None:
    for part in ("outputs", "held_out"):
        mine, theirs = getattr(found, part), getattr(expected, part)
        assert mine.keys() == theirs.keys()
        for domain, outputs in theirs.items():
            np.testing.assert_array_equal(mine[domain], outputs)


class Steps(Listener):
    """Counts steps."""

    def __init__(self) -> None:
        self.done = 0

    def progress(self, stage: str, done: int, total: int, **facts: Any) -> None:
        self.done += "message" not in facts


@pytest.mark.parametrize("lora", [None, 2])
def test_candidates_are_mixtures(problem: TuningData, lora: int | None) -> None:
    mine = runs_of(problem, settings=replace(SETTINGS, lora=lora))
    run = mine.train(KEY, True)
    ends = mine.weights(KEY)
    rows = problem.rows("photo")
    for at, candidate in enumerate(CANDIDATES):
        module = torch.nn.ModuleDict(
            {"features": small.features(), "head": torch.nn.Linear(small.DIM, small.CLASSES)}
        )
        share = candidate.mixing
        for name, parameter in module.named_parameters():
            end = ends[candidate.weights][name]
            parameter.data = (1 - share) * ends["start"][name] + share * end
        weight, bias = (each.detach().numpy() for each in module["head"].parameters())
        logits = features_of(problem, rows, module["features"]) @ weight.T + bias
        np.testing.assert_allclose(
            run.outputs["photo"][at], log_softmax(logits, axis=1), rtol=1e-4, atol=1e-5
        )
    assert CANDIDATES[0].mixing == 0


def test_random_head(problem: TuningData) -> None:
    """The training begins with it; the first candidate is still the linear head."""
    settings = replace(SETTINGS, start="random")
    torch.manual_seed(0)
    expected = torch.rand(3)
    mine, other = runs_of(problem, settings=settings), runs_of(problem, settings=settings)
    another = runs_of(problem, settings=replace(settings, seed=1))
    probe = runs_of(problem).train(KEY)
    torch.manual_seed(0)
    run = mine.train(KEY, True)
    torch.testing.assert_close(torch.rand(3), expected, rtol=0, atol=0)
    np.testing.assert_array_equal(run.outputs["photo"][0], probe.outputs["photo"][0])
    other.train((frozenset(["art"]), 3e-3), True)
    another.train(KEY, True)
    ends = mine.weights(KEY)
    same = other.weights((frozenset(["art"]), 3e-3))
    torch.testing.assert_close(ends["random"], same["random"], rtol=0, atol=0)
    differing = another.weights(KEY)["random"]
    assert not torch.equal(differing["head.bias"], ends["random"]["head.bias"])
    # few steps at a low learning rate do not lead far from the random head
    assert float((ends["last"]["head.weight"] - ends["random"]["head.weight"]).abs().max()) < 0.05
    assert float((ends["last"]["head.weight"] - ends["start"]["head.weight"]).abs().max()) > 0.05
    mine.network.load(CANDIDATES[6].of(ends))
    share = CANDIDATES[6].mixing
    middle = (1 - share) * ends["random"]["head.bias"] + share * ends["last"]["head.bias"]
    torch.testing.assert_close(mine.network.weight("head.bias").detach(), middle)
    labels = np.where(problem.numbers == 1, 2, problem.labels % 2)  # a class that training lacks
    run = runs_of(replace(problem, labels=labels)).train(KEY)
    assert (run.outputs["photo"][:, :, 2] == -np.inf).all()


def test_finished_runs_are_kept(problem: TuningData, tmp_path: Path) -> None:
    first = runs_of(problem, tmp_path / "runs")
    assert first.runs.get(KEY) is None
    done = first.train(KEY, True)
    ends = first.weights(KEY)
    steps = Steps()
    again = runs_of(problem, tmp_path / "runs", stage=Stage(steps, "tuning"))
    found = again.runs.get(KEY)
    assert found is not None
    assert_same(found, done)
    assert found.seconds == done.seconds
    torch.testing.assert_close(again.weights(KEY), ends, rtol=0, atol=0)
    assert steps.done == 0
    assert again.runs.get((frozenset(["photo"]), 1e-3)) is None
    assert again.runs.get((frozenset(["art"]), 3e-3)) is None
    names = sorted(each.name.split("-")[-1] for each in (tmp_path / "runs").iterdir())
    assert names[1:] == ["run.safetensors", "weights.safetensors"]


@pytest.mark.parametrize("what", ["run", "weights"])
def test_damaged_results_are_computed_again(folder: Path, tmp_path: Path, what: str) -> None:
    """Names of domains may have any characters."""
    with small.problem(folder, ("a/b", "ü ", "/")) as problem:
        key: RunKey = (frozenset(["a/b", "/"]), 3e-3)
        done = runs_of(problem, tmp_path / "runs").train(key, True)
        (file,) = (tmp_path / "runs").glob(f"*-{what}.safetensors")
        flip(file, 8 * file.stat().st_size - 150)  # in the weights
        steps = Steps()
        again = runs_of(problem, tmp_path / "runs", stage=Stage(steps, "tuning"))
        assert again.runs.get(key) is None if what == "run" else again.weights(key)
        assert_same(again.runs.get(key) or again.train(key), done)
        assert steps.done == SETTINGS.steps


def train(images: str, folder: str, lora: int | None) -> None:
    """A run with a checkpoint after each step."""
    trainer.CHECKPOINT_SECONDS = 0.0
    with small.problem(Path(images)) as problem:
        settings = replace(SETTINGS, lora=lora)
        runs_of(problem, Path(folder), settings=settings).train(KEY, True)


@needs_fork
@pytest.mark.parametrize("lora", [2])
def test_killed_and_resumed(
    problem: TuningData, folder: Path, tmp_path: Path, lora: int | None
) -> None:
    """The weights are the same, bit for bit, wherever the process was killed."""
    settings = replace(SETTINGS, lora=lora)
    reference = runs_of(problem, tmp_path / "reference", settings=settings)
    expected = reference.train(KEY, True)
    (weights,) = (tmp_path / "reference").glob("*-weights.safetensors")
    function = "tests.tuning.test_runs:train"
    with children("tests.tuning.test_runs") as processes:
        moment = 3
        while processes.killed(moment, function, folder, tmp_path / f"{moment}", lora):
            processes.succeed(Job(function, (folder, tmp_path / f"{moment}", lora)))
            moment += 2 * STEP + 1
    assert moment > 20
    for each in range(3, moment, (2 * STEP + 1)):
        file = tmp_path / f"{each}" / weights.name
        assert file.read_bytes() == weights.read_bytes()
        found = runs_of(problem, tmp_path / f"{each}", settings=settings).runs.get(KEY)
        assert found is not None
        assert_same(found, expected)


@pytest.mark.parametrize("kind", ["classification", "regression", "multilabel"])
def test_the_first_candidate_is_the_linear_head(folder: Path, kind: Any) -> None:
    with small.problem(folder, kind=kind) as problem:
        run = runs_of(problem).train(KEY)
        inside = [problem.split(domain, 0)[0] for domain in ("art", "sketch")]
        rows = np.concatenate(inside)
        numbers = np.repeat([0, 1], [len(each) for each in inside])
        samples = Samples(features_of(problem, rows), problem.labels[rows], numbers)
        head = fit_head_of(task_of(kind), samples, small.CLASSES)
        parts = {"photo": problem.rows("photo")}
        parts |= {domain: problem.split(domain, 0)[1] for domain in ("art", "sketch")}
        assert list(run.outputs) == ["photo"]
        assert sorted(run.held_out) == ["art", "sketch"]
        for domain, here in parts.items():
            expected = head.logits(features_of(problem, here))
            if kind == "classification":
                expected = log_softmax(expected, axis=1)
            found = (run.outputs | run.held_out)[domain]
            assert found.shape == (len(CANDIDATES), len(here), small.CLASSES)
            np.testing.assert_allclose(found[0], expected, rtol=1e-4, atol=1e-4)
            assert np.abs(found[-1] - found[0]).max() > 1e-3
