"""Prediction sets and confidence in a model card."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import oodzoo
from oodzoo.predictor.card import model_card
from oodzoo.predictor.left_out import LeftOut


def test_the_card_has_what_was_measured(predictor: oodzoo.Predictor) -> None:
    assert predictor.left_out is not None
    card = model_card(predictor._parts())
    for each in predictor.left_out.sets:
        domain, worst = each.worst
        row = f"| {100 * each.level:g} % | {each.average:.1f} % | {worst:.1f} % (`{domain}`) |"
        assert f"{row} {each.size:.1f} |" in card
    point = predictor.left_out.at_confidence(0.7)
    assert f"| 0.7 | {point.kept:.0f} % | {point.accuracy:.1f} % | {point.worst:.1f} % |" in card


def test_a_card_without_it(predictor: oodzoo.Predictor) -> None:
    for nothing in (None, LeftOut()):
        parts = replace(predictor._parts(), left_out=nothing)
        assert "Prediction sets" not in model_card(parts)


def test_the_card_of_numbers_has_half_widths() -> None:
    X = np.random.default_rng(0).normal(size=(120, 3))
    fitted = oodzoo.fit({"net": X}, X[:, 0] * 10, np.repeat(["a", "b"], 60), choose="single")
    assert fitted.left_out is not None
    half = fitted.left_out.at_coverage(0.9).thresholds[0]
    assert f"| ± {half:.4g} |" in model_card(fitted._parts())
