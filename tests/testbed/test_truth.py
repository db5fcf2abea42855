"""Accuracy of heads on test domains."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tests.testbed.data import arrays, source, store

from oodzoo.errors import InputError
from oodzoo.features.columns import Samples
from oodzoo.features.source import ArraySource, StoreSource
from oodzoo.heads.linear import fit_head
from oodzoo.testbed.measurement import head_accuracy


def test_accuracy_is_that_of_a_head_fitted_to_the_other_domains() -> None:
    features, y, domains = arrays()
    for model, X in features.items():
        for domain in ("d0", "d1", "d2"):
            there = domains == domain
            training = Samples(
                X[~there].astype(np.float32),
                y[~there].astype(np.int64),
                np.unique(domains[~there], return_inverse=True)[1],
            )
            C = fit_head(training, 3).C
            head = make_pipeline(StandardScaler(), LogisticRegression(C=C, max_iter=1000))
            expected = head.fit(X[~there], y[~there]).score(X[there], y[there])
            # features are stored in single precision
            value = head_accuracy(source(), model, domain)
            assert value == pytest.approx(100 * expected, abs=100 / there.sum() + 1e-9)


def test_a_head_may_be_tested_on_another_source() -> None:
    features, y, domains = arrays()
    part = np.arange(len(y)) // 3 % 2 == 0
    few = ArraySource({m: X[part] for m, X in features.items()}, y[part], domains[part])
    tested = ArraySource({"best": np.eye(3, 4)[y.astype(int)]}, y, domains)
    assert head_accuracy(few, "best", "d1", tested=tested) == 100.0
    assert head_accuracy(few, "none", "d1", tested=source()) != head_accuracy(few, "none", "d1")


def test_accuracies_are_cached_for_each_test_domain(tmp_path: Path) -> None:
    opened = StoreSource(store(tmp_path))
    found = [head_accuracy(opened, "fair", domain) for domain in opened.domains]
    files = list((opened.store.path / "cache" / "head-accuracy").iterdir())
    assert len(files) == 3
    assert [head_accuracy(opened, "fair", domain) for domain in opened.domains] == found
    assert sorted((opened.store.path / "cache" / "head-accuracy").iterdir()) == sorted(files)


def test_a_single_class_cannot_be_trained_on() -> None:
    features, y, domains = arrays()
    some = np.where(domains == "d0", y, "0")
    with pytest.raises(InputError, match="other than 'd0' have only the class '0'"):
        head_accuracy(ArraySource(features, some, domains), "best", "d0")
