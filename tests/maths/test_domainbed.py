"""DomainBed's protocol for heads: splits, draws, runs and rules, against the reference."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.heads.partition import require_whole

from oodzoo.core.backend import backend
from oodzoo.core.errors import InputError
from oodzoo.extraction.columns import Samples
from oodzoo.linear.heads.domainbed import RULES, cell, sweep
from oodzoo.linear.heads.domainbed.protocol import (
    Hyperparameters,
    Record,
    Split,
    chosen,
    folds,
    hyperparameters,
    seed_hash,
    split,
)
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


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(10, 200), st.integers(2, 60), st.integers(0, 9))
def test_a_split_keeps_groups_whole(seed: int, n: int, n_groups: int, trial: int) -> None:
    rng = np.random.default_rng(seed)
    groups = [f"g{number}" for number in rng.integers(0, n_groups, n)]
    groups[:2] = ["g0", "g1"]
    inside, outside = split(n, trial, 1, groups)
    require_whole(groups, inside, outside)
    sizes = np.unique(groups, return_counts=True)[1]
    target = int(0.2 * n)
    if sizes.min() < 2 * target:
        assert abs(len(outside) - target) <= sizes.max() / 2
    else:
        assert len(outside) == sizes.min()
    alone = split(n, trial, 1, [*range(n // 2), *[None] * (n - n // 2)])
    for part, other in zip(split(n, trial, 1), alone, strict=True):
        np.testing.assert_array_equal(part, other)


@pytest.mark.parametrize(("space", "most"), [("default", 5.5), ("DomainNet", 5.0)])
def test_draws_are_made_as_in_the_reference(space: Any, most: float) -> None:
    """Each value from a generator of its own, seeded by the draw's seed and the value's name."""
    for draw in range(1, 20):
        drawn = hyperparameters(draw, 2, space)
        state = {
            name: np.random.RandomState(seed_hash(seed_hash(draw, 2), name))
            for name in ("lr", "batch_size", "weight_decay", "resnet_dropout")
        }
        assert drawn.lr == 10 ** state["lr"].uniform(-5, -3.5)
        assert drawn.batch_size == int(2 ** state["batch_size"].uniform(3, most))
        assert drawn.weight_decay == 10 ** state["weight_decay"].uniform(-6, -2)
        assert drawn.dropout == state["resnet_dropout"].choice([0.0, 0.1, 0.5])
    assert hyperparameters(0, 2, "DomainNet") == hyperparameters(0, 2)


def record(
    test_domains: tuple[int, ...],
    inside: list[float],
    outside: list[float],
    draw: int = 0,
    step: int = 0,
) -> Record:
    each = dict(enumerate(inside)), dict(enumerate(outside))
    return Record(test_domains, 0, draw, step, Hyperparameters(), *each)


ONES = [1.0, 1, 1]


OF_PAIRS = [
    each
    for draw, (one, two) in enumerate([(0.2, 0.9), (0.6, 0.6), (0.5, 0.5)])
    for each in (
        record((0,), [0.3, 1, 1], ONES, draw), record((0, 1), [0, one, 1], [0, 0, 0], draw),
        record((0, 2), [0, 1, two], [0, 0, 0], draw), record((1, 2), [0, 1, 1], ONES, draw),
    )
]  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "records", "expected"),
    [
        ("training-domain", [  # the first is best on the held-out domain, the second on the others
            record((0,), [0.9, 0, 0], [0.9, 0.5, 0.5], 0),
            record((0,), [0.1, 0, 0], [0.0, 0.4, 0.8], 1),
            record((0,), [0.2, 1, 1], [1.0, 0.3, 0.3], 2),
        ], 1),
        ("training-domain", [  # of equals, the first step and the last draw
            record((0,), [0, 0, 0], [0, 0.5, 0.5], d, step) for d in (0, 1) for step in (0, 300)
        ], 2),
        ("leave-one-domain-out", OF_PAIRS, 4),
        ("leave-one-domain-out", [record((0,), ONES, ONES), record((0, 1), ONES, ONES)], None),
        ("oracle", [  # the last step only
            record((0,), [0.1, 1, 1], [0.9, 1, 1], 0, 0),
            record((0,), [0.2, 1, 1], [0.3, 1, 1], 0, 300),
            record((0,), [0.3, 1, 1], [0.2, 1, 1], 1, 0),
            record((0,), [0.4, 1, 1], [0.4, 1, 1], 1, 300),
        ], 3),
        ("oracle", [replace(record((0,), ONES, ONES), trial=1)], None),
    ],
)  # fmt: skip
def test_what_is_chosen(rule: Any, records: list[Record], expected: int | None) -> None:
    found = chosen(rule, 0, 0, records)
    assert found is (None if expected is None else records[expected])
    assert found is None or found.accuracy == found.inside[0]


def test_cells() -> None:
    assert [cell([0.5]), cell([0.8, 0.82, 0.84])] == ["50.0 +/- 0.0", "82.0 +/- 0.9"]


GROUPS = [
    Group(0, 0, Hyperparameters(1e-3, 0.0, 4, 0.0)),
    Group(1, 2, Hyperparameters(3e-2, 1e-1, 7, 0.0)),
]


def problem(device: str | None, n: int = 60, d: int = 6, n_classes: int = 3) -> Problem:
    rng = np.random.default_rng(0)
    domains, labels = np.arange(n) // (n // 3), np.arange(n) % n_classes
    features = (rng.normal(size=(n, d)) + 2 * np.eye(n_classes, d)[labels]).astype(np.float32)
    splits = {}
    for domain in range(3):
        rows = np.flatnonzero(domains == domain)
        for trial in range(2):
            inside, outside = split(len(rows), trial, domain)
            splits[trial, domain] = Split(rows[inside], rows[outside])
    there, pairs = backend(device), folds(range(3), range(3))
    return Problem(there, there.asarray(features), labels, n_classes, pairs, splits, (0, 1, 2), 5)


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
    for place_, domain in enumerate(given.trained):
        sampled = batches[:, at, place_, : chosen.batch_size]
        assert set(sampled.ravel()) <= set(given.splits[group.trial, domain].inside)
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


def test_weights_are_those_of_single_runs() -> None:
    given = problem(None)
    groups = [
        Group(0, 1, Hyperparameters(1e-2, 1e-3, 5, 0.5)),
        Group(0, 2, Hyperparameters(1e-2, 0.0, 3, 0.0)),
        Group(1, 1, Hyperparameters(1e-2, 0.0, 6, 0.1)),
    ]
    *_, last = train(given, groups, 15, 100)
    for at in range(len(groups)):
        for place in range(len(given.folds)):
            expected = one_by_one(given, groups, at, place, 15)
            np.testing.assert_allclose(last.parameters[at, :, place], expected, atol=2e-5)


def test_accuracy_of_each_split(device: str | None) -> None:
    """Also of splits that differ in size between trials, as those of groups do."""
    given = problem(device)
    splits = dict(given.splits)
    inside, outside = splits[1, 2]
    splits[1, 2] = Split(np.append(inside, outside[1:]), outside[:1])
    given = replace(given, splits=splits)
    (last,) = [c for c in train(given, GROUPS, 20, 50) if c.step == 19]
    features = problem(None).features
    for at, group in enumerate(GROUPS):
        for place in range(len(given.folds)):
            weights = last.parameters[at, :, place]
            right = (features @ weights[:-1] + weights[-1]).argmax(axis=1) == given.labels
            for domain in range(3):
                for side in (0, 1):
                    part = given.splits[group.trial, domain][side]
                    found = last.accuracy[at, place, domain, side]
                    assert found == pytest.approx(right[part].mean(), abs=1e-12)


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


def planted(n_domains: int = 3, each: int = 24) -> Samples:
    rng = np.random.default_rng(1)
    n = n_domains * each
    labels, domains = np.arange(n) % 3, np.arange(n) // each
    features = rng.normal(size=(n, 5)) + 3 * np.eye(3, 5)[labels]
    return Samples(features.astype(np.float32), labels, domains)


@pytest.mark.parametrize("rule", list(RULES))
def test_chosen_heads_have_the_accuracy_of_their_records(rule: Any) -> None:
    """Accuracies are of splits that keep groups whole, and differ in size."""
    samples = planted(each=40)
    seen: list[tuple[int, int]] = []
    names = np.array([f"{row % 2}-{(row * row) % 11}" for row in range(120)])
    options: Any = {"groups": names.tolist(), "search_space": "DomainNet"}
    found = sweep(
        samples, 3, draws=3, trials=2, steps=60, checkpoint_every=20, **options,
        progress=lambda *at: seen.append(at),
    )  # fmt: skip
    assert seen[-1] == (36, 36)
    for drawn in found.records:
        assert drawn.hyperparameters == hyperparameters(drawn.draw, drawn.trial, "DomainNet")
    for domain, each in found.chosen(rule).items():
        here = np.flatnonzero(samples.domains == domain)
        assert [c.record.trial for c in each] == [0, 1]
        for trial, (best, head) in enumerate(each):
            inside, outside = found.splits[trial, domain]
            require_whole(names[here], inside - here[0], outside - here[0])
            right = head.logits(samples.features).argmax(axis=1) == samples.labels
            assert best.test_domains == (domain,)
            assert best.accuracy == pytest.approx(right[inside].mean())
            assert best.inside[domain] == pytest.approx(right[inside].mean())
            assert best.outside[domain] == pytest.approx(right[outside].mean())


def test_numpy_and_torch_agree_and_one_test_domain_is_as_in_the_whole_sweep() -> None:
    options: Any = {"draws": 1, "trials": 2, "steps": 40}
    whole, there = (sweep(planted(), 3, device=device, **options) for device in (None, "cpu"))
    for before, after in zip(whole.chosen()[0], there.chosen()[0], strict=True):
        np.testing.assert_allclose(before.head.weights, after.head.weights, atol=1e-6)
    one = sweep(planted(), 3, test_domains=[1], **options)
    expected = [r for r in whole.records if 1 in r.test_domains]

    def order(each: Record) -> Any:
        return each.trial, each.step, each.test_domains

    assert sorted(one.records, key=order) == sorted(expected, key=order)


@pytest.mark.parametrize(
    ("search_space", "steps"),
    [("default", [0, 300, 600, 900, 1001]), ("DomainNet", [0, 1000, 1001])],
)
def test_checkpoints_are_those_of_domainbed(search_space: Any, steps: list[int]) -> None:
    """Two domains leave nothing for pairs."""
    found = sweep(planted(2), 3, draws=2, trials=1, steps=1002, search_space=search_space)
    assert sorted({record.step for record in found.records}) == steps
    assert set(found.accuracies("training-domain")) == {0, 1}
    for rule, words in (("leave-one-domain-out", "three domains, got two"), ("best", "'best'")):
        with pytest.raises(InputError, match=words):
            found.chosen(rule)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"search_space": "VLCS"}, "unknown search space 'VLCS'"),
        ({"groups": [99 if 24 <= row < 48 else row for row in range(72)]}, "domain 1 are of one"),
        ({"groups": ["a", "b", "c"]}, "72 samples, but groups of 3"),
        ({"labels": np.zeros(72, np.int64)}, "one class, 0 "),
        ({"domains": np.zeros(72, np.int64)}, "at least two domains, got 1"),
        ({"test_domains": [7]}, r"distinct domains of \[0, 1, 2\], got \[7\]"),
        ({"domains": np.minimum(np.arange(72) // 4, 2)}, "domain 0 has 4 samples; at least 5"),
        ({"labels": np.arange(72) % 4}, "labels of 3 classes must be 0 to 2, got 0 to 3"),
        ({"draws": 0}, "draws must be at least 1, got 0"),
        ({"features": np.full((72, 5), np.nan, np.float32)}, "sample 0 are not finite"),
    ],
)
def test_what_cannot_be_swept(options: dict[str, Any], message: str) -> None:
    changed = {name: options.pop(name) for name in Samples._fields if name in options}
    with pytest.raises(InputError, match=message):
        sweep(planted()._replace(**changed), 3, **options)
