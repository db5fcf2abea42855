"""The finding of a run in one sentence, and what should be known beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from oodzoo.report.document import Run
from oodzoo.report.numbers import is_number, listed, number, span


@dataclass(frozen=True)
class Tile:
    """One figure that stands out."""

    value: str
    label: str
    note: str = ""


@dataclass(frozen=True)
class Finding:
    """What the first screen says.

    Attributes
    ----------
    take : str or None
        The model that is first.
    sentence : str
        What is said of it.
    remarks : list of str
    tiles : list of Tile
    sure : bool
        Whether it can be advised to take it: not where it may as well be the last.
    """

    take: str | None
    sentence: str
    remarks: list[str]
    tiles: list[Tile]
    sure: bool = True


def finding(run: Run) -> Finding:
    """Say what was found, no more than the document holds."""
    ranking = run.get("ranking")
    if not ranking or not ranking.get("ranking"):
        return Finding(None, "This run has no ranking yet.", [], _data_tiles(run))
    rows = ranking["ranking"]
    first = rows[0]
    accuracy = first["expected_accuracy"]
    place = first.get("rank_interval")
    sure = len(rows) == 1 or not place or place[1] < len(rows)
    expected = f"about {number(accuracy)} % on an unseen domain."
    sentence = f"expect {expected}" if sure else f"leads with {expected}"
    remarks = [*_sureness(first, len(rows)), *_combined(run.get("evaluation") or {})]
    interval = first.get("accuracy_interval")
    tiles = [
        Tile(
            f"{number(accuracy, 1)} %",
            "expected accuracy",
            f"90 % interval of the mean {span(*interval)} %" if interval else "",
        ),
        _place(first, len(rows)),
        *_evaluation_tile(run.get("evaluation") or {}),
        *_data_tiles(run),
    ]
    return Finding(first["model"], sentence, remarks, tiles, sure)


def _sureness(first: dict[str, Any], n_models: int) -> list[str]:
    interval = first.get("rank_interval")
    if not interval or n_models < 2:
        return []
    if interval[1] <= 1:
        return [f"It is clearly ahead of the other {n_models - 1} models."]
    tied = first.get("tied") or []
    if not tied:
        return [f"Its place among {n_models} models lies between {interval[0]} and {interval[1]}."]
    return [
        (
            f"How sure is that? {listed(tied, 2)} cannot be told apart from it with "
            f"{len(first['folds'])} domains."
        )
    ]


def _combined(evaluation: dict[str, Any]) -> list[str]:
    if evaluation.get("findings"):
        return [str(evaluation["findings"][0])]
    top_k = evaluation.get("top_k")
    several = f"the first {top_k}" if isinstance(top_k, int) else "the first few"
    averages = {
        title: evaluation[key]["average"]
        for key, title in (
            ("single", "the first model alone"),
            ("ensemble", f"{several} side by side"),
            ("selection", f"the selected features of {several}"),
        )
        if evaluation.get(key) and is_number(evaluation[key].get("average"))
    }
    if len(averages) < 2:
        return []
    reached = ", ".join(f"{title} {number(value, 1)} %" for title, value in averages.items())
    return [f"Measured with linear heads on left-out domains: {reached}."]


def _place(first: dict[str, Any], n_models: int) -> Tile:
    interval = first.get("rank_interval")
    note = f"may lie between {interval[0]} and {interval[1]}" if interval and n_models > 1 else ""
    return Tile(f"1st of {n_models}", "place", note)


def _evaluation_tile(evaluation: dict[str, Any]) -> list[Tile]:
    selection = evaluation.get("selection")
    if not selection or not is_number(selection.get("average")):
        return []
    ratio = (evaluation.get("feature_ratio") or {}).get("average")
    note = f"with {number(100 * ratio)} % of the features" if is_number(ratio) else ""
    return [Tile(f"{number(selection['average'], 1)} %", "selection, measured", note)]


def _data_tiles(run: Run) -> list[Tile]:
    data = run.get("data") or {}
    if not is_number(data.get("images")):
        return []
    note = f"{len(data.get('domains') or {})} domains, {len(data.get('classes') or [])} classes"
    return [Tile(number(data["images"]), "images", note)]
