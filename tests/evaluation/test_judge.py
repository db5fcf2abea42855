"""What is chosen for a test domain, and how accurate it is there."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.evaluation.data import stored, zoo
from tests.evaluation.test_settings import settings

from oodzoo.combination.heads import predict_with_heads
from oodzoo.evaluation.judge import Judge
from oodzoo.features.source import FeatureSource
from oodzoo.ranking.ranker import rank_for_test_domains


def _judge(source: FeatureSource, lines: list[str]) -> Judge:
    chosen = settings(top_k=[2], peers=None, max_ms=None)
    heads = predict_with_heads(source)
    return Judge(source, chosen, heads, rank_for_test_domains(source), None, lines.append)


def test_a_fold_is_judged_once_and_kept(tmp_path: Path) -> None:
    source = stored(tmp_path, *zoo(n=15, n_domains=3))
    lines: list[str] = []
    first = _judge(source, lines).fold("d1")
    assert lines
    assert all(line.startswith("test domain 'd1': ") for line in lines)
    lines.clear()
    assert _judge(source, lines).fold("d1") == first
    assert lines == []
    assert first.recommended in first.cells


@pytest.mark.parametrize("n_domains", [3, 4])
def test_the_final_decision_uses_all_domains(tmp_path: Path, n_domains: int) -> None:
    source = stored(tmp_path, *zoo(n=15, n_domains=n_domains))
    decision = _judge(source, []).final()
    assert set(decision.models(decision.recommended)) <= set(source.models)
    if n_domains == 3:
        assert decision.recommended == "pool"
