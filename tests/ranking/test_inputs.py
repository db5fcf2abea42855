"""Features replaced by fewer coordinates: the same results as with all features."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.ranking.data import Data, simulate_domains

from oodzoo.features.source import ArraySource
from oodzoo.ranking.folds import leave_one_domain_out, leave_two_domains_out
from oodzoo.ranking.inputs import Inputs, read_inputs
from oodzoo.ranking.ridge import Transfer

CASES: dict[str, Callable[[], Data]] = {
    "n < d": lambda: simulate_domains([12, 10, 14], 60),
    "n just below d": lambda: simulate_domains([21, 18, 20], 60),
    "rank-deficient": lambda: simulate_domains([20, 16, 14], 80, rank=9),
    "a feature that is always zero": lambda: with_zeros(simulate_domains([12, 10, 14], 60)),
    "scaled": lambda: {
        name: (1e-6 * Phi, y) for name, (Phi, y) in simulate_domains([12, 10, 14], 60).items()
    },
}


def with_zeros(data: Data) -> Data:
    return {name: (np.hstack([Phi, np.zeros((len(y), 9))]), y) for name, (Phi, y) in data.items()}


def source_of(data: Data, groups: list[Any] | None = None) -> ArraySource:
    features = np.vstack([Phi for Phi, _ in data.values()])
    labels = np.concatenate([y for _, y in data.values()])
    domains = np.repeat(list(data), [len(y) for _, y in data.values()])
    return ArraySource({"net": features}, labels, domains, groups)


def results(read: Inputs, device: str | None) -> dict[str, Any]:
    options: dict[str, Any] = {"training": read.training, "n_features": read.n_features}
    folds = leave_one_domain_out(read.moments, read.shards, device=device, **options)
    for each in leave_two_domains_out(read.moments, read.shards, device=device, **options).values():
        folds += each
    found = {"skills": Transfer.of(read.moments, read.training, read.n_features).skills}
    for name in ("discriminability", "stability", "stability_slope", "shrinkage", "evidence",
                 "training_evidence", "ridge", "metric", "alpha", "beta"):  # fmt: skip
        found[name] = np.array([getattr(fold, name) for fold in folds], float)
    for name in ("label_log_density", "feature_log_density", "predicted"):
        found[name] = np.concatenate([getattr(fold, name) for fold in folds])
    return found


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("device", [None, "cpu"])
def test_coordinates_change_no_result(case: str, device: str | None) -> None:
    if device is not None:
        pytest.importorskip("torch", reason="PyTorch is an extra")
    source = source_of(CASES[case]())
    few, all_features = (read_inputs(source, "net", device, compact=c) for c in (True, False))
    n, d = len(source.labels("a")) + len(source.labels("b")) + len(source.labels("c")), 60
    assert few.moments["a"].n_features <= n < d <= all_features.moments["a"].n_features
    assert few.n_features == all_features.n_features == all_features.moments["a"].n_features
    expected = results(all_features, device)
    for name, values in results(few, device).items():
        np.testing.assert_allclose(values, expected[name], rtol=1e-7, atol=1e-9, err_msg=name)


def test_groups_in_several_domains_are_left_out_of_coordinates_too() -> None:
    data = simulate_domains([12, 10, 14], 60)
    groups = [f"g{number % 30}" for number in range(36)]
    source = source_of(data, groups)
    expected = results(read_inputs(source, "net", None, compact=False), None)
    alone = results(read_inputs(source_of(data), "net", None), None)
    found = results(read_inputs(source, "net", None), None)
    np.testing.assert_allclose(found["evidence"], expected["evidence"], rtol=1e-9)
    np.testing.assert_allclose(found["skills"], expected["skills"], rtol=1e-7)
    assert not np.allclose(found["training_evidence"], alone["training_evidence"])


def test_many_samples_keep_their_features() -> None:
    source = source_of(simulate_domains([60, 50, 40], 8))
    assert read_inputs(source, "net", None).moments["a"].n_features == 8


def test_a_large_offset_keeps_the_features() -> None:
    data = {d: (Phi + 1e6, y) for d, (Phi, y) in simulate_domains([12, 10, 14], 60).items()}
    assert read_inputs(source_of(data), "net", None).moments["a"].n_features == 60


def test_features_that_are_all_zero() -> None:
    data = {d: (0 * Phi, y) for d, (Phi, y) in simulate_domains([12, 10, 14], 60).items()}
    assert read_inputs(source_of(data), "net", None).moments["a"].n_features == 60
