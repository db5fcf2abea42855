"""One training run, step by step against a plain loop, which `tune` does not show."""

from __future__ import annotations

import copy
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.store.data import flip
from tests.tuning import small

from oodzoo.core.io import temporary_name
from oodzoo.linear.heads.domainbed.protocol import seed_hash
from oodzoo.tuning import trainer
from oodzoo.tuning.images import augmented
from oodzoo.tuning.network import HeadedNetwork
from oodzoo.tuning.problem import TuneSettings, TuningData
from oodzoo.tuning.runs import CHECKPOINT, read_tensors
from oodzoo.tuning.trainer import RunEvents, Trajectory, segment_steps, train_and_average
from oodzoo.tuning.tuner import Tuner
from oodzoo.zoo.model import Trainable

torch = pytest.importorskip("torch")

RATE = 2e-3
SETTINGS = TuneSettings(steps=10, batch_size=3, weight_decay=0.1, learning_rates=(RATE,))


class OneRun:
    """A run on two domains, from a linear head with random weights."""

    def __init__(
        self, problem: TuningData, settings: TuneSettings = SETTINGS, module: Any | None = None
    ) -> None:
        module = small.features() if module is None else module
        torch.manual_seed(1)
        trainable = Trainable("small", module, small.PREPROCESSING, small.DIM, lambda file: None)
        tuner = Tuner(lambda: trainable, problem, settings, device="cpu")
        self.network = tuner.network
        self.training = tuner._trainer(("art", "sketch"), settings.learning_rates[0])
        parts = [problem.split(domain, settings.seed) for domain in ("art", "sketch")]
        self.held_out = np.concatenate([outside for _, outside in parts])

    def run(self, folder: Path | None = None, events: RunEvents | None = None) -> Trajectory:
        return train_and_average(self.training, self.held_out, folder, events)


def twin_of(problem: TuningData, settings: TuneSettings, module: Any | None = None) -> Any:
    """The path of the plain loop on the same images; weights have the names of the network."""
    oracle = pytest.importorskip("tests.oracles.fine_tuning")
    network = copy.deepcopy(OneRun(problem, replace(settings, lora=None), module).network.parts)
    parts = [problem.split(domain, settings.seed) for domain in ("art", "sketch")]
    held_out = np.concatenate([outside for _, outside in parts])
    mean, std = (torch.tensor(each).view(3, 1, 1) for each in (small.MEAN, small.STD))
    labels = torch.from_numpy(problem.labels)

    def normalised(batch: Any) -> Any:
        return (batch - mean) / std

    def images(pixels: Any) -> Any:
        return torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255

    def batches(step: int) -> tuple[Any, Any]:
        rng = np.random.default_rng(seed_hash(settings.seed, step, "images"))
        rows = np.concatenate([rng.choice(each, settings.batch_size) for each, _ in parts])
        if not settings.augment:
            return normalised(images(problem.images.prepared(rows))), labels[rows]
        batch = images(problem.images.cropped(rows, seed_hash(settings.seed, step, "crops")))
        batch = augmented(batch, seed_hash(settings.seed, step, "colours"))
        return normalised(batch), labels[rows]

    inside = np.concatenate([each for each, _ in parts])
    return oracle.train(
        torch.nn.Sequential(OrderedDict(network.items())),
        batches,
        (normalised(images(problem.images.prepared(held_out))), labels[held_out]),
        kind=problem.task.kind,
        learning_rate=settings.learning_rates[0],
        steps=settings.steps,
        schedule=settings.schedule,
        weight_decay=settings.weight_decay,
        scale=torch.from_numpy(problem.labels[inside].std(axis=0).astype(np.float32))
        if problem.task.kind == "regression"
        else None,
    )


def assert_same(found: dict[str, Any], expected: dict[str, Any], atol: float = 1e-6) -> None:
    assert found.keys() == expected.keys()
    for name, each in expected.items():
        torch.testing.assert_close(found[name], each, rtol=0, atol=atol)


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("classification", {}),
        ("classification", {"schedule": "constant", "weight_decay": 0.0}),
        ("classification", {"augment": False, "seed": 3}),
        ("regression", {}),
        ("multilabel", {}),
    ],
)
def test_updates_of_a_plain_loop(folder: Path, kind: Any, change: dict[str, Any]) -> None:
    settings = replace(SETTINGS, **change)
    metrics: list[tuple[str, float, int]] = []
    with small.problem(folder, kind=kind) as problem:
        path, mine = twin_of(problem, settings), OneRun(problem, settings)
        start = mine.network.weights()
        found = mine.run(events=RunEvents(metric=lambda *facts: metrics.append(facts)))
    assert_same(found.last, path.weights[-1])
    assert max(float((found.last[name] - start[name]).abs().max()) for name in start) > 1e-3
    for name, expected in (("loss", path.losses), ("validation_loss", path.validation)):
        values = [value for each, value, _ in metrics if each == name]
        assert values == pytest.approx(expected, rel=1e-4, abs=1e-5)
        assert [step for each, _, step in metrics if each == name] == list(range(10))
    assert len(metrics) == 20


def test_the_average_is_that_of_swad(problem: TuningData) -> None:
    oracle = pytest.importorskip("tests.oracles.fine_tuning")
    settings = replace(SETTINGS, steps=45, learning_rates=(1e-2,), schedule="constant")
    mine = OneRun(problem, settings)
    assert segment_steps(settings.steps) == 2
    found = mine.run()
    path = twin_of(problem, settings)
    weights, window = oracle.swad(path, 2)
    assert (found.average.start, found.average.end) == window
    assert_same(found.average.weights, weights, 1e-5)
    # it is no single point of the path
    assert min(float((found.average.weights["head.weight"] - each["head.weight"]).abs().max())
               for each in path.weights) > 1e-4  # fmt: skip


@pytest.mark.parametrize("lora", [None, 2])
def test_passes_have_the_update_of_one(
    problem: TuningData, monkeypatch: pytest.MonkeyPatch, lora: int | None
) -> None:
    settings = replace(SETTINGS, lora=lora, batch_size=7)
    losses: list[list[float]] = [[], []]
    sizes: list[set[int]] = [set(), set()]
    outputs = HeadedNetwork.outputs

    def counted(self: HeadedNetwork, batch: Any) -> Any:
        sizes[0].add(len(batch))
        return outputs(self, batch)

    monkeypatch.setattr(HeadedNetwork, "outputs", counted)
    events = RunEvents(metric=lambda name, value, step: losses[0].append(value))
    whole = OneRun(problem, settings).run(events=events)
    sizes.reverse()
    losses.reverse()
    # an image takes 2.6 kB: there is room for 3 of the 14, their half would be 7
    monkeypatch.setattr("oodzoo.tuning.network.available_memory", lambda: 30_000)
    parts = OneRun(problem, settings).run(events=events)
    assert [max(each) for each in sizes] == [3, 14]
    assert_same(parts.last, whole.last)
    assert_same(parts.average.weights, whole.average.weights)
    assert losses[1] == pytest.approx(losses[0], abs=1e-5)


def test_classes_of_held_out_images_only(problem: TuningData) -> None:
    """They do not count in the validation, as no training could learn them."""
    art, sketch = (problem.split(domain, 0) for domain in ("art", "sketch"))
    held_out = np.concatenate([art[1], sketch[1]])
    labels = problem.labels % 2
    labels[held_out[[0, 3]]] = 2
    changed = replace(problem, labels=labels)
    losses: list[list[float]] = []
    for rows in (held_out, held_out[[1, 2]]):
        found: list[float] = []
        losses.append(found)
        events = RunEvents(metric=lambda name, value, step, to=found: to.append(value))  # type: ignore[misc]
        train_and_average(OneRun(changed).training, rows, events=events)
    assert losses[0] == losses[1]


def test_statistics_and_dropout_are_those_of_inference(problem: TuningData) -> None:
    module = torch.nn.Sequential(*small.features(), torch.nn.Dropout(0.5)).train()
    mine = OneRun(problem, module=copy.deepcopy(module))
    before = {name: each.clone() for name, each in mine.network.parts.named_buffers()}
    assert any("running_mean" in name for name in before)
    found = mine.run()
    assert_same(dict(mine.network.parts.named_buffers()), before, 0)
    path = twin_of(problem, SETTINGS, module)
    assert_same(found.last, path.weights[-1])


class Stopped(Exception):
    """Raised in the middle of a run."""


def stopping_at(step: int) -> RunEvents:
    counted = []

    def count() -> None:
        counted.append(1)
        if len(counted) == step:
            raise Stopped

    return RunEvents(count)


@pytest.mark.parametrize(("lora", "steps"), [(2, 10), (None, 44)])
def test_stopped_and_resumed(
    problem: TuningData,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    lora: int | None,
    steps: int,
) -> None:
    """Also from a damaged checkpoint, and with files of a killed process beside it."""
    monkeypatch.setattr(trainer, "CHECKPOINT_SECONDS", 0.0)
    settings = replace(SETTINGS, steps=steps, lora=lora)
    if steps == 44:  # high enough for an average over several segments
        settings = replace(settings, learning_rates=(3e-2,), schedule="constant")
    expected = OneRun(problem, settings).run()
    assert expected.average.end - expected.average.start > (4 if steps == 44 else -1)
    run = tmp_path / "run"
    for step in (1, steps // 3, 2 * steps // 3, steps):  # the first before any checkpoint
        with pytest.raises(Stopped):
            OneRun(problem, settings).run(run, stopping_at(step))
    left = run / temporary_name()
    left = left.with_name(left.name.replace(left.name.split("-")[2], "999999999"))
    left.write_bytes(b"half")
    _, facts = read_tensors(run / CHECKPOINT)  # type: ignore[misc]
    assert 0 < facts["step"] < steps
    content = (run / CHECKPOINT).read_bytes()
    counted: list[int] = []
    found = OneRun(problem, settings).run(run, RunEvents(lambda: counted.append(1)))
    assert len(counted) == steps
    assert not left.exists()
    assert_equal(found, expected)
    for kept in (0, 100, len(content) - 5):
        (run / CHECKPOINT).write_bytes(content[:kept])
        assert read_tensors(run / CHECKPOINT) is None
    if steps == 10:
        (run / CHECKPOINT).write_bytes(content)
        flip(run / CHECKPOINT, 8 * len(content) - 150)  # in the state of the average
        assert_equal(OneRun(problem, settings).run(run), expected)


def assert_equal(found: Trajectory, expected: Trajectory) -> None:
    assert_same(found.last, expected.last, 0)
    assert_same(found.average.weights, expected.average.weights, 0)
    ends = ((each.start, each.end) for each in (found.average, expected.average))
    assert next(ends) == next(ends)
