"""Selected columns of several models."""

from __future__ import annotations

import numpy as np
import pytest

from oodzoo.errors import InputError
from oodzoo.features.columns import Columns
from oodzoo.features.source import ArraySource

DOMAINS = np.repeat(["a", "b", "c"], 4)
LABELS = np.tile([0, 1], 6)
FEATURES = {
    "one": np.random.default_rng(0).normal(size=(12, 7)),
    "two": np.random.default_rng(1).normal(size=(12, 3)),
}


def test_samples_have_the_columns_and_domains_in_order() -> None:
    columns = Columns({"two": np.array([2, 0]), "one": np.array([], dtype=int)})
    samples = columns.samples(ArraySource(FEATURES, LABELS, DOMAINS), ["c", "a"])
    assert columns.models == ("two",)
    expected = np.concatenate([FEATURES["two"][d == DOMAINS][:, [2, 0]] for d in "ca"])
    assert np.array_equal(samples.features, expected.astype(np.float32))
    assert np.array_equal(samples.labels, np.concatenate([LABELS[d == DOMAINS] for d in "ca"]))
    assert np.array_equal(samples.domains, np.repeat([0, 1], 4))


def test_a_mask_of_another_length_is_rejected() -> None:
    source = ArraySource(FEATURES, LABELS, DOMAINS)
    with pytest.raises(InputError, match=r"mask has 9 values, .* 10 features"):
        Columns.by_mask(source, ["one", "two"], np.ones(9, dtype=bool))
