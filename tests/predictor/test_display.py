"""A predictor as a table in a notebook."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import oodzoo
from oodzoo.predictor.card import model_card, predictor_as_html
from oodzoo.predictor.parts import PredictorParts

ODD = "<img>"


@pytest.fixture(scope="module")
def parts() -> PredictorParts:
    rng = np.random.default_rng(0)
    y, domains = np.tile([0, 1], 60), np.repeat([ODD, "b", "c"], 40)
    features = {f"{ODD}{at}" * 30: y[:, None] + rng.normal(size=(120, 3)) for at in range(9)}
    return oodzoo.fit(features, y, domains, models=list(features))._parts()


def test_every_model_has_a_row(parts: PredictorParts) -> None:
    html = predictor_as_html(parts)
    assert html.count("<tr>") == 10
    assert "3 of 3" in html
    assert "2 classes from 9 models" in html
    assert "120 samples, 3 domains" in html
    assert not any(column in html for column in ("weight", "parameters", "licence"))
    assert ODD not in html


def test_what_was_measured_is_shown(parts: PredictorParts) -> None:
    assert "Accuracy on left-out" not in predictor_as_html(parts)
    assert "Prediction sets (coverage=0.9): sets cover" in predictor_as_html(parts)
    measured = replace(
        parts.provenance,
        accuracy=71.25,
        accuracy_interval=(50.0, 90.0),
        accuracy_by_domain={ODD: 71.25},
        pool={parts.models[0].name: 0.5},
    )
    html = predictor_as_html(replace(parts, provenance=measured))
    assert "Accuracy on left-out domains: 71.2 % (90 % interval for one domain: 50–90)" in html
    assert "&lt;img&gt; 71.2" in html
    assert "0.50" in html


def test_what_is_optimistic_or_not_adapted_is_said(parts: PredictorParts) -> None:
    assert "optimistic" not in predictor_as_html(parts)  # the models were named
    chosen = replace(parts, provenance=replace(parts.provenance, choice="ensemble"))
    assert "with the models that all domains chose, which is optimistic." in predictor_as_html(
        chosen
    )
    target = replace(parts, provenance=replace(parts.provenance, choice="pool", adapted=20))
    assert "classes on average, measured without adapting." in predictor_as_html(target)


def test_repr_is_short_whatever_the_names(parts: PredictorParts) -> None:
    predictor = oodzoo.Predictor(**vars(parts))
    assert len(repr(predictor)) < 400
    assert "… 4 more" in repr(predictor)


def test_a_pool_of_one_model_is_a_single_model() -> None:
    rng = np.random.default_rng(0)
    y, domains = np.tile([0, 1], 60), np.repeat(["a", "b", "c"], 40)
    X = y[:, None] + rng.normal(size=(120, 3))
    predictor = oodzoo.fit({"net": X}, y, domains, choose="pool")
    assert repr(predictor) == "Predictor(single: 2 classes from 3 features of net)"
    assert predictor.provenance.choice == "pool"  # what it was chosen as, and what adapts
    html, card = predictor_as_html(predictor._parts()), model_card(predictor._parts())
    assert "Predictor (single)" in html
    assert "made: a single model" in card
    assert not any("pool" in text or "weight" in text for text in (html, card))
