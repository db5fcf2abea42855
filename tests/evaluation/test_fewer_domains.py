"""Accuracy with one training domain fewer."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from tests.evaluation.data import stored, zoo
from tests.oracles.ridge import left_out_ridge

from oodzoo.combining.evaluation.learning_curve import (
    FewerDomains,
    metric_of_all,
    with_fewer_domains,
)
from oodzoo.combining.heads import predict_with_heads
from oodzoo.extraction.source import ArraySource
from oodzoo.linear.heads.ridge import SETTINGS


def test_it_equals_heads_trained_without_each_other_domain() -> None:
    features, y, domains = zoo(n=18)
    source = ArraySource(features, y, domains)
    heads = predict_with_heads(source)
    models = {"d0": "fair", "d1": "good", "d2": "fair", "d3": "good"}
    found = with_fewer_domains(source, models, heads)
    assert found.training == 3
    numbers = np.repeat(np.arange(4), 18)
    for at in (0, 3):
        test = f"d{at}"
        model, inside = models[test], numbers == at
        setting = SETTINGS[heads[test].alone[model].setting]
        shares = []
        for other in set(range(4)) - {at}:
            X = features[model].astype(np.float32)
            (path,) = left_out_ridge(X, y, numbers, {at, other}, [setting], 3)
            predicted = path.argmax(axis=1)[inside[np.isin(numbers, [at, other])]]
            shares.append(100 * np.mean(predicted == y[inside]))
        assert found.fewer[test] == pytest.approx(np.mean(shares))
        assert found.all[test] == metric_of_all(source, heads[test], test, model)


def test_the_gain_and_its_error() -> None:
    found = FewerDomains(3, {"a": 70.0, "b": 80.0}, {"a": 72.0, "b": 81.0})
    assert found.gain == 1.5
    assert found.error == pytest.approx(np.std([2, 1], ddof=1) / math.sqrt(2))
    assert found.helps
    assert not FewerDomains(3, {"a": 70.0, "b": 80.0}, {"a": 74.0, "b": 79.0}).helps
    assert not FewerDomains(3, {"a": 70.0, "b": 80.0}, {"a": 70.4, "b": 80.4}).helps
    assert FewerDomains(3, {"a": 70.0, "b": 80.0}, {"a": 70.5, "b": 80.46}).helps  # shown as 0.5


def test_it_is_kept_in_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = stored(tmp_path, *zoo(n=12, n_domains=3))
    models, heads = dict.fromkeys(source.domains, "fair"), predict_with_heads(source)
    found = with_fewer_domains(source, models, heads)
    monkeypatch.delattr("oodzoo.combining.evaluation.learning_curve.PATHS")  # what computes it
    assert with_fewer_domains(source, models, heads) == found
