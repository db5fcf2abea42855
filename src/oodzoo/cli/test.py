"""`oodzoo test`: a predictor on labelled data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oodzoo.cli.app import FILES_COMPLETE, command
from oodzoo.cli.options import (
    DomainOptions,
    TrackingOptions,
    listening,
)
from oodzoo.cli.terminal import Terminal
from oodzoo.core.errors import InputError
from oodzoo.core.events import Events
from oodzoo.core.text import number, significant, span

if TYPE_CHECKING:
    from oodzoo.predictor.assessment import TestResult

_MOST = 10
"""Rows of a table."""


@dataclass(frozen=True)
class TestedOptions(DomainOptions):
    """How labelled data are read.

    Options
    -------
    domains : DOMAINS
        Domains: one (a single domain), or a column (column:camera); by default those of the
        data, or one.
    """

    domains: str | None = None


@command(
    "test", example="oodzoo test model/ photos/new/ --out test.html", interrupted=FILES_COMPLETE
)
def assess(
    terminal: Terminal,
    model: str,
    data: str,
    out: Path | None = None,
    *,
    options: TestedOptions,
    adapt: bool = False,
    device: str = "auto",
    batch_size: int | None = None,
    tracking: TrackingOptions,
) -> None:
    """Test a predictor on labelled data: what it gets right and wrong, and what was expected.

    Arguments
    ---------
    data : DATA
        Labelled data: folder root/domain/class/image or root/class/image, table (.csv,
        .parquet), .tar files, URL, or hf://datasets/NAME; or features with labels (.npz).

    Options
    -------
    out : FILE|DIR
        Page to write (.html), or a folder for test.html in it.
    adapt
        Adapt to each domain first, without its labels; a pool can.
    """
    from oodzoo.predictor import load
    from oodzoo.predictor.testing import test
    from oodzoo.report.assessment_page import write_test_report

    page = _page(out)  # before the work
    options.require_request()
    others = tracking.listeners()
    predictor = load(model, device=device, batch_size=batch_size)
    with listening(terminal, "Testing", others) as listener:
        result = test(
            predictor,
            data,
            root=options.root,
            columns=options.mapping,
            domains=options.domains,
            adapt=adapt,
            listener=listener,
        )
    if page is not None:
        write_test_report(result, page, model=model)
        Events(others).artifact("test", page)
    _show(terminal, result)
    if page is not None:
        terminal.line(f"Report: {page}")
    elif not terminal.json:
        terminal.say("Write a page with confusion matrix and mistakes: --out test.html")
    terminal.document({**result.to_dict(), "model": model, "report": page and str(page)})


def _page(out: Path | None) -> Path | None:
    """The page to write."""
    if out is None:
        return None
    if out.suffix.lower() in (".html", ".htm") and not out.is_dir():
        return out
    if out.suffix and not out.is_dir():
        raise InputError(
            f"--out {str(out)!r}: the page is HTML; name a file *.html, or a folder for test.html"
        )
    return out / "test.html"


def _show(terminal: Terminal, result: TestResult) -> None:
    from oodzoo.predictor.assessment import next_steps

    terminal.table(*result.table())
    terminal.line("")
    for line in result.findings():
        terminal.line(line)
    for title, columns, rows, left, (n, what) in _tables(result):
        terminal.line("")
        terminal.table(columns, rows[:_MOST], title=title, left=left)
        if n > _MOST:
            terminal.line(f"… {n - _MOST:,} more {what}")
    if steps := next_steps(result):
        terminal.line("")
        terminal.line("What to do next:")
        for step in steps:
            terminal.line(f"- {step.title}. {step.text}")
    terminal.line("")


_Table = tuple[str, list[str], list[list[Any]], int, tuple[int, str]]
"""Title, columns, rows, number of columns of text, and how many of what there are (0: of no use).

Of mistakes, the rows are only the most confident ones.
"""

_FEW = (0, "")
"""Of a table that has no more rows, or as many as there are samples."""


def _tables(result: TestResult) -> list[_Table]:
    """What is behind the metrics: the weakest classes, confusions and confident mistakes."""
    from oodzoo.tasks.classification import ClassDiagnosis
    from oodzoo.tasks.multilabel import LabelDiagnosis
    from oodzoo.tasks.regression import NumberDiagnosis

    found, noun = result.diagnosis, f"{result.noun}s"
    if isinstance(found, ClassDiagnosis):
        classes = sorted(
            ((name, each) for name, each in found.per_class.items() if each.recall is not None),
            key=lambda item: item[1].recall or 0.0,
        )
        rows = [[n, e.images, number(e.recall, 1), number(e.precision, 1)] for n, e in classes]
        per_class = found.per_class
        pairs = [
            [label, predicted, images, number(100 * images / per_class[label].images, 1)]
            for label, predicted, images in found.confusions
        ]
        wrong = [[m.path, m.label, m.predicted, number(m.confidence)] for m in found.mistakes]
        tables: list[_Table] = [
            ("Classes, the weakest first",
             ["class", noun, "recall %", "precision %"], rows, 1, (len(rows), "classes")),
            ("Most frequent confusions",
             ["true class", "predicted", noun, "% of class"], pairs, 2, (len(pairs), "confusions")),
            ("Most confident mistakes", [result.noun, "true", "predicted", "sure %"],
             wrong, 3, (sum(images for *_, images in found.confusions), "mistakes")),
        ]  # fmt: skip
        return tables if found.mistakes else tables[:1]
    if isinstance(found, NumberDiagnosis):
        tables = []
        if len(found.per_output) > 1:
            figures = [
                [name, number(each.explained_variance, 1), significant(each.absolute_error),
                 significant(each.bias)]
                for name, each in found.per_output.items()
            ]  # fmt: skip
            tables.append(
                ("Each number", ["number", "explained variance %", "absolute error", "bias"],
                 figures, 1, (len(figures), "numbers"))
            )  # fmt: skip
        for name, each in found.per_output.items():
            ranges = [
                [span(r.low, r.high, digits=2), r.images, significant(r.absolute_error),
                 significant(r.bias)]
                for r in each.ranges
            ]  # fmt: skip
            tables.append(
                (f"{name}: error by true value", ["true value", noun, "absolute error", "bias"],
                 ranges, 1, _FEW)
            )  # fmt: skip
            errors = [
                [e.path, significant(e.label), significant(e.predicted)] for e in each.largest
            ]
            tables.append(
                (f"{name}: largest errors", [result.noun, "true", "predicted"], errors, 1, _FEW)
            )
        return tables
    if not isinstance(found, LabelDiagnosis):
        return []
    labels = [
        [name, each.images, number(each.average_precision, 1), number(each.recall, 1),
         number(each.precision, 1)]
        for name, each in sorted(
            found.per_label.items(), key=lambda item: item[1].average_precision or 0.0
        )
    ]  # fmt: skip
    mistakes = [
        [m.path, f"{'has' if m.has else 'has not'} {m.label}", number(m.confidence)]
        for m in found.mistakes
    ]
    return [
        ("Labels, the weakest first", ["label", noun, "AP %", "recall %", "precision %"],
         labels, 1, (len(labels), "labels")),
        ("Most confident mistakes", [result.noun, "truth", "sure of the opposite %"],
         mistakes, 2, _FEW),
    ]  # fmt: skip
