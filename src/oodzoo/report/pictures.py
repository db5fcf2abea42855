"""The pictures of the page as files, drawn with Matplotlib.

Each function takes a part of the record of a run and gives a figure, for notebooks too.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from oodzoo._io import write_bytes
from oodzoo.errors import InputError
from oodzoo.report.charts.frame import MOST_ROWS
from oodzoo.report.document import Run
from oodzoo.report.numbers import is_number, number, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("png", "svg", "pdf")
BLUE, ORANGE, GREEN, GREY = "#0072b2", "#c2540a", "#00805d", "#6b7683"
COLOURS = {"single": BLUE, "ensemble": ORANGE, "selection": GREEN}


def write_pictures(run: Run, folder: Path, form: str) -> list[Path]:
    """Write every picture that a run has figures for, and say where they are."""
    require_format(form)
    import matplotlib

    # the same figures give the same bytes: no date, no random names within the file
    metadata = {"png": None, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[form]
    written = []
    for name, draw in pictures_of(run).items():
        content = io.BytesIO()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph .* missing from")
            with matplotlib.rc_context({"svg.hashsalt": "oodzoo"}):
                draw().savefig(content, format=form, dpi=160, metadata=metadata)
        path = folder / f"{name}.{form}"
        write_bytes(path, content.getvalue())
        written.append(path)
    return written


def require_format(form: str) -> None:
    """Refuse an unknown format before anything is written."""
    if form not in FORMATS:
        raise InputError(f"format {form!r}: known are {', '.join(FORMATS)}")


def pictures_of(run: Run) -> dict[str, Callable[[], Figure]]:
    """The pictures that a run has figures for, by name, still to be drawn."""
    pictures: dict[str, Callable[[], Figure]] = {}
    ranking = run.get("ranking") or {}
    if rows := ranking.get("ranking"):
        pictures["ranking"] = partial(draw_ranking, ranking)
        if rows[0]["folds"]:
            for term in ("discriminability", "stability"):
                pictures[f"{term}-by-domain"] = partial(draw_terms, ranking, term)
            pictures["left-out-domains"] = partial(draw_domains, ranking)
    evaluation = run.get("evaluation") or {}
    if any(evaluation.get(way) for way in COLOURS):
        pictures["accuracy"] = partial(draw_accuracy, evaluation)
    if len(evaluation.get("ablation") or []) > 1:
        pictures["accuracy-over-k"] = partial(draw_ablation, evaluation)
    selection = run.get("selection") or {}
    if any(row.get("inclusion_histogram") for row in selection.get("per_model") or []):
        pictures["inclusion-probabilities"] = partial(draw_inclusion, selection)
    testbed = run.get("testbed") or {}
    if testbed.get("scores"):
        pictures["scores"] = partial(draw_scores, testbed)
    return pictures


def draw_ranking(ranking: dict[str, Any]) -> Figure:
    """Both terms as bars, and expected accuracy with its interval; at most thirty models."""
    rows = ranking["ranking"][:MOST_ROWS]
    figure, axes = _figure(9, 1.2 + 0.26 * len(rows), 1, 3, sharey=True)
    places = range(len(rows))
    for ax, term, colour in zip(
        axes, ("discriminability", "stability"), (BLUE, ORANGE), strict=False
    ):
        ax.barh(places, [row[term] for row in rows], color=colour, height=0.6)
        ax.axvline(0, color=GREY, linewidth=0.8)
        _title(ax, term.capitalize())
    accuracy = [row["expected_accuracy"] for row in rows]
    for place, row in enumerate(rows):
        if row.get("accuracy_interval"):
            axes[2].plot(row["accuracy_interval"], [place, place], color=GREEN, alpha=0.5)
    axes[2].plot(accuracy, places, "o", color=GREEN, markersize=4)
    _title(axes[2], "Expected accuracy %")
    axes[2].set_xlim(0, 100)
    _names(axes[0], [row["model"] for row in rows])
    axes[0].margins(y=0.01)
    axes[0].invert_yaxis()
    return figure


def draw_terms(ranking: dict[str, Any], term: str) -> Figure:
    """A heat map of one term for each model and left-out domain."""
    rows = ranking["ranking"][:MOST_ROWS]
    domains = [fold["domain"] for fold in rows[0]["folds"]]
    figure, (ax,) = _figure(4 + 0.8 * len(domains), 1.4 + 0.26 * len(rows), 1, 1)
    values = [[fold[term] for fold in row["folds"]] for row in rows]
    image = ax.imshow(values, cmap="Blues", aspect="auto")
    figure.colorbar(image, ax=ax)
    _names(ax, [row["model"] for row in rows])
    _names(ax, domains, across=True)
    _title(ax, f"{term.capitalize()} on each left-out domain")
    return figure


def draw_domains(ranking: dict[str, Any]) -> Figure:
    """The accuracy of every model on each left-out domain, the hardest first."""
    rows = ranking["ranking"]
    values = {
        fold["domain"]: [row["folds"][at]["accuracy"] for row in rows]
        for at, fold in enumerate(rows[0]["folds"])
    }
    order = sorted(values, key=lambda domain: fmean(values[domain]))
    figure, (ax,) = _figure(8, 1.3 + 0.4 * len(order), 1, 1)
    for place, domain in enumerate(order):
        ax.plot(values[domain], [place] * len(rows), "|", color=GREY, markersize=12, alpha=0.6)
        ax.plot(fmean(values[domain]), place, "D", color=GREY, markersize=6)
        ax.plot(values[domain][0], place, "o", color=GREEN, markersize=6)
    _names(ax, order)
    ax.invert_yaxis()
    _title(ax, "Accuracy % on each left-out domain (◆ mean, ● first model)")
    return figure


def draw_accuracy(evaluation: dict[str, Any]) -> Figure:
    """Single, Ensemble and Selection on each test domain."""
    ways = [way for way in COLOURS if evaluation.get(way)]
    groups = ["average", *evaluation[ways[0]]["domains"]]
    figure, (ax,) = _figure(8, 1.3 + 0.5 * len(groups), 1, 1)
    for at, way in enumerate(ways):
        row = evaluation[way]
        values = [row["average"], *(row["domains"].get(name) for name in groups[1:])]
        shift = 0.2 * (at - (len(ways) - 1) / 2)
        points = [(v, g + shift) for g, v in enumerate(values) if is_number(v)]
        ax.plot(*zip(*points, strict=True), "osD"[at], color=COLOURS[way], label=way.capitalize())
    _names(ax, groups)
    ax.invert_yaxis()
    _title(ax, "Accuracy % on each test domain")
    ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def draw_ablation(evaluation: dict[str, Any]) -> Figure:
    """Accuracy over the number of models."""
    entries = evaluation["ablation"]
    figure, (ax,) = _figure(6, 3.6, 1, 1)
    for way, marker in (("ensemble", "s"), ("selection", "D")):
        if all(entry.get(way) for entry in entries):
            ax.plot(
                [entry["top_k"] for entry in entries],
                [entry[way]["average"] for entry in entries],
                marker=marker,
                color=COLOURS[way],
                label=way.capitalize(),
            )
    ax.set_xticks([entry["top_k"] for entry in entries])
    ax.set_xlabel("models")
    _title(ax, "Accuracy %")
    ax.legend(frameon=False)
    return figure


def draw_inclusion(selection: dict[str, Any]) -> Figure:
    """Histograms of inclusion probabilities."""
    models = [row for row in selection["per_model"] if row.get("inclusion_histogram")]
    figure, axes = _grid(len(models), 3, 3.4, 2.4)
    for ax, row in zip(axes, models, strict=True):
        counts = row["inclusion_histogram"]
        starts = [at / len(counts) for at in range(len(counts))]
        ax.bar(starts, counts, width=0.9 / len(counts), align="edge", color=GREEN)
        ax.set_yscale("symlog", linthresh=10)
        _title(ax, shortened(row["model"], 220, 10))
        ax.set_xlabel("inclusion probability")
    return figure


def draw_scores(testbed: dict[str, Any]) -> Figure:
    """Each score against accuracy, a point for each model; the best score first."""
    scores, accuracy = testbed["scores"], testbed["accuracy"]

    def tau(name: str) -> float:
        value = scores[name].get("weighted_tau")
        return value if is_number(value) else -2.0

    order = sorted(scores, key=tau, reverse=True)
    figure, axes = _grid(len(order), 4, 2.7, 2.5)
    for ax, name in zip(axes, order, strict=True):
        points = [
            (value, accuracy[model])
            for model, value in scores[name]["values"].items()
            if is_number(value) and is_number(accuracy.get(model))
        ]
        ax.plot(
            *zip(*points, strict=True) if points else ((), ()),
            "o",
            color=BLUE,
            alpha=0.65,
            markersize=4,
        )
        title = f"{name}\nτ {number(scores[name].get('weighted_tau'), 2)}"
        _title(ax, title)
    return figure


def _figure(
    width: float, height: float, rows: int, columns: int, **shared: Any
) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **shared).ravel().tolist()
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.tick_params(labelsize=8, length=2)
        ax.locator_params(axis="x", nbins=5)
    return figure, axes


def _grid(count: int, across: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    columns = min(count, across)
    rows = -(-count // columns)
    figure, axes = _figure(width * columns, height * rows, rows, columns)
    for spare in axes[count:]:
        spare.remove()
    return figure, axes[:count]


def _title(ax: Axes, title: str) -> None:
    ax.set_title(title, loc="left", fontsize=10, parse_math=False)


def _names(ax: Axes, names: Sequence[str], *, across: bool = False) -> None:
    """Names along an axis, as they are: a dollar sign starts no formula."""
    short = [shortened(name, 200, 8) for name in names]
    if across:
        ax.set_xticks(range(len(names)), short, rotation=45, ha="right", parse_math=False)
    else:
        ax.set_yticks(range(len(names)), short, parse_math=False)
