"""The page of a test: one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, cast

import oodzoo
from oodzoo.combining.statements import shown_choice
from oodzoo.core.io import write_tidily
from oodzoo.core.tables import Column, Table
from oodzoo.core.text import count, listed, number, span, typed, without_folders
from oodzoo.data.files import StoredFile
from oodzoo.predictor.assessment import Measurement, TestResult, next_steps, shown
from oodzoo.report.chart import (
    MOST_ROWS,
    Chart,
    Drawing,
    Scale,
    edge_note,
    mark,
    percent,
    row_chart,
    whisker,
)
from oodzoo.report.diagnosis import (
    classes_figure,
    confusion_figure,
    labels_blocks,
    mistakes_gallery,
    numbers_blocks,
    reliability_figure,
)
from oodzoo.report.page import (
    Block,
    Change,
    Changes,
    Chooser,
    Facts,
    Figure,
    Headline,
    Key,
    Measured,
    Section,
    Tile,
    render,
)
from oodzoo.tasks import task_of
from oodzoo.tasks.classification import ClassDiagnosis
from oodzoo.tasks.multilabel import LabelDiagnosis
from oodzoo.tasks.regression import NumberDiagnosis

# --- the page -------------------------------------------------------------------------------------

MOST_DOMAINS = 12
"""Domains with a confusion matrix of their own: the hardest ones."""


def assessment_page(result: TestResult, model: str | None = None, out: str = "test.html") -> str:
    """The result of a test as one self-contained HTML page.

    Parameters
    ----------
    result : TestResult
    model : str, optional
        Path or URL of the predictor, for the title and the command that repeats the test.
    out : str
        The file that the page is written to, for this command.
    """
    steps = [Change(step.title, step.text) for step in next_steps(result)]
    sections = [
        Section(
            "domains", "How well it does", task_of(result.task).explained, [domains_figure(result)],
            short="Domains",
        ),
        *_mistakes(result),
    ]  # fmt: skip
    if steps:
        sections.insert(0, Section("next", "What to do next", "", [Changes(steps)], short="Next"))
    if result.unreadable:
        sections.append(_unreadable(result))
    sections.append(_provenance(result, model, out))
    return render(_headline(result, model), sections, oodzoo.__version__)


def write_test_report(result: TestResult, file: str | Path, *, model: str | None = None) -> Path:
    """Write the page of a test.

    Parameters
    ----------
    result : TestResult
        Of :func:`oodzoo.test`.
    file : path
        The file to write, such as "test.html".
    model : str, optional
        Path or URL of the predictor, for the command that repeats the test.

    Returns
    -------
    Path
        The file.
    """
    target = Path(file)
    # unpaired surrogates, as in file names that are not UTF-8, cannot be encoded
    write_tidily(target, assessment_page(result, model, str(file)).encode("utf-8", "replace"))
    return target


def _headline(result: TestResult, model: str | None) -> Headline:
    words, noun = task_of(result.task), count(result.images, result.noun)
    name = without_folders(result.data).rstrip("/")
    measured = Measured(
        shown(words.measure, result.value),
        f"{words.measure.name} on {noun} of {name}",
        f"90 % interval for other {result.noun}s of the same domains: "
        f"{result.overall.interval_text()} %",
    )
    return Headline(
        _verdict(result, model),
        measured=measured,
        meaning="" if result.promise is None else result.promise.text,
        remarks=result.remarks(),
        tiles=_tiles(result),
    )


def _verdict(result: TestResult, model: str | None) -> str:
    """The result in one sentence: is it what was promised?"""
    name = "" if model is None else without_folders(model).rstrip("/")
    test, predictor = (f"A test of {name}", name) if name else ("A test", "The predictor")
    if result.is_training_data:
        return f"{test} on its own training data."
    verdicts = {} if result.promise is None else result.promise.new
    below = [name for name, each in verdicts.items() if each == "below"]
    if below:
        return f"{predictor} is worse than promised on {listed(below)}."
    if not verdicts:
        names = "domains that it was trained on" if result.trained_on else "labelled data"
        return f"{test} on {names}."
    if above := [name for name, each in verdicts.items() if each == "above"]:
        return f"{predictor} is better than promised on {listed(above)}."
    return f"{predictor} is as good as promised on new domains."


def _tiles(result: TestResult) -> list[Tile]:
    words = task_of(result.task)
    means = "mean over the classes, so that each counts the same"
    note = means if words.one_class else words.second_measure.means
    tiles = [Tile(shown(words.second_measure, result.second), words.second_measure.name, note)]
    if isinstance(result.diagnosis, ClassDiagnosis):
        found = result.diagnosis.reliability
        tiles.append(
            Tile(
                f"{number(found.error, 1)} points",
                "calibration error",
                f"mean confidence {number(found.confidence, 1)} %",
            )
        )
    far = result.out_of_domain
    tiles.append(
        Tile(
            number(far.images),
            f"unlike the training {result.noun}s",
            f"of {count(result.images, result.noun)}",
        )
    )
    return tiles


# --- mistakes --------------------------------------------------------------------------------


def _mistakes(result: TestResult) -> list[Section]:
    found, noun = result.diagnosis, result.noun
    files = cast(Mapping[str, StoredFile], result.files)
    if isinstance(found, ClassDiagnosis):
        blocks: list[Block] = [
            *_by_domain(result, files),
            classes_figure(found, "classes", "Accuracy of each class", _diagnoses(result)),
            reliability_figure(found, "reliability", "Can its confidence be trusted?"),
        ]
        lead = "Which classes it confuses, where it is surely wrong, and how far to trust it."
    elif isinstance(found, NumberDiagnosis):
        blocks = numbers_blocks(found, files, noun)
        lead = "How far off the numbers are, by their true value, and where most."
    elif isinstance(found, LabelDiagnosis):
        blocks = labels_blocks(found, files, noun)
        lead = "How well each label is predicted, and where the predictor is surely wrong."
    else:
        return []
    return [Section("mistakes", "Where it is wrong", lead, blocks, short="Mistakes")]


def _diagnoses(result: TestResult) -> dict[str, ClassDiagnosis]:
    """The diagnosis of each domain, the hardest first; empty for one domain."""
    order = sorted(result.domains.items(), key=lambda item: result.value_of(item[1]))
    found = {
        name: part.diagnosis for name, part in order if isinstance(part.diagnosis, ClassDiagnosis)
    }
    return found if len(found) > 1 else {}


def _by_domain(result: TestResult, files: Mapping[str, StoredFile]) -> list[Block]:
    """Confusions and confident mistakes; of several domains, the reader chooses one."""
    total = result.diagnosis
    assert isinstance(total, ClassDiagnosis)
    parts = {"all domains": total, **dict(list(_diagnoses(result).items())[:MOST_DOMAINS])}
    options: list[tuple[str, list[Block]]] = []
    for at, (name, each) in enumerate(parts.items()):
        where = "" if len(parts) == 1 else f" in {name}"
        blocks: list[Block] = [
            confusion_figure(each, f"confusion-{at}", f"Which classes are confused{where}?")
        ]
        if each.mistakes:
            title = f"Most confident mistakes{where}"
            at_hand = {m.key: files[m.path] for m in each.mistakes if m.path in files}
            blocks.append(mistakes_gallery(each.mistakes, at_hand, title))
        options.append((f"{name} ({number(each.accuracy, 1)} %)", blocks))
    return [Chooser("confusion", "Domain", options)] if len(options) > 1 else options[0][1]


# --- the rest --------------------------------------------------------------------------------


def _unreadable(result: TestResult) -> Section:
    columns = [
        Column("File", "path", text=True),
        Column("Domain", "domain", text=True),
        Column("Reason", "reason", text=True),
    ]
    rows = [[each.path, each.domain, each.reason] for each in result.unreadable]
    title = f"{count(len(rows), result.noun)} without a prediction"
    figure = Figure(title, Table("unreadable", title, columns, rows), folded=False)
    lead = f"These {result.noun}s could not be read. They are in no figure of this page."
    return Section("unreadable", "Unreadable", lead, [figure])


def _provenance(result: TestResult, model: str | None, out: str) -> Section:
    pairs = [
        ("Data", without_folders(result.data)),
        ("Domains", ", ".join(result.domains)),
        ("Combination", shown_choice(result.choice, result.models)),
        ("Models", ", ".join(result.models)),
        ("Adapted to each domain", "yes" if result.adapted else "no"),
        ("Intervals", task_of(result.task).interval_words),
    ]
    adapt = " --adapt" if result.adapted else ""
    names = (model or "MODEL", result.data, out)
    model_name, data, page = (typed(without_folders(each)) for each in names)
    command = f"oodzoo test {model_name} {data}{adapt} --out {page}"
    return Section("made", "Provenance", "", [Facts(pairs, command=command)])


# --- each domain ----------------------------------------------------------------------------------


def domains_figure(result: TestResult) -> Figure:
    """The main metric on each domain with its interval, the worst domain first."""
    words = task_of(result.task)
    order = sorted(result.domains.items(), key=lambda item: result.value_of(item[1]))
    columns = [
        Column("Domain", "domain", text=True),
        Column(f"{result.noun.capitalize()}s", "images", 0),
        Column(words.measure.heading, result.metric, 1),
        Column("90 % interval", "interval", 1, interval=True),
        Column(words.second_measure.heading, "second", words.second_measure.digits),
    ]
    verdicts = {} if result.promise is None else result.promise.verdicts
    if verdicts:
        columns.append(Column("Compared with the promise", "promise", text=True))
    rows: list[list[Any]] = []
    for name, part in [*order, *([("all", result.overall)] if len(order) > 1 else [])]:
        row = [name, part.diagnosis.images, result.value_of(part), part.interval]
        row.append(result.second_of(part))
        rows.append([*row, verdicts.get(name)] if verdicts else row)
    legend = [Key("expected", "circle", f"{words.measure.name}, with its 90 % interval")]
    if result.promise is not None and result.promise.new:
        legend.append(Key("neutral", "square", "90 % interval promised for one new domain"))
    title = f"{words.measure.title} on each domain"
    text = _domain_summary(result, order)
    values = [result.value_of(part) for _, part in order]
    return Figure(
        title=title,
        text=text + edge_note(values, words.measure.lowest),
        chart=_domain_chart(result, order[:MOST_ROWS], title, text),
        legend=legend,
        table=Table("domains", f"{title}, the worst first", columns, rows),
    )


def _domain_summary(result: TestResult, order: list[tuple[str, Measurement]]) -> str:
    metric = task_of(result.task).measure
    (worst, low), (best, high) = order[0], order[-1]
    if len(order) == 1:
        return (
            f"{worst} has {shown(metric, result.value_of(low))}, with a 90 % interval of "
            f"{low.interval_text()} % for other {result.noun}s of this domain."
        )
    more = f" The chart shows the worst {MOST_ROWS}." if len(order) > MOST_ROWS else ""
    return (
        f"The hardest of {count(len(order), 'domain')} is {worst}, with "
        f"{shown(metric, result.value_of(low))}; the easiest is {best}, with "
        f"{shown(metric, result.value_of(high))}. Intervals are for other {result.noun}s of the "
        f"same domain.{more}"
    )


def _domain_chart(
    result: TestResult, rows: list[tuple[str, Measurement]], title: str, description: str
) -> Chart:
    promise = result.promise
    ends = [end for _, part in rows for end in part.interval or (result.value_of(part),)]
    ends += promise.interval or () if promise is not None else ()

    def draw_row(drawing: Drawing, scale: Scale, at: int, middle: float) -> None:
        name, part = rows[at]
        value = result.value_of(part)
        if promise is not None and promise.interval is not None and name in promise.new:
            low, high = promise.interval
            tip = f"promised for one new domain\n{span(low, high)} %"
            whisker(drawing, middle, scale(low), scale(high), "neutral wide-line", tip)
        tip = (
            f"{name}\n{number(value, 1)} % of {count(part.diagnosis.images, result.noun)}, 90 % "
            f"interval {part.interval_text()} %"
        )
        if part.interval is not None:
            low, high = part.interval
            whisker(drawing, middle, scale(low), scale(high), "expected", tip)
        mark(drawing, "circle", scale(value), middle, "dot expected", tip)
        drawing.text(drawing.width, middle + 4, number(value, 1), "value", end="end")

    scale = partial(percent, ends, lowest=task_of(result.task).measure.lowest)
    return row_chart(title, description, [name for name, _ in rows], scale, draw_row)
