"""Runs of DomainBed's ERM: their updates, accuracies and results on disk."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.tuning import small

from oodzoo.errors import InputError
from oodzoo.heads.domainbed.protocol import CHECKPOINT_EVERY, hyperparameters, seed_hash
from oodzoo.tuning.augmentation import augmented
from oodzoo.tuning.erm import ErmKey, ErmRuns
from oodzoo.tuning.network import Network
from oodzoo.tuning.problem import Problem
from oodzoo.tuning.training import Events

torch = pytest.importorskip("torch")


@pytest.fixture
def problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Problem]:
    monkeypatch.setitem(CHECKPOINT_EVERY, "default", 2)
    (tmp_path / "images").mkdir()
    with small.problem(tmp_path / "images") as found:
        yield found


def runs(problem: Problem, folder: Path | None = None, identity: str = "a") -> ErmRuns:
    network = Network(small.trainable(), small.CLASSES, "cpu")
    return ErmRuns(network, problem, "default", 0, folder, identity)


def never(record: Any) -> bool:
    return False


def drawn_with_dropout() -> int:
    """A draw of trial 1 with dropout and weight decay."""
    return next(draw for draw in range(1, 20) if hyperparameters(draw, 1).dropout > 0)


def test_run_of_domainbed(problem: Problem) -> None:
    """Updates, accuracies and checkpoints against DomainBed's ERM on the same images."""
    oracle = pytest.importorskip("tests.oracles.domainbed_erm")
    draw = drawn_with_dropout()
    key = ErmKey((1,), 1, draw, 6)
    losses: list[float] = []
    events = Events(metric=lambda name, value, step: losses.append(value))
    mine = runs(problem)
    run = mine.do(key, events, lambda record: record.step == 5)

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
    assert losses == pytest.approx(expected_losses, abs=1e-6)
    weights = mine.weights(key)
    assert weights is not None
    for name, each in twin.featurizer.network.named_parameters():
        torch.testing.assert_close(weights[f"features.{name}"], each.detach(), rtol=0, atol=1e-6)
    for name, each in twin.classifier.named_parameters():
        torch.testing.assert_close(weights[f"head.{name}"], each.detach(), rtol=0, atol=1e-6)


def test_outputs_of_left_out_domains(problem: Problem) -> None:
    run = runs(problem).do(ErmKey((0, 2), 0, 0, 4), Events(), never)
    assert [record.step for record in run.records] == [0, 2, 3]
    assert {domain: each.shape for domain, each in run.outputs.items()} == {
        0: (3, 10, small.CLASSES),
        2: (3, 12, small.CLASSES),
    }
    for at, record in enumerate(run.records):
        for domain in (0, 2):
            rows = problem.rows(small.DOMAINS[domain])
            inside, outside = problem.split(small.DOMAINS[domain], 0)
            right = dict(
                zip(
                    rows.tolist(),
                    run.outputs[domain][at].argmax(axis=1) == problem.labels[rows],
                    strict=True,
                )
            )
            assert record.inside[domain] == np.mean([right[row] for row in inside.tolist()])
            assert record.outside[domain] == np.mean([right[row] for row in outside.tolist()])
    np.testing.assert_allclose(np.exp(run.outputs[0]).sum(axis=2), 1, atol=1e-5)


def test_kept_in_a_folder(problem: Problem, tmp_path: Path) -> None:
    key = ErmKey((1,), 0, 1, 3)
    first = runs(problem, tmp_path / "runs")
    run = first.do(key, Events(), lambda record: record.step == 0)
    again = runs(problem, tmp_path / "runs")
    found = again.get(key)
    assert found is not None
    assert (found.records, found.seconds) == (run.records, run.seconds)
    np.testing.assert_array_equal(found.outputs[1], run.outputs[1])
    torch.testing.assert_close(again.weights(key), first.weights(key), rtol=0, atol=0)
    assert again.get(key._replace(draw=0)) is None
    again.forget_weights(key)
    assert runs(problem, tmp_path / "runs").weights(key) is None
    with pytest.raises(InputError, match="checkpoints of another model"):
        runs(problem, tmp_path / "runs", identity="b")


def test_kept_weights_are_those_of_a_shorter_run(problem: Problem) -> None:
    """The learning rate is constant, so that a run can be cut off."""
    mine = runs(problem)
    whole, cut = ErmKey((), 0, 0, 5), ErmKey((), 0, 0, 3)
    records = [mine.do(key, Events(), lambda record: record.step == 2) for key in (whole, cut)]
    torch.testing.assert_close(mine.weights(whole), mine.weights(cut), rtol=0, atol=0)
    assert records[0].records[1] == records[1].records[1]


def test_random_state_is_kept(problem: Problem) -> None:
    mine = runs(problem)
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    mine.do(ErmKey((), 0, 0, 2), Events(), never)
    torch.testing.assert_close(torch.rand(3), expected, rtol=0, atol=0)
