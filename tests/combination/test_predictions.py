"""Predictions of unseen samples, against heads fitted one at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.combination.data import present, small
from tests.evaluation.data import stored, task_zoo, zoo
from tests.heads.planted import planted
from tests.oracles import outputs as oracle
from tests.oracles.ridge import split_classes

from oodzoo.combining import predictions
from oodzoo.combining.predictions import (
    ALONE,
    SHARES,
    TRAINED,
    Head,
    HeadPredictions,
    fit_kind,
    model_predictions,
    predict_left_out,
)
from oodzoo.extraction.columns import Columns, Samples
from oodzoo.extraction.source import ArraySource, StoreSource
from oodzoo.linear.heads.kinds import folds_within
from oodzoo.linear.heads.ridge import SETTINGS
from oodzoo.tasks import Kind


def require_equal(one: HeadPredictions, two: HeadPredictions) -> None:
    assert one.setting == two.setting
    for a, b in ((one.out_of_fold, two.out_of_fold), (one.within, two.within)):
        assert (a is None) == (b is None)
        for mine, theirs in zip(a or (), b or (), strict=True):
            np.testing.assert_array_equal(mine, theirs)
    assert (one.test is None) == (two.test is None)
    if one.test is not None:
        np.testing.assert_array_equal(one.test, present(two.test))


# --- predictions --------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(48, 5), (48, 60)])
def test_predictions_equal_literal_fits(shape: tuple[int, int]) -> None:
    """Three domains: without a test domain, then for each of them as the test domain."""
    samples = planted(*shape, 3, 3)
    X, y, domains = samples
    groups = [f"g{row // 2}" for row in range(48)]
    found = predict_left_out(samples, 3, "classification", groups=groups)
    assert tuple(found) == SHARES
    for number, test in enumerate([None, 0, 1, 2]):
        training = domains != test
        rows = np.flatnonzero(training)
        folds = np.full(48, -1)
        folds[rows] = folds_within(
            "classification", y[rows], domains[rows], [groups[row] for row in rows]
        )
        left_out, rest = split_classes(X, y, np.where(training, domains, -1), SETTINGS, 3)
        within, _ = split_classes(X, y, folds, SETTINGS, 3)
        numbers = [domain for domain in range(3) if domain != test]
        outside, inside = (
            [each[:, domains[rows] == domain] for domain in numbers] for each in (left_out, within)
        )
        labels = [y[domains == domain] for domain in numbers]
        for share in SHARES:
            each = found[share][number]
            at = oracle.best_setting("classification", outside, inside, labels, share)
            assert each.setting == at
            for mine, expected in zip(each.out_of_fold, outside, strict=True):
                np.testing.assert_allclose(mine, expected[at], rtol=1e-5, atol=1e-5)
            for mine, expected in zip(each.within or (), inside, strict=True):
                np.testing.assert_allclose(mine, expected[at], rtol=1e-5, atol=1e-5)
            assert (each.test is None) == (test is None)
            if each.test is not None:
                np.testing.assert_allclose(each.test, rest[at], rtol=1e-5, atol=1e-5)
                head = fit_kind("classification", TRAINED, _rows(samples, training), 3, at)
                probabilities = head.probabilities(X[~training])
                np.testing.assert_allclose(np.exp(each.test), probabilities, atol=1e-5)


def _rows(samples: Samples, rows: Any) -> Samples:
    return Samples(*(each[rows] for each in samples))


@pytest.mark.parametrize("task", ["classification", "multilabel"])
def test_the_test_domain_has_no_influence(task: Kind) -> None:
    """Noise instead of a domain changes what is predicted for it, and nothing else."""
    samples = planted(48, 6, 3, 4)
    rng = np.random.default_rng(0)
    if task == "multilabel":
        samples = samples._replace(labels=np.eye(3)[samples.labels] @ np.tri(3)[:, :2])
    n_outputs = 3 if task == "classification" else 2
    one = predict_left_out(samples, n_outputs, task)
    for test in (0, 2):
        rows = samples.domains == test
        features, labels = samples.features.copy(), samples.labels.copy()
        features[rows] = 1e4 * rng.normal(size=features[rows].shape)
        labels[rows] = rng.permutation(labels[rows])
        two = predict_left_out(Samples(features, labels, samples.domains), n_outputs, task)
        for share in SHARES:
            mine, theirs = one[share][test + 1], two[share][test + 1]
            assert not np.allclose(present(mine.test), present(theirs.test))
            require_equal(
                mine, HeadPredictions(theirs.setting, theirs.out_of_fold, theirs.within, mine.test)
            )
            other = one[share][2].out_of_fold[0], two[share][2].out_of_fold[0]
            assert not np.allclose(*other)  # of another test domain


def test_two_domains_have_no_test_domain_and_one_has_only_folds() -> None:
    for (each,) in predict_left_out(planted(40, 4, 3, 2), 3, "classification").values():
        assert each.test is None
        assert each.within is not None
        shapes = [part.shape for part in (*each.out_of_fold, *each.within)]
        assert shapes == [(20, 3)] * 4
    for (each,) in predict_left_out(planted(40, 4, 3, 1), 3, "classification").values():
        assert each.test is None
        assert each.within is None
        assert [part.shape for part in each.out_of_fold] == [(40, 3)]
    source = small(n_domains=2)
    alone, heads = model_predictions(source, "best")
    assert list(alone) == [None]
    assert all(list(found) == [None] for found in heads.values())


def test_a_class_of_one_domain_is_unknown_where_this_domain_is_left_out() -> None:
    samples = planted(48, 4, 3, 4)
    samples.labels[(samples.labels == 2) & (samples.domains != 1)] = 0
    for found in predict_left_out(samples, 3, "classification").values():
        for number, each in enumerate(found):
            domains = [domain for domain in range(4) if domain != number - 1]
            for domain, part in zip(domains, each.out_of_fold, strict=True):
                unknown = 1 in (domain, number - 1)
                assert np.isneginf(part[:, 2]).all() == unknown
                assert np.isfinite(part[:, :2]).all()


# --- sources and stores -------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["classification", "regression", "multilabel"])
def test_predictions_of_a_source_are_by_domain(task: Kind) -> None:
    """Domains have different numbers of samples."""
    data = zoo(n=20, n_domains=4) if task == "classification" else task_zoo(task, n=20)
    features, y, domains = data
    keep = (domains != "d1") | (np.arange(80) % 20 < 11)
    source = ArraySource({"good": features["good"][keep]}, y[keep], domains[keep], None, task)
    n_outputs = len(source.classes)
    alone, heads = model_predictions(source, "good")
    assert list(heads) == [Head("good", TRAINED, share) for share in SHARES]
    samples = Columns.all_of(source, ["good"]).samples(source, source.domains)
    expected = predict_left_out(samples, n_outputs, task)
    assert Head("good") == Head("good", TRAINED, ALONE)
    sizes = {"d0": 20, "d1": 11, "d2": 20, "d3": 20}
    pairs = zip(heads.values(), expected.values(), strict=True)
    for found, wanted in [(alone, expected[ALONE]), *pairs]:
        assert list(found) == [None, *sizes]
        for test, each in zip(found, wanted, strict=True):
            require_equal(found[test], each)
            of_training = [size for domain, size in sizes.items() if domain != test]
            assert [len(part) for part in found[test].out_of_fold] == of_training
            assert [len(part) for part in found[test].within or ()] == of_training
            if test is not None:
                assert len(present(found[test].test)) == sizes[test]


def test_a_store_keeps_predictions_until_the_features_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[str] = []
    compute = predictions.predict_left_out

    def counted(samples: Samples, n_outputs: int, task: Kind, kind: str, **options: Any) -> Any:
        computed.append(kind)
        return compute(samples, n_outputs, task, kind, **options)

    monkeypatch.setattr(predictions, "predict_left_out", counted)
    features, y, domains = zoo(n=15, n_domains=3)
    source = stored(tmp_path / "one", features, y, domains)

    def all_of(some: Any, model: str = "best") -> list[HeadPredictions]:
        alone, heads = model_predictions(some, model)
        return [each for found in (alone, *heads.values()) for each in found.values()]

    first = all_of(source)
    assert computed == [TRAINED]  # all shares and test domains are of the same fits
    for again in (StoreSource(source.store), small(n=15)):
        for one, two in zip(first, all_of(again), strict=True):
            require_equal(one, two)
    assert computed == [TRAINED] * 2  # arrays are not kept
    computed.clear()
    all_of(source, "good")
    assert computed == [TRAINED]
    computed.clear()
    other = stored(tmp_path / "two", features | {"best": features["best"] ** 3}, y, domains)
    cache = source.store.path / "cache" / "heads"
    assert list(cache.iterdir())
    (other.store.path / "cache").mkdir()
    cache.rename(other.store.path / "cache" / "heads")
    changed = all_of(other)
    assert computed == [TRAINED]
    assert not np.array_equal(present(changed[1].test), present(first[1].test))
    all_of(other, "good")  # has not changed
    assert computed == [TRAINED]
