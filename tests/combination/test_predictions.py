"""Predictions of unseen domains, against heads fitted one at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.combination.data import predicted, present, small
from tests.evaluation.data import stored, zoo
from tests.heads.planted import planted
from tests.oracles import combination as oracle
from tests.oracles.paths import left_out_path
from tests.oracles.ridge import left_out_ridge

from oodzoo.combination import predictions
from oodzoo.combination.predictions import (
    ALONE,
    HeadPredictions,
    accurate_setting,
    fit_kind,
    model_predictions,
    predict_left_out,
)
from oodzoo.features.columns import Columns, Samples
from oodzoo.features.source import ArraySource, StoreSource
from oodzoo.heads.kinds import best_setting
from oodzoo.heads.paths import C_GRID
from oodzoo.heads.ridge import SETTINGS

KINDS = ("logistic", "ridge", ALONE)

seeds = st.integers(0, 10_000)


def without(samples: Samples, *domains: int) -> Samples:
    rest = ~np.isin(samples.domains, domains)
    return Samples(samples.features[rest], samples.labels[rest], samples.domains[rest])


def log_probabilities(kind: str, samples: Samples, left_out: tuple[int, ...], at: int) -> Any:
    """Of the first of the left-out domains, by a head fitted without them."""
    head = fit_kind(kind, without(samples, *left_out), 3, at)
    features = samples.features[samples.domains == left_out[0]]
    with np.errstate(divide="ignore"):
        return np.log(head.probabilities(features))


def literal_path(kind: str, samples: Samples, left_out: tuple[int, ...]) -> Any:
    """All settings of a kind, by scikit-learn and by the normal equations."""
    rows = samples.domains[np.isin(samples.domains, left_out)] == left_out[0]
    if kind == "ridge":
        return left_out_ridge(*samples, set(left_out), SETTINGS, 3)[:, rows]
    return left_out_path(*samples, set(left_out), C_GRID, 3)[:, rows]


# --- predictions --------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(48, 5), (48, 60)])
@pytest.mark.parametrize("kind", KINDS)
def test_what_heads_fitted_without_the_domains_predict(shape: tuple[int, int], kind: str) -> None:
    """Three domains: without a test domain, then for each of them as the test domain."""
    samples = planted(*shape, 3, 3)
    path = "ridge" if kind == "ridge" else "logistic"
    found = predict_left_out(samples, 3, path)[kind]
    assert len(found) == 4
    for number, each in enumerate(found):
        tests = () if number == 0 else (number - 1,)
        training = [domain for domain in range(3) if domain not in tests]
        assert len(each.out_of_fold) == len(training)
        for domain, part in zip(training, each.out_of_fold, strict=True):
            expected = log_probabilities(kind, samples, (domain, *tests), each.setting)
            np.testing.assert_allclose(np.exp(part), np.exp(expected), atol=0.02)
        if tests:
            assert each.test is not None
            expected = log_probabilities(kind, samples, tests, each.setting)
            np.testing.assert_allclose(np.exp(each.test), np.exp(expected), atol=0.02)
        else:
            assert each.test is None


@pytest.mark.parametrize("kind", KINDS)
def test_the_setting_is_chosen_without_the_test_domain(kind: str) -> None:
    """The rules written out, on predictions of scikit-learn, give the same settings."""
    samples = planted(60, 4, 3, 3, seed=1)
    found = predict_left_out(samples, 3, "ridge" if kind == "ridge" else "logistic")[kind]
    rule = oracle.most_accurate if kind == ALONE else oracle.most_likely
    for number, each in enumerate(found):
        tests = () if number == 0 else (number - 1,)
        training = [domain for domain in range(3) if domain not in tests]
        paths = [literal_path(kind, samples, (domain, *tests)) for domain in training]
        labels = [samples.labels[samples.domains == domain] for domain in training]
        assert each.setting == rule(paths, labels)


def test_the_test_domain_has_no_influence() -> None:
    """Noise instead of a domain changes what is predicted for it, and nothing else."""
    samples = planted(48, 6, 3, 4)
    rng = np.random.default_rng(0)
    before = {path: predict_left_out(samples, 3, path) for path in ("logistic", "ridge")}
    for test in (0, 2):
        rows = samples.domains == test
        features, labels = samples.features.copy(), samples.labels.copy()
        features[rows] = 1e4 * rng.normal(size=features[rows].shape)
        labels[rows] = rng.integers(0, 3, rows.sum())
        for path, one in before.items():
            two = predict_left_out(Samples(features, labels, samples.domains), 3, path)
            for kind in one:
                mine, theirs = one[kind][test + 1], two[kind][test + 1]
                assert mine.setting == theirs.setting
                np.testing.assert_array_equal(
                    np.concatenate(mine.out_of_fold), np.concatenate(theirs.out_of_fold)
                )
                assert not np.allclose(present(mine.test), present(theirs.test))
                other = one[kind][2].out_of_fold[0], two[kind][2].out_of_fold[0]
                assert not np.allclose(*other)  # of another test domain


@pytest.mark.parametrize("path", ["logistic", "ridge"])
def test_two_domains_have_no_test_domain(path: str) -> None:
    for found in predict_left_out(planted(40, 4, 3, 2), 3, path).values():
        (each,) = found
        assert each.test is None
        assert [part.shape for part in each.out_of_fold] == [(20, 3)] * 2
    source = small(n_domains=2)
    for kind in KINDS:
        assert list(model_predictions(source, "best")[kind]) == [None]


def test_a_class_of_one_domain_is_unknown_where_this_domain_is_left_out() -> None:
    samples = planted(48, 4, 3, 4)
    samples.labels[(samples.labels == 2) & (samples.domains != 1)] = 0
    for path in ("logistic", "ridge"):
        for found in predict_left_out(samples, 3, path).values():
            for number, each in enumerate(found):
                for domain, part in zip(
                    [d for d in range(4) if d != number - 1], each.out_of_fold, strict=True
                ):
                    unknown = 1 in (domain, number - 1)
                    assert np.isneginf(part[:, 2]).all() == unknown
                    assert np.isfinite(part[:, :2]).all()


# --- rules --------------------------------------------------------------------------------------


@given(seed=seeds, unknown=st.booleans())
@settings(max_examples=40, deadline=None)
def test_settings_are_chosen_as_the_rules_say(seed: int, unknown: bool) -> None:
    found, labels = predicted(seed, n_heads=6)
    paths = [path.astype(np.float32) for path in found]
    if unknown:
        paths[0][:, :, 2] = -np.inf
    assert best_setting(paths, labels) == oracle.most_likely(paths, labels)
    assert accurate_setting(paths, labels) == oracle.most_accurate(paths, labels)


def test_the_rules_differ() -> None:
    """A hesitant head is the most likely; one that is right more often, and too sure, is used."""
    y = np.zeros(100, np.int64)
    hesitant, sure = np.full((100, 2), [0.7, 0.3]), np.full((100, 2), [1 - 1e-9, 1e-9])
    hesitant[:30], sure[:10] = [0.4, 0.6], [1e-9, 1 - 1e-9]
    paths = [np.log(np.stack([hesitant, sure]))] * 2
    assert best_setting(paths, [y, y]) == 0
    assert accurate_setting(paths, [y, y]) == 1


# --- sources and stores -------------------------------------------------------------------------


def require_equal(
    one: dict[str | None, HeadPredictions], two: dict[str | None, HeadPredictions]
) -> None:
    assert list(one) == list(two)
    for test, mine in one.items():
        theirs = two[test]
        assert mine.setting == theirs.setting
        for a, b in zip(mine.out_of_fold, theirs.out_of_fold, strict=True):
            np.testing.assert_array_equal(a, b)
        assert (mine.test is None) == (theirs.test is None)
        if mine.test is not None:
            np.testing.assert_array_equal(mine.test, theirs.test)


@pytest.mark.parametrize("kind", KINDS)
def test_predictions_of_a_source_are_by_domain(kind: str) -> None:
    """Domains have different numbers of samples."""
    features, y, domains = zoo(n=20, n_domains=4)
    keep = (domains != "d1") | (np.arange(80) % 20 < 11)
    source = ArraySource({"best": features["best"][keep]}, y[keep], domains[keep])
    found = model_predictions(source, "best")[kind]
    assert list(found) == [None, "d0", "d1", "d2", "d3"]
    samples = Columns.all_of(source, ["best"]).samples(source, source.domains)
    expected = predict_left_out(samples, 3, "ridge" if kind == "ridge" else "logistic")[kind]
    require_equal(found, dict(zip(found, expected, strict=True)))
    sizes = {"d0": 20, "d1": 11, "d2": 20, "d3": 20}
    for test, each in found.items():
        of_training = [size for domain, size in sizes.items() if domain != test]
        assert [len(part) for part in each.out_of_fold] == of_training
        if test is not None:
            assert each.test is not None
            assert len(each.test) == sizes[test]


def test_a_store_keeps_predictions_until_the_features_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[str] = []
    compute = predictions.predict_left_out

    def counted(samples: Samples, n_classes: int, path: str, **options: Any) -> Any:
        computed.append(path)
        return compute(samples, n_classes, path, **options)

    monkeypatch.setattr(predictions, "predict_left_out", counted)
    features, y, domains = zoo(n=15, n_domains=3)
    source = stored(tmp_path / "one", features, y, domains)
    first = {kind: model_predictions(source, "best")[kind] for kind in KINDS}
    assert computed == ["logistic", "ridge"]  # two kinds are rules of the same path
    again = StoreSource(source.store)
    for kind in KINDS:
        require_equal(model_predictions(again, "best")[kind], first[kind])
    assert computed == ["logistic", "ridge"]
    require_equal(first["ridge"], model_predictions(small(n=15), "best")["ridge"])
    computed.clear()
    model_predictions(source, "good")
    assert computed == ["logistic", "ridge"]
    computed.clear()
    other = stored(tmp_path / "two", features | {"best": features["best"] + 1 / 3}, y, domains)
    cache = source.store.path / "cache" / "heads"
    files = list(cache.iterdir())
    assert files
    (other.store.path / "cache").mkdir()
    cache.rename(other.store.path / "cache" / "heads")
    changed = model_predictions(other, "best")["ridge"]
    assert computed == ["logistic", "ridge"]
    assert not np.array_equal(changed["d0"].test, first["ridge"]["d0"].test)  # type: ignore[arg-type]
    model_predictions(other, "good")["ridge"]  # has not changed
    assert computed == ["logistic", "ridge"]
