"""What `oodzoo predict` says at the end."""

from __future__ import annotations

import numpy as np

from oodzoo.cli.predict import Summary
from oodzoo.predictor import Prediction
from oodzoo.predictor.left_out import ConfidencePoint, LeftOut


def _summary(*labels: str | None) -> Summary:
    summary = Summary("image")
    for label in labels:
        p = np.array([0.6, 0.4])
        summary.add(Prediction(0, "a.png", label, p, 0.5, False, abstained=label is None))
    return summary


def test_the_five_most_frequent_classes() -> None:
    labels = [name for n, name in enumerate("abcdefg", start=1) for _ in range(n)]
    text = _summary(*labels, None).text()
    assert text == "29 images: g (7), f (6), e (5), d (4), c (3) and 2 other classes (3)"
    assert _summary("a").text() == "1 image: a (1)"


def test_abstentions() -> None:
    summary = _summary("a", None)
    unknown = summary.abstained_text(0.9, None)
    assert unknown.startswith("1 of 2 images has no label: confidence below 0.9; ")
    assert "not measured" in unknown
    points = (ConfidencePoint(0.0, 100, 80.0, 60.0), ConfidencePoint(0.9, 0.0, None, None))
    assert "no image had this confidence" in summary.abstained_text(0.9, LeftOut((), points))
    assert summary.abstained_text(0.5, LeftOut((), points)).endswith(
        "on left-out domains at 0, 80.0 % of the others were right (worst domain 60.0 %), and 0 % "
        "had no label"
    )
