"""Predictions of unseen samples, against heads fitted one at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.evaluation.data import task_zoo, zoo
from tests.heads.planted import planted
from tests.maths.combinations import present
from tests.oracles import outputs as oracle
from tests.oracles.ridge import split_classes

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
from oodzoo.extraction.source import ArraySource
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
