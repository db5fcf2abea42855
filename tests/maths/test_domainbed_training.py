"""All runs at once against one run after another, and as a CUDA graph."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.heads.domainbed_data import GROUPS, problem

from oodzoo.core.backend import backend
from oodzoo.linear.heads.domainbed.protocol import Hyperparameters, Split
from oodzoo.linear.heads.domainbed.training import (
    Block,
    Group,
    Noise,
    Problem,
    captured,
    initial_parameters,
    sampled_batches,
    train,
)

torch: Any = pytest.importorskip("torch")


def one_by_one(
    given: Problem, groups: list[Group], at: int, place: int, steps: int
) -> NDArray[Any]:
    """PyTorch's linear layer and Adam, fed with the batches and the dropout of one run."""
    group, fold = groups[at], given.folds[place]
    chosen = group.hyperparameters
    layer = torch.nn.Linear(given.features.shape[1], given.n_classes)
    begin = torch.from_numpy(initial_parameters(given, groups)[at, :, place])
    with torch.no_grad():
        layer.weight.copy_(begin[:-1].T)
        layer.bias.copy_(begin[-1])
    adam = torch.optim.Adam(layer.parameters(), lr=chosen.lr, weight_decay=chosen.weight_decay)
    use = [p for p, domain in enumerate(given.trained) if domain not in fold]
    batches = sampled_batches(given, groups)(0, steps)
    noise = Noise(given, groups, batches.shape[2] * batches.shape[3])
    features, labels = torch.as_tensor(np.asarray(given.features)), torch.from_numpy(given.labels)
    for step in range(steps):
        bits = np.asarray(noise.drawn())[at].reshape(*batches.shape[2:], -1)
        mask = torch.from_numpy((bits[use, : chosen.batch_size].astype(np.int64) + 2**15) / 2**16)
        rows = torch.from_numpy(batches[step, at, use, : chosen.batch_size].reshape(-1))
        x = features[rows] * (mask < 1 - chosen.dropout).reshape(len(rows), -1)
        loss = torch.nn.functional.cross_entropy(layer(x / (1 - chosen.dropout)), labels[rows])
        adam.zero_grad()
        loss.backward()
        adam.step()
    return np.vstack([layer.weight.detach().numpy().T, layer.bias.detach().numpy()])


def test_weights_are_those_of_single_runs(device: str | None) -> None:
    given = problem(device)
    *_, last = train(given, GROUPS, 40, 15)
    given = problem(None)
    for at in range(len(GROUPS)):
        for place in range(len(given.folds)):
            expected = one_by_one(given, GROUPS, at, place, 40)
            np.testing.assert_allclose(last.parameters[at, :, place], expected, atol=2e-5)


def test_weights_are_those_of_single_runs_with_dropout() -> None:
    given = problem(None)
    groups = [
        Group(0, 1, Hyperparameters(1e-2, 1e-3, 5, 0.5)),
        Group(0, 2, Hyperparameters(1e-2, 0.0, 3, 0.0)),
        Group(1, 1, Hyperparameters(1e-2, 0.0, 6, 0.1)),
    ]
    *_, last = train(given, groups, 30, 100)
    for at in range(len(groups)):
        for place in range(len(given.folds)):
            expected = one_by_one(given, groups, at, place, 30)
            np.testing.assert_allclose(last.parameters[at, :, place], expected, atol=2e-5)


def test_dropout_leaves_out_the_part_that_is_asked_for(device: str | None) -> None:
    noise = Noise(problem(device, d=200), GROUPS, 50)
    bits = np.concatenate([backend(None).asarray(noise.drawn()).ravel() for _ in range(5)])
    assert bits.dtype == np.int16
    assert abs(np.mean(bits.astype(np.int64) + 2**15 < 0.9 * 2**16) - 0.9) < 0.005


def test_accuracy_of_each_split(device: str | None) -> None:
    given = problem(device)
    (last,) = [c for c in train(given, GROUPS, 20, 50) if c.step == 19]
    features = problem(None).features
    for at, group in enumerate(GROUPS):
        for place in range(len(given.folds)):
            weights = last.parameters[at, :, place]
            right = (features @ weights[:-1] + weights[-1]).argmax(axis=1) == given.labels
            for domain in range(3):
                for side in (0, 1):
                    part = given.splits[group.trial, domain][side]
                    assert last.accuracy[at, place, domain, side] == right[part].mean()


def test_batches_come_from_the_in_split() -> None:
    given = problem(None)
    batches = sampled_batches(given, GROUPS)(0, 100)
    for at, group in enumerate(GROUPS):
        for place, domain in enumerate(given.trained):
            size = group.hyperparameters.batch_size
            inside = given.splits[group.trial, domain].inside
            assert set(batches[:, at, place, :size].ravel()) == set(inside)


def test_accuracies_of_splits_that_differ_in_size_between_trials() -> None:
    """With groups they do; a block of several trials has the accuracies of each alone."""
    whole = problem(None)
    splits = dict(whole.splits)
    for domain in range(3):
        inside, outside = splits[1, domain]
        splits[1, domain] = Split(np.append(inside, outside[1:]), outside[:1])
    changed = replace(whole, splits=splits)
    both = Block(changed, GROUPS, 5).accuracy()
    for at, group in enumerate(GROUPS):
        np.testing.assert_allclose(both[at], Block(changed, [group], 5).accuracy()[0], atol=1e-12)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_replayed_steps_equal_plain_steps() -> None:
    given = problem("cuda")
    batches = sampled_batches(given, GROUPS)(0, 10)
    rows = given.backend.asarray(batches.reshape(10, -1))
    plain, replayed = Block(given, GROUPS, 10), Block(given, GROUPS, 10)
    advance = captured(replayed)
    for step in range(10):
        plain.advance(rows[step], step)
        advance(rows[step], step)
    np.testing.assert_allclose(replayed.on_host(), plain.on_host(), atol=1e-6)


class FakeCuda:
    """torch.cuda on a machine without one."""

    def __getattr__(self, name: str) -> Any:
        import contextlib
        from unittest.mock import MagicMock

        return contextlib.nullcontext if name in ("device", "stream", "graph") else MagicMock()


def test_falls_back_to_plain_steps_and_restores_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a device on which no graph can be recorded: the first update fails after a change."""
    monkeypatch.setattr(torch, "cuda", FakeCuda())
    block = Block(problem("cpu"), GROUPS, 3)
    before = block.on_host().copy()

    def refuse(rows: Any, size: Any, floor: Any, noise: Any) -> None:
        block.parameters += 1
        raise RuntimeError("not permitted when stream is capturing")

    monkeypatch.setattr(block, "update", refuse)
    assert captured(block) == block.advance
    np.testing.assert_array_equal(block.on_host(), before)
