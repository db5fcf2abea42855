"""Rows of a ranking as text and in notebooks."""

from __future__ import annotations

from tests.ranking.data import simulate_models

import oodzoo


def test_rows_are_short_whatever_their_names() -> None:
    features, y, domains = simulate_models({"a": 0.5, "b": 1.5})
    name, domain = "<model>" * 99, "<d0>" * 99
    renamed = [domain if each == "d0" else each for each in domains]
    ranking = oodzoo.rank({name: features["a"], "b": features["b"]}, y, renamed)
    row = ranking[name]
    fold = next(fold for fold in row.folds if fold.domain == domain)
    assert len(repr(row)) < 120
    assert len(repr(fold)) < 120
    assert f"{row.expected_accuracy:.1f} %" in repr(row)
    assert f"{fold.accuracy:.1f} %" in repr(fold)
    assert row._repr_html_().count("<tr>") == 1 + len(row.folds)
    assert "<model>" not in row._repr_html_()
    assert "&lt;d0&gt;" in row._repr_html_()
