"""Ranking of models by leave-one-domain-out scores."""

from oodzoo.ranking.ranker import rank, rank_for_test_domains
from oodzoo.ranking.ranking import FoldRow, Ranking, Row

__all__ = ["FoldRow", "Ranking", "Row", "rank", "rank_for_test_domains"]
