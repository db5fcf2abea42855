"""What is chosen for a test domain, and how accurate it is there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from tests.evaluation.data import stored, zoo
from tests.evaluation.test_settings import settings

from oodzoo.combining.evaluation.judge import Judge, Rankings
from oodzoo.combining.heads import predict_with_heads
from oodzoo.extraction.source import FeatureSource


def _judge(source: FeatureSource, lines: list[str]) -> Judge:
    chosen = settings(top_k=[2], peers=None, max_ms=None)
    heads = predict_with_heads(source)
    return Judge(source, chosen, heads, Rankings.of(source, chosen, None), None, lines.append)


def test_a_fold_is_judged_once_and_kept(tmp_path: Path) -> None:
    source = stored(tmp_path, *zoo(n=15, n_domains=3))
    lines: list[str] = []
    first = _judge(source, lines).fold("d1")
    assert lines
    assert all(line.startswith("test domain 'd1': ") for line in lines)
    lines.clear()
    again = _judge(source, lines).fold("d1")
    assert lines == []
    assert replace(again, estimates={}) == replace(first, estimates={})
    assert list(again.estimates) == list(first.estimates) == ["ensemble", "selection"]
    for name, kinds in first.estimates.items():
        left_out, within = kinds
        assert [len(each) for each in left_out] == [15, 15]
        assert len(within) == (2 if name == "ensemble" else 0)
        for found, expected in zip(again.estimates[name], kinds, strict=True):
            np.testing.assert_array_equal(found, expected)
    assert first.recommended in ("single", "pool", "ensemble", "selection")


def test_the_final_decision_uses_all_domains(tmp_path: Path) -> None:
    source = stored(tmp_path, *zoo(n=15, n_domains=3))
    decision = _judge(source, []).final()
    assert set(decision.models(decision.recommended)) <= set(source.models)
    assert list(decision.estimates) == ["single", "pool", "ensemble", "selection"]
    for each in decision.estimates.values():
        assert [len(part) for part in each.contributions] == [15, 15, 15]
