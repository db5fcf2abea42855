"""The section "Selected features": features kept per model and class, inclusion probabilities."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup

from oodzoo._text import count
from oodzoo.report.blocks import Column, Figure, Section, Table
from oodzoo.report.chart import Chart, Scale, Size, in_both_sizes
from oodzoo.report.numbers import number
from oodzoo.report.svg import Drawing
from oodzoo.selection.select import ModelSelection, SelectionSummary


def selection_section(selection: SelectionSummary) -> Section:
    """Features kept of each model, and their inclusion probabilities."""
    lead = (
        f"Of the {number(selection.n_features)} concatenated features, "
        f"{number(selection.n_selected)} ({number(100 * selection.ratio, 1)} %) are kept: those "
        "that are informative about at least one class. A feature has an inclusion probability "
        "for each class; the highest one is shown."
    )
    if not selection.converged:
        lead += " The selection did not converge."
    blocks = [_kept(selection), _inclusion(selection), _classes(selection)]
    return Section("features", "Selected features", lead, blocks, short="Features")


def _kept(selection: SelectionSummary) -> Figure:
    models = selection.per_model
    summary = "; ".join(
        f"{number(each.n_selected)} of {count(each.n_features, 'feature')} of {each.model} are kept"
        for each in models
    )
    columns = [
        Column("Model", "model", text=True),
        Column("Features", "n_features", 0),
        Column("Kept", "n_selected", 0),
        Column("Kept %", "kept_percent", 1),
    ]
    rows = [
        [each.model, each.n_features, each.n_selected, 100 * each.n_selected / each.n_features]
        for each in models
    ]
    return Figure(
        title="Features kept per model",
        chart=_kept_chart(models, f"{summary}."),
        table=Table("features-kept", "Features kept per model", columns, rows),
    )


def _kept_chart(models: Sequence[ModelSelection], description: str) -> Chart:
    """A bar for each model, with the kept part filled."""

    def draw(size: Size) -> Drawing:
        height = 44 if size.narrow else 30
        left, right = (0, size.width - 112) if size.narrow else (250, size.width - 140)
        title = "Features kept per model"
        drawing = Drawing(size.width, height * len(models) + 8, title, description)
        scale = Scale(0, max(each.n_features for each in models), left, right)
        for at, each in enumerate(models):
            y = height * at
            room = size.width - 8 if size.narrow else left - 14
            drawing.name(0, y + (14 if size.narrow else 20), each.model, room)
            bar, whole, kept = y + (21 if size.narrow else 8), each.n_features, each.n_selected
            label = f"{number(kept)} of {number(whole)}"
            tip = f"{each.model}\n{label} features kept"
            drawing.rect(left, bar, scale(whole) - left, 14, "whole", data_tip=tip)
            drawing.rect(left, bar, scale(kept) - left, 14, "bar selection", data_tip=tip)
            drawing.text(scale(whole) + 8, bar + 11, label, "value")
        return drawing

    return in_both_sizes(draw)


def _inclusion(selection: SelectionSummary) -> Figure:
    columns = [
        Column("Model", "model", text=True),
        Column("From", "low", 2),
        Column("To", "high", 2),
        Column("Features", "features", 0),
    ]
    rows = [
        [each.model, at / len(counts), (at + 1) / len(counts), features]
        for each in selection.per_model
        for counts in [each.inclusion_histogram]
        for at, features in enumerate(counts)
    ]
    return Figure(
        title="Inclusion probabilities",
        text="Features by inclusion probability. "
        "Square-root scale, so that small counts stay visible.",
        panels=[_histogram(each) for each in selection.per_model],
        table=Table("inclusion-probabilities", "Features by inclusion probability", columns, rows),
    )


def _histogram(selection: ModelSelection) -> Markup:
    width, base, left = 280, 132, 8
    model, counts = selection.model, selection.inclusion_histogram
    description = (
        f"{number(counts[0] + counts[-1])} of {count(sum(counts), 'feature')} are in the first or "
        f"last of {len(counts)} bins: clearly excluded or clearly included."
    )
    drawing = Drawing(width, 168, f"Inclusion probabilities of {model}", description)
    drawing.name(0, 14, model, width)
    room = width - 2 * left
    step = room / len(counts)
    for at, features in enumerate(counts):
        low, high = number(at / len(counts), 2), number((at + 1) / len(counts), 2)
        tip = f"{model}\n{count(features, 'feature')} between {low} and {high}"
        height = 96 * math.sqrt(features / max(*counts, 1))
        drawing.rect(left + step * at + 0.5, base - height, step - 1, height, "bar selection")
        drawing.rect(left + step * at, base - 100, step, 100, "touch-area", data_tip=tip)
    drawing.line(left, base, left + room, base, "zero")
    for share, label, end in ((0, "0", "start"), (0.5, "0.5", "middle"), (1, "1", "end")):
        drawing.text(left + room * share, base + 16, label, "tick", end=end)
    drawing.text(left + room / 2, base + 33, "inclusion probability", "tick", end="middle")
    return drawing.render()


def _classes(selection: SelectionSummary) -> Figure:
    columns = [Column("Class", "class", text=True), Column("Kept", "n_selected", 0)]
    columns += [Column(model, model, 0) for model in selection.models]
    rows = [
        [label, each.n_selected, *(each.per_model[model] for model in selection.models)]
        for label, each in selection.per_class.items()
    ]
    return Figure(
        title="Features kept per class",
        text="A feature may be kept for several classes.",
        table=Table("features-by-class", "Features kept per class", columns, rows),
        folded=len(rows) > 12,
    )
