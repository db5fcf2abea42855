"""The first screen of the page: the result in one sentence, remarks and key figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from oodzoo._text import count
from oodzoo.evaluation.result import Evaluation
from oodzoo.ranking.result import Ranking
from oodzoo.record import DataSummary, Run
from oodzoo.report.data import dimensions
from oodzoo.report.expected import choice_is_repeated, interval_text, where
from oodzoo.report.numbers import listed, number, span


@dataclass(frozen=True)
class Tile:
    """A key figure."""

    value: str
    label: str
    note: str = ""


@dataclass(frozen=True)
class Headline:
    """The first screen of the page; `model` is the top model."""

    sentence: str
    """The end of the headline, after the name of the model."""
    model: str | None = None
    clear: bool = True
    """Whether to recommend it; False if the interval of its rank includes the last rank."""
    remarks: Sequence[str] = ()
    tiles: Sequence[Tile] = ()


def headline(run: Run) -> Headline:
    """The result of a run, as far as it has got."""
    data_tiles = [_data_tile(run.data)] if run.data else []
    if not run.ranking:
        return Headline("This run has no ranking yet.", tiles=data_tiles)
    first, n_models = run.ranking.rows[0], len(run.ranking)
    clear = n_models == 1 or not first.rank_interval or first.rank_interval[1] < n_models
    interval = span(*first.accuracy_interval)
    expected = f"about {number(first.expected_accuracy)} % ({interval} %) {where(run.ranking)}."
    remarks = [_certainty(run.ranking)] if first.rank_interval and n_models > 1 else []
    tiles = _ranking_tiles(run.ranking)
    if run.evaluation:
        remarks.append(run.evaluation.findings()[0])
        tiles.append(_selection_tile(run.evaluation))
    sentence = f"expect {expected}" if clear else f"leads with {expected}"
    return Headline(sentence, first.model, clear, remarks, [*tiles, *data_tiles])


def _certainty(ranking: Ranking) -> str:
    first, others = ranking.rows[0], len(ranking) - 1
    if not first.rank_interval or first.rank_interval[1] == 1:
        rest = "the other model" if others == 1 else f"the other {others} models"
        return f"It is clearly ahead of {rest}."
    if not first.tied:
        return f"90 % interval of its rank: {span(*first.rank_interval)}."
    domains = count(len(first.folds), "domain")
    return f"With {domains}, it is statistically tied with {listed(first.tied, 3)}."


def _ranking_tiles(ranking: Ranking) -> list[Tile]:
    first = ranking.rows[0]
    note = ""
    if first.rank_interval and len(ranking) > 1:
        note = f"90 % interval of the rank: {span(*first.rank_interval)}"
    estimate = interval_text(ranking, first)
    if choice_is_repeated(ranking):
        estimate += "; the choice of the model is part of the estimate"
    return [
        Tile(
            f"{number(first.expected_accuracy, 1)} %",
            f"expected accuracy {where(ranking)}",
            estimate,
        ),
        Tile(f"1st of {len(ranking)}", "rank", note),
    ]


def _selection_tile(evaluation: Evaluation) -> Tile:
    ratio = sum(evaluation.feature_ratio.values()) / len(evaluation.feature_ratio)
    return Tile(
        f"{number(evaluation.selection.average, 1)} %",
        "accuracy of Selection on held-out domains",
        f"with {number(100 * ratio)} % of the features",
    )


def _data_tile(data: DataSummary) -> Tile:
    return Tile(number(data.images), "images" if data.images != 1 else "image", dimensions(data))
