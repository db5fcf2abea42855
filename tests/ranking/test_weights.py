"""Weights of domains: shares in order, and bad input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oodzoo.errors import InputError
from oodzoo.ranking.ranker import normalised_weights

DOMAINS = ["art", "photo", "sketch"]


def test_equal_by_default() -> None:
    np.testing.assert_allclose(normalised_weights(DOMAINS), np.full(3, 1 / 3))
    np.testing.assert_allclose(normalised_weights(DOMAINS, {}), np.full(3, 1 / 3))


def test_no_domains() -> None:
    with pytest.raises(InputError, match="needs images with labels, got none"):
        normalised_weights([])


def test_missing_domains_weigh_one() -> None:
    assert normalised_weights(DOMAINS, {"sketch": 6}).tolist() == [0.125, 0.125, 0.75]
    assert normalised_weights(DOMAINS, {"photo": 0}).tolist() == [0.5, 0.0, 0.5]


@given(st.lists(st.floats(0, 1e308), min_size=3, max_size=3).filter(lambda v: max(v) > 1e-300))
def test_shares_are_proportional(values: list[float]) -> None:
    shares = normalised_weights(DOMAINS, dict(zip(DOMAINS, values, strict=True)))
    assert shares.sum() == pytest.approx(1)
    ratios = np.array(values) / max(values)
    np.testing.assert_allclose(shares, ratios / ratios.sum(), atol=1e-15)


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ({"sketc": 1}, "unknown domain 'sketc'; did you mean sketch?"),
        ({"xyz": 1}, "unknown domain 'xyz'; expected one of art, photo, sketch"),
        ({"art": -1}, "domain 'art' must be a finite number of at least 0, got -1"),
        ({"art": float("nan")}, "got nan"),
        ({"art": float("inf")}, "got inf"),
        ({"art": "2"}, "got '2'"),
        ({"art": True}, "got True"),
        ({"art": None}, "got None"),
        ({"art": 0, "photo": 0, "sketch": 0.0}, "all domains are 0"),
        ([1, 1, 1], "must be a dict {domain: weight}, got list"),
    ],
)
def test_bad_weights_are_one_line(weights: Any, words: str) -> None:
    with pytest.raises(InputError) as caught:
        normalised_weights(DOMAINS, weights)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
