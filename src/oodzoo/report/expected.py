"""Words for the expected accuracy: where it is expected, its interval, and how it was estimated."""

from __future__ import annotations

from oodzoo.ranking.result import Ranking, Row
from oodzoo.report.numbers import span
from oodzoo.report.terms import has_target


def where(ranking: Ranking) -> str:
    """Where the accuracy is expected."""
    return "on the target" if has_target(ranking) else "on an unseen domain"


def interval_words(ranking: Ranking) -> str:
    """What the interval is for."""
    return "90 % interval" if has_target(ranking) else "90 % interval for a new domain"


def interval_text(ranking: Ranking, row: Row, digits: int = 0) -> str:
    """The interval of a model, in words."""
    return f"{interval_words(ranking)}: {span(*row.accuracy_interval, digits=digits)} %"


def choice_is_repeated(ranking: Ranking) -> bool:
    """Whether the choice of the first model is part of the estimate of its accuracy.

    It is for scores that are known for each held-out domain, if there was a choice.
    """
    first = ranking.rows[0]
    return len(ranking) > 1 and all(fold.score is not None for fold in first.folds)
