"""Pictures of a ranking and of a test bed, as matplotlib figures.

Figures are objects of their own: nothing here touches pyplot's state or a display. The colours are
those of Okabe and Ito, told apart by all eyes; what a colour says, a shape says as well.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from oodzoo._io import write_bytes
from oodzoo.errors import InputError

if TYPE_CHECKING:
    from oodzoo.ranking.result import Ranking
    from oodzoo.testbed import Judged, TestBed

BLUE, ORANGE, GREY, INK = "#0072B2", "#D55E00", "#999999", "#333333"
FORMATS = ("png", "svg", "pdf")
_ACROSS = 5
"""Panels side by side where one test bed fills a page."""


class _Shown(Figure):
    """A figure that a notebook shows without pyplot."""

    def _repr_png_(self) -> bytes:
        return _drawn(self, "png")


def save_figure(figure: Figure, path: str | Path) -> None:
    """Write a figure as .png, .svg or .pdf, whole or not at all."""
    path = Path(path)
    kind = path.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise InputError(f"a picture must end in .png, .svg or .pdf, and {str(path)!r} does not")
    write_bytes(path, _drawn(figure, kind))


def _drawn(figure: Figure, kind: str) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, dpi=150)
    return buffer.getvalue()


# --- a ranking -----------------------------------------------------------------------------------


def plot_ranking(ranking: Ranking) -> Figure:
    """Bars of the terms of the score, and the expected accuracy with its interval.

    Small marks are single left-out domains. Before each name stand its rank and the ranks between
    which it may lie.
    """
    rows = ranking.rows
    places = np.arange(len(rows))
    terms = ["discriminability", "stability"]
    names = terms if ranking.score in ("zood", "accuracy", *terms) else ["score", *terms]
    width = 2.4 * (len(names) + 1) + 2.6
    figure = _Shown(figsize=(width, 0.27 * len(rows) + 1.5), layout="constrained")
    axes = figure.subplots(1, len(names) + 1, sharey=True, squeeze=False)[0]
    for ax, name in zip(axes, names, strict=False):
        ax.barh(places, [getattr(row, name) for row in rows], height=0.7, color=BLUE, alpha=0.6)
        if name in terms:
            for place, row in zip(places, rows, strict=True):
                dots = [getattr(fold, name) for fold in row.folds]
                ax.plot(dots, [place] * len(dots), "|", color=INK, markersize=6, alpha=0.8)
        ax.set_title(ranking.score if name == "score" else name, fontsize=10)
        ax.axvline(0, color=INK, linewidth=0.6)
    _accuracy_panel(axes[-1], ranking)
    axes[0].set_yticks(places, [_label(row.rank, row.rank_interval, row.model) for row in rows])
    axes[0].set_ylim(len(rows) - 0.4, -0.6)
    for ax in axes:
        ax.tick_params(labelsize=8)
        ax.xaxis.set_major_locator(MaxNLocator(4))
        _plain(ax)
    figure.suptitle(f"Models by {ranking.score}, the best first", fontsize=11)
    figure.supxlabel(
        "marks: single left-out domains; dots: their mean, with its 90 % interval", fontsize=8
    )
    return figure


def _accuracy_panel(ax: Axes, ranking: Ranking) -> None:
    for place, row in enumerate(ranking.rows):
        ax.plot(row.accuracy_interval, [place, place], color=ORANGE, linewidth=2, alpha=0.7)
        ax.plot(row.expected_accuracy, place, "o", color=ORANGE, markersize=5)
        folds = [fold.accuracy for fold in row.folds]
        ax.plot(folds, [place] * len(folds), "|", color=INK, markersize=6, alpha=0.8)
    ax.set_title("expected accuracy, %", fontsize=10)
    ax.grid(axis="x", color=GREY, alpha=0.3, linewidth=0.6)


def _label(rank: int, between: tuple[int, int] | None, model: str) -> str:
    ranks = f"{rank}" if between is None else f"{rank} ({between[0]}–{between[1]})"
    return f"{model}   {ranks}"


# --- a test bed ----------------------------------------------------------------------------------


def plot_scores(beds: Sequence[TestBed]) -> Figure:
    """Each score against accuracy, with its weighted tau.

    One test bed fills rows of panels, the best score first; several make a row each, with a column
    for each score.
    """
    if len(beds) == 1:
        (bed,) = beds
        order = sorted(bed.scores, key=lambda name: -_order(bed.scores[name]))
        across = min(_ACROSS, len(order))
        grid = [order[at : at + across] for at in range(0, len(order), across)]
        owners = [bed] * len(grid)
    else:
        names = list(dict.fromkeys(name for bed in beds for name in bed.scores))
        across = len(names)
        grid, owners = [names] * len(beds), list(beds)
    size = (2.1 * across + 0.6, 2.15 * len(grid) + 0.9)
    figure = _Shown(figsize=size, layout="constrained")
    axes = figure.subplots(len(grid), across, squeeze=False)
    for line, bed, names in zip(axes, owners, grid, strict=True):
        for ax in line[len(names) :]:
            ax.set_axis_off()
        for ax, name in zip(line, names, strict=False):
            if name in bed.scores:
                _scatter(ax, bed, name)
            else:
                ax.set_axis_off()
        label = "accuracy, %" if len(beds) == 1 else f"{bed.name}\naccuracy, %"
        line[0].set_ylabel(label, fontsize=8)
    title = f"{beds[0].name}: s" if len(beds) == 1 else "S"
    figure.suptitle(f"{title}cores against accuracy", fontsize=11)
    figure.supxlabel(
        "Each mark is a model; the triangle is the score's first choice, the line the most\n"
        r"accurate model. $\tau_w$: weighted tau, and its 90 % interval.",
        fontsize=8,
    )
    return figure


def _scatter(ax: Axes, bed: TestBed, name: str) -> None:
    judged = bed.scores[name]
    known = {model: value for model, value in judged.values.items() if value is not None}
    if not known:
        ax.set_title(f"{name}\n{_tau(judged)}", fontsize=8.5)
        return
    x = np.array(list(known.values()))
    y = np.array([bed.accuracy[model] for model in known])
    first = x == x.max()
    ax.axhline(max(bed.accuracy.values()), color=GREY, linewidth=0.8, linestyle="--")
    ax.plot(x[~first], y[~first], "o", color=BLUE, markersize=4, alpha=0.65, markeredgewidth=0)
    ax.plot(x[first], y[first], "^", color=ORANGE, markersize=6)
    if x.min() >= 1000:  # parameters, which differ by factors
        ax.set_xscale("log")
    else:
        ax.xaxis.set_major_locator(MaxNLocator(3))
        ax.ticklabel_format(axis="x", style="sci", scilimits=(-3, 4))
    ax.set_title(f"{name}\n{_tau(judged)}", fontsize=8.5)
    ax.tick_params(labelsize=7)
    ax.xaxis.get_offset_text().set_fontsize(7)
    _plain(ax)


def _tau(judged: Judged) -> str:
    if judged.weighted_tau is None:
        return "no order"
    value = rf"$\tau_w$ {judged.weighted_tau:z.2f}"
    if judged.interval is None:
        return value
    low, high = judged.interval
    return f"{value} [{low:z.2f}, {high:z.2f}]"


def _order(judged: Judged) -> float:
    return -2.0 if judged.weighted_tau is None else judged.weighted_tau


def _plain(ax: Axes) -> None:
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
