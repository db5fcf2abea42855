"""Predictions as text: a table, CSV or lines of JSON, for each kind of task."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from oodzoo._text import csv_cell, printable

if TYPE_CHECKING:
    from oodzoo.predictor import Prediction
    from oodzoo.task import Kind

Write = Callable[["Prediction"], None]


def fields(found: Prediction, kind: Kind, classes: Sequence[str]) -> dict[str, Any]:
    """Return a prediction as a JSON document."""
    document: dict[str, Any] = {"path": found.path}
    if kind == "regression":
        document["values"] = dict(zip(classes, _numbers(found), strict=True))
    else:
        several = kind == "multilabel"
        document["labels" if several else "label"] = list(found.label) if several else found.label
        document["probabilities"] = dict(zip(classes, _numbers(found), strict=True))
    return document | {"distance": found.distance, "out_of_domain": found.out_of_domain}


def writer(form: str, stream: TextIO, kind: Kind, classes: Sequence[str], noun: str) -> Write:
    """Return a function that writes predictions in a form: "table", "csv" or "jsonl".

    The header is written at once. `noun` is what a sample is called.
    """
    return FORMS[form](stream, kind, classes, noun)


def _numbers(found: Prediction) -> list[float]:
    """Probabilities, or predicted numbers."""
    if found.probabilities is not None:
        probabilities: list[float] = found.probabilities.tolist()
        return probabilities
    return list(found.label) if isinstance(found.label, tuple) else [found.label]


def _jsonl(stream: TextIO, kind: Kind, classes: Sequence[str], _: str) -> Write:
    def write(found: Prediction) -> None:
        stream.write(json.dumps(fields(found, kind, classes), allow_nan=False) + "\n")

    return write


def _csv(stream: TextIO, kind: Kind, classes: Sequence[str], _: str) -> Write:
    rows = csv.writer(stream, lineterminator="\n")
    numbers = kind == "regression"
    names = list(classes) if numbers else [f"p({name})" for name in classes]
    own = {"classification": ["label"], "multilabel": ["labels"], "regression": []}[kind]
    rows.writerow(["path", *own, "distance", "out_of_domain", *map(csv_cell, names)])

    def write(found: Prediction) -> None:
        label = "|".join(found.label) if kind == "multilabel" else found.label
        cells = [csv_cell(found.path), *([] if numbers else [csv_cell(label)])]
        values = [repr(value) if numbers else f"{value:.6g}" for value in _numbers(found)]
        rows.writerow([*cells, f"{found.distance:.4g}", int(found.out_of_domain), *values])

    return write


def _table(stream: TextIO, kind: Kind, classes: Sequence[str], noun: str) -> Write:
    # the names in a file stay as they are
    shown = printable if stream is sys.stdout else str
    if kind == "regression":
        widths = [max(9, len(shown(name))) for name in classes]
        heading = "  ".join(f"{shown(n):>{w}}" for n, w in zip(classes, widths, strict=True))
    else:
        own = "labels" if kind == "multilabel" else "label"
        width = max(len(own), *(len(shown(name)) for name in classes))
        if kind == "multilabel":  # as wide as all labels together, if they are not many
            width = min(40, max(width, len(", ".join(map(shown, classes)))))
        heading = f"{own:{width}}"
        heading += "" if kind == "multilabel" else "  prob."
    stream.write(f"{heading}  dist.    {noun}\n")

    def write(found: Prediction) -> None:
        far = "far" if found.out_of_domain else ""
        if kind == "regression":
            each = zip(_numbers(found), widths, strict=True)
            text = "  ".join(f"{value:>{width}.4g}" for value, width in each)
        elif kind == "multilabel":
            text = f"{shown(', '.join(found.label)) or '-':{width}}"
        else:
            text = f"{shown(str(found.label)):{width}}  {max(_numbers(found)):5.3f}"
        stream.write(f"{text}  {found.distance:5.2f} {far:3} {shown(str(found.path))}\n")

    return write


FORMS = {"table": _table, "jsonl": _jsonl, "csv": _csv}
"""Functions that begin each form of output."""
