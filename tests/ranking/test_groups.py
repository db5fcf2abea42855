"""Groups that occur in several domains are not trained on when one of these is held out."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray
from tests.oracles import folds as oracle
from tests.ranking.data import Arrays, Data, folds_of, saved, simulate_models

import oodzoo
from oodzoo.features.source import ArraySource
from oodzoo.ranking.folds import Fold, leave_one_domain_out, leave_two_domains_out
from oodzoo.ranking.inputs import Inputs, SharedGroups, read_inputs
from oodzoo.ranking.ranker import rank_for_test_domains
from oodzoo.ranking.ridge import RIDGES, Transfer
from oodzoo.store.table import SampleTable
from oodzoo.store.writer import writing

Groups = list[str | None]
Grouped = tuple[Arrays, NDArray[np.int64], NDArray[Any], Groups]


def grouped(seed: int = 0, n_domains: int = 3, d: int = 6) -> Grouped:
    """Models of which some samples belong to groups, most of them in several domains."""
    data = simulate_models({"a": 0.8, "b": 2.0}, n=30, n_domains=n_domains, d=d, seed=seed)
    numbers = np.random.default_rng(seed).integers(0, 40, len(data[1]))
    return *data, [f"g{k}" if k < 15 else None for k in numbers]


def trained_on(data: Grouped, model: str, held_out: Sequence[str]) -> Data:
    """Samples of the other domains whose group is in none of the held-out domains."""
    features, y, domains, groups = data
    theirs = {g for g, d in zip(groups, domains, strict=True) if d in held_out and g is not None}
    keep = np.array(
        [d not in held_out and g not in theirs for d, g in zip(domains, groups, strict=True)]
    )
    assert not keep.all()
    names = [d for d in np.unique(domains).tolist() if d not in held_out]
    return {d: (features[model][keep & (domains == d)], y[keep & (domains == d)]) for d in names}


def whole(data: Grouped, model: str, domain: str) -> oracle.Part:
    features, y, domains, _ = data
    return features[model][domains == domain], y[domains == domain]


def inputs(data: Grouped) -> Inputs:
    return read_inputs(ArraySource(*data), "a", None)


def assert_trained_on(fold: Fold, literal: Data, data: Grouped, names: Sequence[str]) -> None:
    """Compare with the fold of the held-out domain in a data set without the rows."""
    held_out = {**literal, fold.domain: whole(data, "a", fold.domain)}
    (same,) = (each for each in folds_of(held_out) if each.domain == fold.domain)
    for name in names:
        np.testing.assert_allclose(getattr(fold, name), getattr(same, name), rtol=1e-9, atol=1e-11)


OF_TRAINING = (
    "stability",
    "stability_slope",
    "label_spread",
    "density_spread",
    "training_evidence",
    "label_log_density",
    "feature_log_density",
    "labels",
    "n",
)
"""Results that depend on the training samples and the held-out domain alone."""


# --- folds --------------------------------------------------------------------------------------


def one_out(data: Grouped) -> list[tuple[Fold, Data]]:
    """Each fold, with the samples to train on."""
    read = inputs(data)
    folds = leave_one_domain_out(
        read.moments, read.shards, training=read.training, n_features=read.n_features
    )
    return [(fold, trained_on(data, "a", [fold.domain])) for fold in folds]


def two_out(data: Grouped) -> dict[str, list[tuple[Fold, Data]]]:
    read = inputs(data)
    found = leave_two_domains_out(
        read.moments, read.shards, training=read.training, n_features=read.n_features
    )
    return {
        test: [(fold, trained_on(data, "a", [test, fold.domain])) for fold in folds]
        for test, folds in found.items()
    }


def assert_regressions(folds: Sequence[tuple[Fold, Data]], data: Grouped) -> None:
    parts = {
        fold.domain: (oracle.pooled(rows, list(rows)), whole(data, "a", fold.domain))
        for fold, rows in folds
    }
    expected = oracle.held_out(parts, 3)
    for fold, _ in folds:
        result = expected[fold.domain]
        assert fold.ridge == result.ridge
        assert fold.predicted.tolist() == result.predicted
        assert fold.metric == pytest.approx(result.accuracy)
        assert fold.second_metric == pytest.approx(result.balanced_accuracy)


@pytest.mark.parametrize("d", [6, 150])
@pytest.mark.parametrize("seed", range(3))
def test_folds_are_trained_without_the_groups(seed: int, d: int) -> None:
    data = grouped(seed, d=d)
    for fold, rows in one_out(data):
        assert_trained_on(fold, rows, data, OF_TRAINING)
    assert_regressions(one_out(data), data)


@pytest.mark.parametrize("d", [6, 150])
@pytest.mark.parametrize("seed", range(2))
def test_folds_of_a_test_domain_are_trained_without_its_groups(seed: int, d: int) -> None:
    data = grouped(seed, n_domains=4, d=d)
    for folds in two_out(data).values():
        for fold, rows in folds:
            assert_trained_on(fold, rows, data, OF_TRAINING)
        assert_regressions(folds, data)


def test_groups_are_those_of_all_shards_together() -> None:
    data = grouped()
    read = inputs(data)

    def pieces(domain: str) -> Any:
        features, labels = whole(data, "a", domain)
        return zip(np.array_split(features, 4), np.array_split(labels, 4), strict=True)

    for held_out in ("d0", "d1", "d2"):
        for domain, rows in trained_on(data, "a", [held_out]).items():
            found = replace(read, shards=pieces).training(domain, [held_out])
            np.testing.assert_allclose(found.gram, rows[0].T @ rows[0], atol=1e-12)
            assert found.label_sum.tolist() == np.bincount(rows[1], minlength=3).tolist()


@pytest.mark.parametrize("both", [False, True])
def test_discriminability_is_that_of_the_held_out_labels(both: bool) -> None:
    data = grouped(n_domains=4)
    each = [pair for folds in two_out(data).values() for pair in folds] if both else one_out(data)
    for fold, rows in each:
        assert_trained_on(fold, rows, data, ["discriminability"])


def test_evidence_does_not_contain_the_groups_of_the_test_domain() -> None:
    data = grouped(n_domains=4)
    for test, folds in two_out(data).items():
        parts = trained_on(data, "a", [test])
        expected = folds_of(parts)[0].evidence
        assert folds[0][0].evidence == pytest.approx(expected)


def test_groups_change_the_results() -> None:
    """So that the tests above can fail."""
    data = grouped()
    without = folds_of({d: whole(data, "a", d) for d in ("d0", "d1", "d2")})
    for (fold, _), other in zip(one_out(data), without, strict=True):
        for name in ("stability", "training_evidence"):
            assert getattr(fold, name) != pytest.approx(getattr(other, name), rel=1e-4)


# --- transfer -----------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [6, 150])
@pytest.mark.parametrize("seed", range(2))
def test_transfer_is_trained_without_the_groups_of_the_target(seed: int, d: int) -> None:
    data = grouped(seed, d=d)
    read = inputs(data)
    found = Transfer.of(read.moments, read.training, read.n_features)
    plain = Transfer.of(read.moments, None, read.n_features)
    assert np.nanmax(np.abs(found.skills - plain.skills)) > 1e-3
    for column, target in enumerate(found.domains):
        rows = trained_on(data, "a", [target])
        for row, source in enumerate(found.domains):
            if row == column:
                continue
            expected = [
                oracle.skill(rows[source], whole(data, "a", target), 3, ridge) for ridge in RIDGES
            ]
            np.testing.assert_allclose(found.skills[row, column], expected, atol=1e-9)


# --- rankings -----------------------------------------------------------------------------------


def test_ranking_is_made_of_these_folds() -> None:
    data = grouped()
    features, y, domains, groups = data
    ranking = oodzoo.rank(features, y, domains, groups=groups)
    (row,) = (row for row in ranking.rows if row.model == "a")
    read = inputs(data)
    assert row.transfer == pytest.approx(100 * Transfer.of(read.moments, read.training).skill())
    for (fold, _), found in zip(one_out(data), row.folds, strict=True):
        assert found.accuracy == pytest.approx(100 * fold.metric)
        assert found.stability == pytest.approx(fold.stability)


def test_rankings_for_test_domains_are_made_of_these_folds() -> None:
    data = grouped(n_domains=4)
    features, y, domains, groups = data
    folds = two_out(data)
    for test, ranking in rank_for_test_domains(features, y, domains, groups=groups).items():
        (row,) = (row for row in ranking.rows if row.model == "a")
        for (fold, _), found in zip(folds[test], row.folds, strict=True):
            assert found.accuracy == pytest.approx(100 * fold.metric)
            assert found.stability == pytest.approx(fold.stability)


def test_transfer_for_a_test_domain_is_trained_without_its_groups() -> None:
    data = grouped(n_domains=4)
    features, y, domains, groups = data
    for test, ranking in rank_for_test_domains(features, y, domains, groups=groups).items():
        (row,) = (row for row in ranking.rows if row.model == "a")
        means = []
        for ridge in RIDGES:
            skills = [
                oracle.skill(part, whole(data, "a", target.domain), 3, ridge)
                for target in row.folds
                for part in trained_on(data, "a", [test, target.domain]).values()
            ]
            means.append(np.mean(skills))
        assert row.transfer == pytest.approx(100 * max(means))


@pytest.mark.parametrize("score", ["unseen", "zood", "accuracy"])
@pytest.mark.parametrize("ranked", [oodzoo.rank, rank_for_test_domains])
def test_groups_within_a_domain_change_intervals_alone(
    ranked: Callable[..., Any], score: str
) -> None:
    features, y, domains, numbers = grouped()
    inside = [g and f"{d}/{g}" for d, g in zip(domains, numbers, strict=True)]
    one, two = (ranked(features, y, domains, score=score, groups=g) for g in (None, inside))
    if ranked is oodzoo.rank:
        one, two = {"": one}, {"": two}
    changed = 0
    for test in one:
        for row, same in zip(one[test].rows, two[test].rows, strict=True):
            changed += row.accuracy_interval != same.accuracy_interval
            intervals = {
                name: getattr(row, name) for name in ("accuracy_interval", "rank_interval", "tied")
            }
            assert replace(same, **intervals) == row
    assert changed


@pytest.mark.parametrize("ranked", [oodzoo.rank, rank_for_test_domains])
def test_a_domain_whose_samples_are_all_shared(ranked: Callable[..., Any]) -> None:
    features, y, domains, _ = grouped(n_domains=4)
    number = np.arange(len(y)) % 30
    groups = [
        f"g{k}" if d in ("d1", "d2") else f"{d}/{k}" for k, d in zip(number, domains, strict=True)
    ]
    with pytest.warns(UserWarning, match=r"all samples of domain 'd1' belong to") as said:
        found = ranked(features, y, domains, groups=groups)
    assert len(said) == 1
    assert "they are trained on" in str(said[0].message)
    expected = ranked(features, y, domains)  # as if these groups were unknown
    pairs = [(found, expected)]
    if ranked is rank_for_test_domains:
        pairs = [(found[test], expected[test]) for test in expected]
    for one, two in pairs:
        accuracies = {row.model: [fold.accuracy for fold in row.folds] for row in two.rows}
        for row in one.rows:
            assert [fold.accuracy for fold in row.folds] == accuracies[row.model]


def test_a_message_names_all_held_out_domains() -> None:
    """Half of the samples are in each of two held-out domains."""
    features, y, domains, _ = grouped(n_domains=4)
    number = np.arange(len(y)) % 30
    groups: Groups = [None] * len(y)
    for row, (k, domain) in enumerate(zip(number, domains, strict=True)):
        if domain == "d1" or domain == ("d2" if k < 15 else "d3"):
            groups[row] = f"g{k}"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(oodzoo.rank(features, y, domains, groups=groups)) == 2
    words = "all samples of domain 'd1' belong to groups that occur in 'd2' or 'd3', too; they"
    with pytest.warns(UserWarning, match=words):
        rank_for_test_domains(features, y, domains, groups=groups)


# --- shared groups ------------------------------------------------------------------------------


def source_of(groups: Sequence[Any]) -> ArraySource:
    """Two samples in each of three domains."""
    return ArraySource(
        {"a": np.ones((6, 1))}, [0, 1] * 3, ["x"] * 2 + ["y"] * 2 + ["z"] * 2, groups
    )


def test_rows_to_train_on() -> None:
    shared = SharedGroups(source_of(["p", "q", "q", None, None, "p"]))
    found = {
        (domain, held_out): None if (rows := shared.rows(domain, held_out)) is None else [*rows]
        for domain, held_out in [
            ("x", ("y",)),
            ("x", ("z",)),
            ("x", ("y", "z")),
            ("y", ("x",)),
            ("y", ("z",)),
            ("z", ("x", "y")),
        ]
    }
    assert found == {
        ("x", ("y",)): [True, False],
        ("x", ("z",)): [False, True],
        ("x", ("y", "z")): None,
        ("y", ("x",)): [False, True],
        ("y", ("z",)): None,
        ("z", ("x", "y")): [True, False],
    }


def test_samples_without_a_group_share_none() -> None:
    for groups in ([None] * 6, ["p", None, "q", None, "r", None]):
        shared = SharedGroups(source_of(groups))
        assert shared.settings == ""
        assert shared.rows("x", ["y", "z"]) is None


def test_settings_identify_the_groups() -> None:
    known = [
        ["p", "q", "q", None, None, "p"],
        ["q", "p", "q", None, None, "p"],
        ["p", "q", "q", None, "p", None],
        ["p", "q", "q", "r", None, "p"],
    ]
    settings = [SharedGroups(source_of(groups)).settings for groups in known]
    assert len({*settings, ""}) == 5
    assert settings == [SharedGroups(source_of(groups)).settings for groups in known]


# --- stores -------------------------------------------------------------------------------------


def regrouped(store: oodzoo.FeatureStore, groups: Sequence[str | None]) -> oodzoo.FeatureStore:
    """Replace the groups of a store."""
    start, changed = 0, []
    for domain in store.table.domains:
        n = len(domain.images)
        changed.append(msgspec.structs.replace(domain, groups=list(groups[start : start + n])))
        start += n
    with writing(store.path) as writer:
        writer.set_table(SampleTable(changed))
        writer.finish()
    return oodzoo.FeatureStore(store.path)


@pytest.mark.parametrize("ranked", [oodzoo.rank, rank_for_test_domains])
def test_cache_does_not_outlive_the_groups(ranked: Callable[..., Any], tmp_path: Path) -> None:
    features, y, domains, groups = grouped()
    features = {model: X.astype(np.float32) for model, X in features.items()}
    store = saved(tmp_path, features, y, domains)
    before = ranked(store)
    for changed in (groups, groups[::-1], [None] * len(groups)):
        found = ranked(regrouped(store, changed))
        expected = ranked(features, y, domains, groups=changed)
        pairs = [(found, expected)]
        if ranked is rank_for_test_domains:
            pairs = [(found[test], expected[test]) for test in expected]
        for one, two in pairs:
            for row, same in zip(one.rows, two.rows, strict=True):
                assert row.model == same.model
                assert row.score == pytest.approx(same.score, rel=1e-9)
                assert row.transfer == pytest.approx(same.transfer)
                assert [fold.accuracy for fold in row.folds] == pytest.approx(
                    [fold.accuracy for fold in same.folds]
                )
    assert found == before


def test_cached_predictions_for_a_target_do_not_outlive_the_groups(tmp_path: Path) -> None:
    """Their ridge is chosen on the held-out domains."""
    rng = np.random.default_rng(0)
    n, d = 30, 60
    y, domains = np.tile(np.arange(n) % 3, 3), np.repeat(["d0", "d1", "d2"], n)
    groups = [f"g{k}" if k < 20 else None for k in np.tile(np.arange(n), 3)]
    features, target = {}, {}
    for model in "abc":
        signal = rng.normal(size=(3, d))
        own = np.tile(5 * rng.normal(size=(n, d)), (3, 1))  # samples of a group resemble each other
        features[model] = (signal[y] + own + 0.1 * rng.normal(size=(3 * n, d))).astype(np.float32)
        target[model] = signal[np.arange(200) % 3] + 5 * rng.normal(size=(200, d))
    store = saved(tmp_path, features, y, domains)
    oodzoo.rank(store, target=target)
    found = oodzoo.rank(regrouped(store, groups), target=target)
    expected = oodzoo.rank(features, y, domains, groups=groups, target=target)
    assert {row.model: row.agreement for row in found.rows} == {
        row.model: row.agreement for row in expected.rows
    }
