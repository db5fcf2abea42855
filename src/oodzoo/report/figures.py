"""Figures of a ranking, a test bed and a run, drawn with matplotlib for notebooks and files.

Figures are created without pyplot, so no global state or display is touched. The colours are close
to those of Okabe and Ito, which colour-blind people can distinguish; shapes carry the same
information.
"""

from __future__ import annotations

import dataclasses
import io
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from oodzoo._io import write_tidily
from oodzoo.errors import InputError
from oodzoo.report.chart import MOST_ROWS
from oodzoo.report.combination import comparison, curves
from oodzoo.report.domains import domain_accuracies, term_by_domain
from oodzoo.report.expected import choice_is_repeated, interval_words, where
from oodzoo.report.numbers import number, shortened
from oodzoo.report.terms import Term, domain_terms, terms_of
from oodzoo.task.words import WORDS, Measure

if TYPE_CHECKING:
    from oodzoo.evaluation.result import Evaluation
    from oodzoo.ranking.result import Ranking
    from oodzoo.record import Run
    from oodzoo.selection.select import SelectionSummary
    from oodzoo.testbed.bed import ScoreResult, TestBed

FORMATS = ("png", "svg", "pdf")
BLUE, ORANGE, GREEN, PURPLE = "#0072b2", "#c2540a", "#00805d", "#a04a85"
GREY, INK = "#6b7683", "#333333"
COLOURS = {
    "recommended": INK, "single": BLUE, "pool": PURPLE, "ensemble": ORANGE, "selection": GREEN,
    "baseline": GREY,
}  # fmt: skip
MARKERS = {
    "star": "*", "circle": "o", "triangle": "^", "wedge": "v", "square": "s", "diamond": "D",
    "line": "|",
}  # fmt: skip
PANELS = 5
"""Panels in a row of a figure with many."""


def save_figure(figure: Figure, path: str | Path) -> None:
    """Write a figure to a .png, .svg or .pdf file."""
    path = Path(path)
    format = path.suffix.lower().removeprefix(".")  # noqa: A001 - as in matplotlib
    if format not in FORMATS:
        raise InputError(f"a figure must end in .png, .svg or .pdf, got {str(path)!r}")
    write_tidily(path, _encoded(figure, format))


def write_figures(run: Run, folder: str | Path, format: str) -> list[Path]:  # noqa: A002
    """Write all figures of a run as files.

    Parameters
    ----------
    run : Run
    folder : path
    format : str
        "png", "svg" or "pdf".

    Returns
    -------
    list of Path
        The files.
    """
    if format not in FORMATS:
        raise InputError(f"unknown format {format!r}; expected one of {', '.join(FORMATS)}")
    figures = {Path(folder) / f"{name}.{format}": draw for name, draw in figures_of(run).items()}
    for path, draw in figures.items():
        write_tidily(path, _encoded(draw(), format))
    return list(figures)


def figures_of(run: Run) -> dict[str, Callable[[], Figure]]:
    """Functions that draw the figures of a run, by name."""
    figures: dict[str, Callable[[], Figure]] = {}
    if ranking := run.ranking:
        top = dataclasses.replace(ranking, rows=ranking.rows[:MOST_ROWS])
        figures["ranking"] = partial(plot_ranking, top)
        for term in domain_terms(top):
            figures[term.ident] = partial(plot_term, top, term.name)
        figures["held-out-domains"] = partial(plot_domains, ranking)
    if evaluation := run.evaluation:
        name = evaluation.metric.replace("_", "-")
        figures[name] = partial(plot_comparison, evaluation)
        if len(evaluation.ablation) > 1:
            figures[f"{name}-over-k"] = partial(plot_curves, evaluation)
    if run.selection:
        paper = run.selection.method == "paper"
        name = "inclusion-probabilities" if paper else "feature-ranks"
        figures[name] = partial(plot_inclusion, run.selection)
    if run.testbed and run.testbed.scores:
        figures["scores"] = partial(plot_scores, [run.testbed])
    return figures


# --- a ranking -----------------------------------------------------------------------------------


def plot_ranking(ranking: Ranking) -> Figure:
    """Bars for the terms of the score, and the expected accuracy, or other metric, with interval.

    Ticks are single held-out domains. Labels show the rank and its 90 % interval.
    """
    rows = ranking.rows
    places = np.arange(len(rows))
    terms = terms_of(ranking)
    width = 2.4 * (len(terms) + 1) + 2.6
    figure, axes = _figure(width, 0.27 * len(rows) + 1.7, 1, len(terms) + 1, sharey=True)
    for ax, term in zip(axes, terms, strict=False):
        values = np.array([getattr(row, term.name) for row in rows], np.float64)
        ax.barh(places, values, height=0.7, color=BLUE, alpha=0.6)
        if term.by_domain:
            for place, row in enumerate(rows):
                _ticks(ax, place, [getattr(fold, term.name) for fold in row.folds])
        _title(ax, ranking.score if term.name == "score" else _panel(term))
        ax.axvline(0, color=INK, linewidth=0.6)
    metric = WORDS[ranking.task].metric
    for place, row in enumerate(rows):
        axes[-1].plot(row.accuracy_interval, [place] * 2, color=ORANGE, linewidth=2, alpha=0.7)
        value = max(row.expected_accuracy, metric.lowest)
        axes[-1].plot(value, place, "o", color=ORANGE, markersize=5, clip_on=False)
        _ticks(axes[-1], place, [fold.accuracy for fold in row.folds])
    _title(axes[-1], f"expected {metric.name}, %")
    _bound(axes[-1], metric)
    axes[-1].grid(axis="x", color=GREY, alpha=0.3, linewidth=0.6)
    _names(axes[0], [_label(row.rank, row.rank_interval, row.model) for row in rows])
    axes[0].set_ylim(len(rows) - 0.4, -0.6)
    figure.suptitle(f"Models by {ranking.score}, best first", fontsize=11, parse_math=False)
    caption = (
        f"ticks: single held-out domains; dots: {metric.name} expected {where(ranking)}, with the "
        f"{interval_words(ranking)}"
    )
    if choice_is_repeated(ranking):
        caption += "\nrank 1: the choice is repeated for each domain, without predictions for it"
    figure.supxlabel(caption, fontsize=8)
    return figure


def _panel(term: Term) -> str:
    return term.title.lower() + (", %" if term.unit else "")


def _ticks(ax: Axes, place: float, values: Sequence[float | None]) -> None:
    known = [value for value in values if value is not None]
    ax.plot(known, [place] * len(known), "|", color=INK, markersize=6, alpha=0.8)


def _label(rank: int, interval: tuple[int, int] | None, model: str) -> str:
    ranks = f"{rank}" if interval is None else f"{rank} ({interval[0]}–{interval[1]})"
    return f"{_short(model)}   {ranks}"


def plot_term(ranking: Ranking, term: str) -> Figure:
    """A heat map of a term by model and domain.

    The term is "transfer", "accuracy" (for other tasks, their main metric), "discriminability" or
    "stability"; cells that are not known are empty.
    """
    data = term_by_domain(ranking, term)
    width, height = 4 + 0.8 * len(data.domains), 1.4 + 0.26 * len(data.models)
    figure, (ax,) = _figure(width, height)
    image = ax.imshow(np.array(data.values, np.float64), cmap="Blues", aspect="auto")
    figure.colorbar(image, ax=ax)
    _names(ax, [_short(model) for model in data.models])
    domains = [_short(domain) for domain in data.domains]
    ax.set_xticks(range(len(domains)), domains, rotation=45, ha="right", parse_math=False)
    _title(ax, data.term.by_domain + (", %" if data.term.unit else ""))
    return figure


def plot_domains(ranking: Ranking) -> Figure:
    """Accuracy of every model on each held-out domain, the hardest domain first."""
    domains = domain_accuracies(ranking)
    figure, (ax,) = _figure(8, 1.3 + 0.4 * len(domains))
    for place, each in enumerate(domains):
        values = list(each.models.values())
        ax.plot(values, [place] * len(values), "|", color=GREY, markersize=12, alpha=0.6)
        ax.plot(each.mean, place, "D", color=GREY, markersize=6)
        ax.plot(each.models[ranking.best], place, "o", color=GREEN, markersize=6)
    _names(ax, [_short(each.domain) for each in domains])
    ax.invert_yaxis()
    metric = WORDS[ranking.task].metric
    _title(ax, f"{metric.heading} on each held-out domain (◆ mean, ● top-ranked model)")
    _bound(ax, metric)
    return figure


# --- evaluation and selection --------------------------------------------------------------------


def plot_comparison(evaluation: Evaluation, *, baselines: bool = True) -> Figure:
    """Accuracy of the methods on average, and of the main ones on each test domain.

    `baselines=False` leaves out what the main ones are compared with.
    """
    groups = {
        name: [lane for lane in lanes if baselines or lane.method.kind != "baseline"]
        for name, lanes in comparison(evaluation).items()
    }
    labels: list[str] = []
    headings = []
    figure, (ax,) = _figure(8, 1 + 0.2 * sum(1 + len(lanes) for lanes in groups.values()))
    for name, lanes in groups.items():
        headings.append(len(labels))
        labels.append(_short(name))
        for lane in lanes:
            method = lane.method
            ax.errorbar(
                lane.value, len(labels), xerr=lane.error, fmt=MARKERS[method.shape],
                color=COLOURS[method.kind], markersize=8 if method.shape in ("line", "star") else 5,
            )  # fmt: skip
            labels.append(lane.title)
    _names(ax, labels)
    for at in headings:
        ax.get_yticklabels()[at].set_fontweight("bold")
    ax.set_ylim(len(labels) - 0.4, -0.6)
    metric = WORDS[evaluation.task].metric
    _title(ax, f"{metric.title} on each test domain")
    ax.set_xlabel(f"{metric.name} %")
    ax.grid(axis="x", color=GREY, alpha=0.3, linewidth=0.6)
    ax.set_axisbelow(True)
    _bound(ax, metric)
    return figure


def plot_curves(evaluation: Evaluation) -> Figure:
    """Accuracy over the number of models."""
    numbers = list(evaluation.ablation)
    figure, (ax,) = _figure(6, 3.6)
    for line in curves(evaluation):
        marker, colour = MARKERS[line.shape], COLOURS[line.kind]
        ax.plot(numbers, line.values, marker=marker, color=colour, label=line.title)
    ax.set_xticks(numbers)
    ax.set_xlabel("models")
    _title(ax, WORDS[evaluation.task].metric.heading)
    ax.legend(frameon=False)
    return figure


def plot_inclusion(selection: SelectionSummary) -> Figure:
    """Histograms of inclusion probabilities, or of ranks; counts on a square-root scale."""
    models = selection.per_model
    label = "inclusion probability" if selection.method == "paper" else "share contributing less"
    across = min(len(models), 3)
    down = -(-len(models) // across)
    figure, axes = _figure(3.4 * across, 2.4 * down, down, across)
    for spare in axes[len(models) :]:
        spare.remove()
    for ax, each in zip(axes, models, strict=False):
        bins = len(each.histogram)
        starts = np.arange(bins) / bins
        ax.bar(starts, each.histogram, width=0.9 / bins, align="edge", color=GREEN)
        ax.set_yscale("function", functions=(_root, np.square))
        _title(ax, shortened(each.model, 220, 10))
        ax.set_xlabel(label)
    return figure


def _root(values: Any) -> Any:
    return np.sqrt(np.maximum(values, 0))


# --- test beds -----------------------------------------------------------------------------------


def plot_scores(beds: Sequence[TestBed]) -> Figure:
    """Each score against accuracy, with its weighted tau.

    A single test bed fills rows of panels, the best score first; several have a row each, with a
    column for each score.
    """
    if len(beds) == 1:
        order = beds[0].order
        across = min(PANELS, len(order))
        grid = [order[at : at + across] for at in range(0, len(order), across)]
        owners = [beds[0]] * len(grid)
    else:
        names = list(dict.fromkeys(name for bed in beds for name in bed.scores))
        across = len(names)
        grid, owners = [names] * len(beds), list(beds)
    size = (2.1 * across + 0.6, 2.15 * len(grid) + 0.9)
    figure, axes = _figure(*size, len(grid), across)
    for at, (bed, names) in enumerate(zip(owners, grid, strict=True)):
        line = axes[across * at : across * (at + 1)]
        for place, ax in enumerate(line):
            if place < len(names) and names[place] in bed.scores:
                _scatter(ax, bed, names[place])
            else:
                ax.set_axis_off()
        label = "accuracy, %" if len(beds) == 1 else f"{bed.name}\naccuracy, %"
        line[0].set_ylabel(label, fontsize=8, parse_math=False)
    title = f"{beds[0].name}: scores" if len(beds) == 1 else "Scores"
    figure.suptitle(f"{title} against accuracy", fontsize=11, parse_math=False)
    figure.supxlabel(
        "Each mark is a model; triangle: the first choice of the score; dashed line: the most\n"
        "accurate model. τ: weighted tau, with its 90 % interval.",
        fontsize=8,
    )
    return figure


def _scatter(ax: Axes, bed: TestBed, name: str) -> None:
    result = bed.scores[name]
    _title(ax, f"{name}\n{_tau(result)}", fontsize=8.5)
    known = {model: value for model, value in result.values.items() if value is not None}
    if not known:
        return
    x = np.array(list(known.values()))
    y = np.array([bed.accuracy[model] for model in known])
    first = x == x.max()
    ax.axhline(max(bed.accuracy.values()), color=GREY, linewidth=0.8, linestyle="--")
    ax.plot(x[~first], y[~first], "o", color=BLUE, markersize=4, alpha=0.65, markeredgewidth=0)
    ax.plot(x[first], y[first], "^", color=ORANGE, markersize=6)
    if x.min() >= 1000:  # numbers of parameters, which differ by factors
        ax.set_xscale("log")
    else:
        ax.xaxis.set_major_locator(MaxNLocator(3))
        ax.ticklabel_format(axis="x", style="sci", scilimits=(-3, 4))
    ax.tick_params(labelsize=7)
    ax.xaxis.get_offset_text().set_fontsize(7)


def _tau(result: ScoreResult) -> str:
    if result.weighted_tau is None:
        return "τ is undefined"
    text = f"τ {number(result.weighted_tau, 2)}"
    if result.interval is None:
        return text
    low, high = result.interval
    return f"{text} [{number(low, 2)}, {number(high, 2)}]"


# --- drawing and writing -------------------------------------------------------------------------


class _NotebookFigure(Figure):
    """A figure that notebooks show without pyplot."""

    def _repr_png_(self) -> bytes:
        return _encoded(self, "png")


def _figure(
    width: float, height: float, rows: int = 1, columns: int = 1, **shared: Any
) -> tuple[Figure, list[Axes]]:
    figure = _NotebookFigure(figsize=(width, height), layout="constrained")
    axes: list[Axes] = figure.subplots(rows, columns, squeeze=False, **shared).ravel().tolist()
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.tick_params(labelsize=8, length=2)
        ax.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    return figure, axes


def _title(ax: Axes, title: str, fontsize: float = 10) -> None:
    ax.set_title(title, fontsize=fontsize, parse_math=False)


def _bound(ax: Axes, metric: Measure) -> None:
    """Do not show values below the lowest one of a metric."""
    if ax.get_xlim()[0] < metric.lowest:
        ax.set_xlim(left=metric.lowest)


def _names(ax: Axes, names: Sequence[str]) -> None:
    """Label the rows; a dollar sign in a name does not start a formula."""
    ax.set_yticks(range(len(names)), names, parse_math=False)


def _short(name: str) -> str:
    return shortened(name, 200, 8)


def _encoded(figure: Figure, format: str) -> bytes:  # noqa: A002
    """The content of a file; equal figures give equal bytes, without dates or random names."""
    metadata = {"png": None, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[format]
    content = io.BytesIO()
    with warnings.catch_warnings(), matplotlib.rc_context({"svg.hashsalt": "oodzoo"}):
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure.savefig(content, format=format, dpi=150, metadata=metadata)
    return content.getvalue()
