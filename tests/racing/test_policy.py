"""The rule of a race, and budgets of time as users write them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oodzoo.core.errors import InputError
from oodzoo.ranking.racing.policy import (
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
from oodzoo.ranking.result import Ranking, Row

# --- policy ------------------------------------------------------------------------------------


def _row(model: str, rank: int, interval: tuple[int, int] | None) -> Row:
    return Row(
        rank=rank,
        model=model,
        score=-float(rank),
        evidence=0.0,
        transfer=0.0,
        discriminability=0.0,
        stability=0.0,
        expected_accuracy=90.0 - rank,
        accuracy_interval=(0.0, 100.0),
        rank_interval=interval,
        tied=(),
        pareto_optimal=False,
        folds=(),
        feature_dim=8,
        parameters=None,
        milliseconds=None,
    )


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


def _play(
    policy: Policy, smallest: int, order: Sequence[str], width: int | None
) -> tuple[list[Round], list[tuple[int, list[str]]]]:
    """Play a race whose models are always ranked in the same order; return also the samples."""
    seen: list[tuple[int, list[str]]] = []

    def rank_sample(models: Sequence[str], images: int) -> Ranking:
        seen.append((images, list(models)))
        return _ranking([model for model in order if model in models], width)

    first = first_sample(policy.share, policy.n_images, smallest)
    return list(race_rounds(policy, order, first, rank_sample)), seen


def races(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test with random races."""
    many = given(
        costs=_costs,
        n_images=st.integers(10, 100_000),
        share=st.floats(0.01, 1.5) | st.none(),
        width=st.integers(0, 40) | st.none(),
        seed=st.randoms(use_true_random=False),
    )
    return settings(max_examples=200, deadline=None)(many(test))


def _race(
    costs: Costs, n_images: int, share: float | None, width: int | None, seed: object
) -> tuple[Policy, list[str], int, list[Round]] | None:
    """A random race; None if the budget is too small for it."""
    order = list(costs.seconds)
    seed.shuffle(order)  # type: ignore[attr-defined]
    budget = None if share is None else share * costs.total(order, n_images)
    policy = Policy.of(costs, n_images, budget)
    smallest = max(1, n_images // 50)
    first = first_sample(policy.share, n_images, smallest)
    try:
        policy.require_round(first)
    except InputError:
        return None
    rounds, _ = _play(policy, smallest, order, width)
    return policy, order, first, rounds


@races
def test_planned_time_is_within_the_budget(
    costs: Costs, n_images: int, share: float | None, width: int | None, seed: object
) -> None:
    race = _race(costs, n_images, share, width, seed)
    if race is None:
        return
    policy, order, first, rounds = race
    if not rounds:
        assert first == n_images
        return
    last = rounds[-1]
    total = last.planned + costs.total(last.decision.kept, n_images - last.images)
    rests = [costs.total([order[0]], n_images - played.images) for played in rounds]
    fits = all(r <= policy.budget - p.planned for r, p in zip(rests, rounds, strict=True))
    if not policy.least or (fits and len(last.decision.kept) > policy.least):
        assert total <= policy.budget * (1 + 1e-9)


@races
def test_the_first_model_is_never_dropped_if_it_can_be_finished(
    costs: Costs, n_images: int, share: float | None, width: int | None, seed: object
) -> None:
    race = _race(costs, n_images, share, width, seed)
    if race is None:
        return
    policy, order, _, rounds = race
    for played in rounds:
        rest = costs.total([order[0]], n_images - played.images)
        if policy.least or rest <= policy.budget - played.planned:
            assert order[0] in played.decision.kept
        else:
            assert "too slow" in played.decision.dropped[order[0]]
            break


@races
def test_every_round_keeps_or_drops_each_model_and_grows(
    costs: Costs, n_images: int, share: float | None, width: int | None, seed: object
) -> None:
    race = _race(costs, n_images, share, width, seed)
    if race is None:
        return
    policy, order, first, rounds = race
    models, images = order, first
    for number, played in enumerate(rounds, start=1):
        decision = played.decision
        assert (played.number, played.images) == (number, images)
        assert sorted([*decision.kept, *decision.dropped]) == sorted(models)
        assert list(decision.kept) == [model for model in order if model in decision.kept]
        assert decision.kept
        assert all(decision.dropped.values())
        references = {order[0], *policy.references} & set(models)
        if decision.images == n_images:  # they are kept if there is time for them
            time = costs.total(references, n_images - images)
            assert references <= set(decision.kept) or time > policy.budget - played.planned
        assert len(decision.kept) >= min(policy.least, len(models))
        assert decision.images in (2 * images, n_images)
        assert decision.images <= n_images
        models, images = list(decision.kept), decision.images
    assert images == n_images


@races
def test_a_race_is_deterministic(
    costs: Costs, n_images: int, share: float | None, width: int | None, seed: object
) -> None:
    order = list(costs.seconds)
    seed.shuffle(order)  # type: ignore[attr-defined]
    policy = Policy.of(costs, n_images, None)
    again = Policy.of(
        replace(costs, seconds=dict(reversed(list(costs.seconds.items())))), n_images, None
    )
    smallest = max(1, n_images // 50)
    played = _play(policy, smallest, order, width)[0]
    # sums of costs are rounded in another order, so only the choices are compared
    other = _play(replace(again, budget=policy.budget), smallest, order, width)[0]
    assert [r.decision.kept for r in played] == [r.decision.kept for r in other]


def test_clearly_worse_models_are_dropped_whatever_the_time() -> None:
    costs = Costs(dict.fromkeys(_names(20), 1.0))
    policy = Policy.of(costs, 1000, 0.9 * 20 * 1000)
    decision = policy.decide(_ranking(_names(20), width=2), 50, 20 * 50)
    # the model of rank r has an interval that begins at r - 2
    clearly = [model for model in _names(20)[POOL + 2 :] if model not in policy.references]
    assert sorted(decision.dropped) == clearly
    assert decision.dropped["m007"] == f"clearly worse than {POOL} models"
    assert decision.images == 1000


@pytest.mark.parametrize(
    ("slowest", "reason"),
    [
        (1.0, "rank too low for 35 % of the time"),
        (20.0, "more than the 3 h 41 min left of 35 % of the time"),
    ],
)
def test_a_race_without_a_budget_names_none(slowest: float, reason: str) -> None:
    costs = Costs(dict(zip(_names(20), [1.0] * 19 + [slowest], strict=True)))
    ranking = _ranking(_names(20), width=19)
    decision = Policy.of(costs, 1000, None).decide(ranking, 10, 10 * (19 + slowest))
    assert decision.dropped["m019"].endswith(reason)


def test_fast_models_are_references_and_stay() -> None:
    seconds = {**dict.fromkeys(_names(10), 1.0), "fast": 0.001, "faster": 0.0005}
    policy = Policy.of(Costs(seconds), 1000, None)
    assert policy.references == ("faster", "fast")
    assert sum(seconds[m] * 1000 for m in policy.references) <= REFERENCES * policy.budget
    ranking = _ranking([*_names(10), "fast", "faster"], width=0)
    decision = policy.decide(ranking, 66, 660.0)
    assert {"fast", "faster"} <= set(decision.kept)
    assert "m009" in decision.dropped


def test_a_model_that_alone_exceeds_the_budget_is_dropped_with_the_time_it_would_take() -> None:
    policy = Policy.of(Costs({"slow": 100.0, "good": 1.0, "fair": 1.0}), 1000, 3000.0)
    decision = policy.decide(_ranking(["slow", "good", "fair"]), 10, 1020.0)
    assert decision.dropped == {
        "slow": "too slow: the other images would take 27 h 30 min, more than the 33 min 0 s "
        "left of the budget of 50 min 0 s"
    }
    assert decision.kept == ("good", "fair")


def test_a_budget_for_everything_needs_no_round() -> None:
    costs = Costs(dict.fromkeys(_names(4), 1.0), decoding=0.5, loading=2.0, workers=2)
    policy = Policy.of(costs, 100, costs.total(costs.seconds, 100))
    assert first_sample(policy.share, 100, 10) == 100
    assert _play(policy, 10, _names(4), None)[0] == []


def test_the_default_budget_is_a_share_of_the_whole_time() -> None:
    costs = Costs({"a": 0.5, "b": 1.5}, decoding=0.25, loading=3.0, workers=2)
    assert costs.total(["a", "b"], 40) == (40 * 2.25 + 6) / 2
    assert costs.total([], 40) == costs.total(["a"], 0) == 0
    policy = Policy.of(costs, 40, None)
    assert policy.budget == SHARE * 48
    assert math.isclose(policy.share, SHARE)


@pytest.mark.parametrize("smallest", [1, 7, 500])
@pytest.mark.parametrize("share", [0.0, 1e-6, 0.01, 0.35, 0.99, 1.0, 3.0])
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


def test_clearly_worse_models_are_finished_if_all_better_ones_are_too_slow() -> None:
    slow = {f"slow{at}": 0.02 for at in range(POOL)}
    costs = Costs({**slow, "fast": 0.004})
    policy = Policy.of(costs, 1000, 10.0)
    decision = policy.decide(_ranking([*slow, "fast"], width=0), 20, costs.total(costs.seconds, 20))
    assert policy.references == ()
    assert decision.kept == ("fast",)
    assert decision.dropped.keys() == slow.keys()
    assert decision.images == 1000


def test_the_fastest_model_of_a_later_round_is_finished_if_all_have_become_too_slow() -> None:
    costs = Costs({"slow": 0.02, "slower": 0.03, "dropped": 0.001})
    policy = Policy.of(costs, 1000, 25.0)
    decision = policy.decide(_ranking(["slower", "slow"]), 100, 15.0)
    assert decision.kept == ("slow",)
    assert decision.images == 1000


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
    rounds, _ = _play(policy, 7, _names(6), None)
    assert [played.images for played in rounds] == [7]  # 14 would leave no time for any model
    assert rounds[-1].decision.kept


# --- budget ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ("30m", 1800),
        ("30min", 1800),
        ("2h", 7200),
        ("1h30m", 5400),
        ("1h 30m 5s", 5405),
        ("90s", 90),
        (" 1.5H ", 5400),
        (0.25, 0.25),
        (7, 7),
    ],
)
def test_durations(given: str | float, seconds: float) -> None:
    assert parse_budget(given) == seconds


@pytest.mark.parametrize(
    "given",
    [
        *("", " ", "m", "30 minutes", "30m1h", "-5m", "1e3", "0", "0s", "nan", "inf", "1h90", "½h"),
        *("٣m", 0, -1, math.nan, math.inf, True),
    ],
)
def test_what_is_not_a_duration_is_quoted(given: str | float) -> None:
    with pytest.raises(InputError, match=re.escape(f"got {given!r}")) as raised:
        parse_budget(given)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("given", ["30", " 1.5 "])
def test_a_number_without_a_unit_is_refused_with_the_spellings(given: str) -> None:
    with pytest.raises(InputError, match=re.escape(f"got {given!r}")) as raised:
        parse_budget(given)
    for unit in "smh":
        assert parse_budget(given.strip() + unit) > 0
        assert f"{given.strip()}{unit} (" in str(raised.value)


@given(st.integers(0, 99), st.integers(0, 999), st.integers(0, 9999))
def test_parts_add_up(hours: int, minutes: int, seconds: int) -> None:
    total = 3600 * hours + 60 * minutes + seconds
    if total:
        assert parse_budget(f"{hours}h{minutes}m{seconds}s") == total
