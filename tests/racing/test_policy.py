"""The rule of a race with given costs, as measured ones depend on the machine, and budgets."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from itertools import islice
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oodzoo.core.errors import InputError
from oodzoo.ranking.policy import (
    POOL,
    REFERENCES,
    SHARE,
    Costs,
    Policy,
    Round,
    first_sample,
    parse_budget,
    race_rounds,
)
from oodzoo.ranking.ranking import Ranking, Row


def _row(model: str, rank: int, interval: tuple[int, int] | None) -> Row:
    terms: Any = dict.fromkeys(("evidence", "transfer", "discriminability", "stability"), 0.0)
    return Row(
        rank=rank, model=model, score=-float(rank), expected_accuracy=90.0 - rank, **terms,
        accuracy_interval=(0.0, 100.0), rank_interval=interval, tied=(), pareto_optimal=False,
        folds=(), feature_dim=8, parameters=None, milliseconds=None,
    )  # fmt: skip


def _ranking(models: Sequence[str], width: int | None = None) -> Ranking:
    """Models in the given order, with rank intervals that reach so many ranks up and down."""
    n = len(models)
    half = n if width is None else width
    return Ranking(
        "unseen",
        tuple(
            _row(model, rank, (max(1, rank - half), min(n, rank + half)))
            for rank, model in enumerate(models, start=1)
        ),
    )


def _names(n: int) -> list[str]:
    return [f"m{at:03}" for at in range(n)]


_costs = st.lists(st.floats(1e-4, 10.0), min_size=1, max_size=40).flatmap(
    lambda seconds: st.builds(
        Costs,
        seconds=st.just(dict(zip(_names(len(seconds)), seconds, strict=True))),
        decoding=st.floats(0, 0.1),
        loading=st.floats(0, 5),
        workers=st.integers(1, 8),
    )
)


def _play(policy: Policy, smallest: int, order: Sequence[str], width: int | None) -> list[Round]:
    """Play a race whose models are always ranked in the same order."""

    def rank_sample(models: Sequence[str], images: int) -> Ranking:
        return _ranking([model for model in order if model in models], width)

    first = first_sample(policy.share, policy.n_images, smallest)
    return list(race_rounds(policy, order, first, rank_sample))


@given(
    costs=_costs,
    n_images=st.integers(10, 100_000),
    share=st.floats(0.01, 1.5) | st.none(),
    width=st.integers(0, 40) | st.none(),
    seed=st.randoms(use_true_random=False),
)
@settings(max_examples=300, deadline=None)
def test_races(
    costs: Costs, n_images: int, share: float | None, width: int | None, seed: Random
) -> None:
    """The planned time is within the budget, the first model is not dropped if it can be finished,
    and every round keeps or drops each model, and grows."""
    order = list(costs.seconds)
    seed.shuffle(order)
    budget = None if share is None else share * costs.total(order, n_images)
    policy, smallest = Policy.of(costs, n_images, budget), max(1, n_images // 50)
    first = first_sample(policy.share, n_images, smallest)
    try:
        policy.require_round(first)
    except InputError:
        return  # the budget is too small
    rounds = _play(policy, smallest, order, width)
    models, images, lost = order, first, False
    rests = [costs.total([order[0]], n_images - played.images) for played in rounds]
    for number, (played, rest) in enumerate(zip(rounds, rests, strict=True), start=1):
        decision = played.decision
        if not lost and not policy.least and rest > policy.budget - played.planned:
            assert "too slow" in decision.dropped[order[0]]
            lost = True
        assert lost or order[0] in decision.kept
        assert (played.number, played.images) == (number, images)
        assert sorted([*decision.kept, *decision.dropped]) == sorted(models)
        assert list(decision.kept) == [model for model in order if model in decision.kept]
        assert all(decision.dropped.values())
        references = {order[0], *policy.references} & set(models)
        if decision.images == n_images:  # they are kept if there is time for them
            time = costs.total(references, n_images - images)
            assert references <= set(decision.kept) or time > policy.budget - played.planned
        assert len(decision.kept) >= max(1, min(policy.least, len(models)))
        assert decision.images in (2 * images, n_images)
        assert decision.images <= n_images
        models, images = list(decision.kept), decision.images
    assert images == n_images
    if rounds:
        total = rounds[-1].planned + costs.total(models, n_images - rounds[-1].images)
        fits = all(r <= policy.budget - p.planned for r, p in zip(rests, rounds, strict=True))
        if not policy.least or (fits and len(models) > policy.least):
            assert total <= policy.budget * (1 + 1e-9)


def test_clearly_worse_models_are_dropped_whatever_the_time() -> None:
    costs = Costs(dict.fromkeys(_names(20), 1.0))
    policy = Policy.of(costs, 1000, 0.9 * 20 * 1000)
    decision = policy.decide(_ranking(_names(20), width=2), 50, 20 * 50)
    # the model of rank r has an interval that begins at r - 2
    clearly = [model for model in _names(20)[POOL + 2 :] if model not in policy.references]
    assert sorted(decision.dropped) == clearly
    assert decision.dropped["m007"] == f"clearly worse than {POOL} models"
    assert decision.images == 1000


def test_fast_models_are_references_and_stay() -> None:
    seconds = {**dict.fromkeys(_names(10), 1.0), "fast": 0.001, "faster": 0.0005}
    policy = Policy.of(Costs(seconds), 1000, None)
    assert policy.references == ("faster", "fast")
    assert sum(seconds[m] * 1000 for m in policy.references) <= REFERENCES * policy.budget
    ranking = _ranking([*_names(10), "fast", "faster"], width=0)
    decision = policy.decide(ranking, 66, 660.0)
    assert {"fast", "faster"} <= set(decision.kept)
    assert "m009" in decision.dropped


def test_a_budget_for_everything_needs_no_round() -> None:
    costs = Costs(dict.fromkeys(_names(4), 1.0), decoding=0.5, loading=2.0, workers=2)
    policy = Policy.of(costs, 100, costs.total(costs.seconds, 100))
    assert first_sample(policy.share, 100, 10) == 100
    assert _play(policy, 10, _names(4), None) == []
    assert costs.total(_names(2), 40) == (40 * 2.5 + 4) / 2
    assert costs.total([], 40) == costs.total(["m000"], 0) == 0
    assert Policy.of(costs, 100, None).budget == SHARE * policy.budget


@pytest.mark.parametrize("smallest", [1, 500])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.35, 0.99, 1.0, 3.0])
def test_the_first_sample_has_between_the_smallest_number_and_all_images(
    share: float, smallest: int
) -> None:
    sizes = []
    for n in (1, 10, 1000, 100_000):
        sizes.append(first_sample(share, n, min(n, smallest)))
        assert min(n, smallest) <= sizes[-1] <= n
    assert sizes == sorted(sizes)
    assert (sizes[-1] == 100_000) == (share >= 1)


def test_a_budget_too_small_for_a_round_is_an_error_that_says_how_long_it_takes() -> None:
    policy = Policy.of(Costs(dict.fromkeys(_names(30), 0.1)), 1000, 60.0)
    with pytest.raises(InputError) as raised:
        policy.require_round(20)
    assert str(raised.value) == (
        "the budget of 1 min 0 s is too small for one round: 30 models on 20 images take about "
        "1 min 0 s, and the fastest one on all images another 1 min 38 s; the features computed "
        "so far are kept"
    )
    Policy.of(Costs(dict.fromkeys(_names(30), 0.1)), 1000, 158.1).require_round(20)
    Policy.of(Costs(dict.fromkeys(_names(30), 0.1)), 1000, None).require_round(999)


ALIKE = dict.fromkeys(_names(20), 1.0)
SLOW = {f"slow{at}": 0.02 for at in range(POOL)} | {"fast": 0.004}


@pytest.mark.parametrize(
    ("seconds", "budget", "order", "width", "images", "used", "kept", "dropped"),
    [
        # without a budget, none is named
        (ALIKE, None, _names(20), 19, 10, 200, None,
         {"m019": "rank too low for 35 % of the time"}),
        (ALIKE | {"m019": 20.0}, None, _names(20), 19, 10, 390, None,
         {"m019": "more than the 3 h 41 min left of 35 % of the time"}),
        # one alone exceeds the budget
        ({"slow": 100.0, "good": 1.0, "fair": 1.0}, 3000, ["slow", "good", "fair"], 3, 10, 1020,
         ("good", "fair"),
         {"slow": "too slow: the other images would take 27 h 30 min, more than the 33 min 0 s "
                  "left of the budget of 50 min 0 s"}),
        # a clearly worse one is finished if all better ones are too slow
        (SLOW, 10, list(SLOW), 0, 20, 20 * sum(SLOW.values()), ("fast",),
         dict.fromkeys(list(SLOW)[:-1], "")),
        # the fastest one of a later round is finished if all have become too slow
        ({"slow": 0.02, "slower": 0.03, "dropped": 0.001}, 25, ["slower", "slow"], 2, 100, 15,
         ("slow",), {"slower": ""}),
    ],
)  # fmt: skip
def test_decisions(
    seconds: dict[str, float], budget: float | None, order: list[str], width: int, images: int,
    used: float, kept: tuple[str, ...] | None, dropped: dict[str, str],
) -> None:  # fmt: skip
    policy = Policy.of(Costs(seconds), 1000, budget)
    decision = policy.decide(_ranking(order, width=width), images, used)
    assert kept is None or (decision.kept, decision.images) == (kept, 1000)
    assert kept is None or decision.dropped.keys() == dropped.keys()
    for model, reason in dropped.items():
        assert decision.dropped[model].endswith(reason)


@pytest.mark.parametrize("size", [lambda n: n + 7, lambda n: n - n // 4], ids=["groups", "twins"])
def test_models_are_ranked_on_the_samples_that_are_counted(size: Callable[[int], int]) -> None:
    costs = Costs(dict.fromkeys(_names(40), 1.0))
    wanted = []

    def rank_sample(models: Sequence[str], n: int) -> Ranking:
        wanted.append(n)
        return _ranking(models)

    def sample_size(n: int) -> int:
        return min(10_000, size(n))

    played = list(
        race_rounds(Policy.of(costs, 10_000, None), _names(40), 50, rank_sample, sample_size)
    )
    assert [sample_size(n) for n in wanted] == [each.images for each in played]
    assert len(played) > 1


def test_a_race_ends_if_the_sample_cannot_grow() -> None:
    costs = Costs({"a": 0.1, "b": 0.9, "c": 0.9, "d": 1.1, "e": 1.1, "f": 1.0})
    policy = Policy.of(costs, 10_000, None)
    rounds = race_rounds(
        policy,
        list(costs.seconds),
        first_sample(SHARE, 10_000, 20),
        lambda models, n: _ranking(models),
        lambda n: n if n >= 10_000 else min(n, 100),  # the others have no labels
    )
    played = list(islice(rounds, 20))
    assert [each.images for each in played] == [100]
    assert played[-1].decision.images == 10_000


def test_a_sample_grows_only_if_a_model_can_be_finished_after_it() -> None:
    seconds = dict(zip(_names(6), (1.0, 1.0, 1.0, 1.0, 6.0, 10.0), strict=True))
    policy = Policy.of(Costs(seconds, 0.0, 0.0, 1), 350, 0.0703125 * 20 * 350)
    rounds = _play(policy, 7, _names(6), None)
    assert [played.images for played in rounds] == [7]  # 14 would leave no time for any model
    assert rounds[-1].decision.kept


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ("30m", 1800), ("30min", 1800), ("1h30m", 5400), ("1h 30m 5s", 5405), ("90s", 90),
        (" 1.5H ", 5400), (0.25, 0.25), (7, 7),
        *((bad, None) for bad in (
            "", " ", "m", "30 minutes", "30m1h", "-5m", "1e3", "0", "0s", "nan", "inf", "1h90",
            "½h", "٣m", 0, -1, math.nan, math.inf, True, "30", " 1.5 ",
        )),
    ],
)  # fmt: skip
def test_durations(given: str | float, seconds: float | None) -> None:
    if seconds is not None:
        assert parse_budget(given) == seconds
        return
    with pytest.raises(InputError, match=re.escape(f"got {given!r}")) as raised:
        parse_budget(given)
    assert "\n" not in str(raised.value)
    for unit in "smh" if given in ("30", " 1.5 ") else "":  # without a unit: how to write it
        assert f"{str(given).strip()}{unit} (" in str(raised.value)
