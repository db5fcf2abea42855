"""Linear probes against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tests.testbed.data import arrays, source

from oodzoo.errors import InputError
from oodzoo.features.source import ArraySource
from oodzoo.testbed.probe import PROBE_C, probe_accuracy


def test_accuracy_is_that_of_scikit_learn() -> None:
    features, y, domains = arrays()
    for model, X in features.items():
        accuracy = probe_accuracy(source(), model)
        for domain, value in accuracy.items():
            there = domains == domain
            probe = make_pipeline(StandardScaler(), LogisticRegression(C=PROBE_C, max_iter=300))
            expected = probe.fit(X[~there], y[~there]).score(X[there], y[there])
            # features are stored in single precision
            assert value == pytest.approx(100 * expected, abs=100 / there.sum() + 1e-9)


def test_a_single_class_cannot_be_probed() -> None:
    features, y, domains = arrays()
    some = np.where(domains == "d0", y, "0")
    with pytest.raises(InputError, match="other than 'd0' have only the class '0'"):
        probe_accuracy(ArraySource(features, some, domains), "best")
