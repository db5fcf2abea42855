"""Scores computed elsewhere: read from a CSV file, or published accuracies on ImageNet.

The accuracy on ImageNet is a trivial baseline. It is read from torchvision's description of its
weights, and from the file `results-imagenet.csv` that timm publishes beside its code (columns
`model` and `top1`; it is not part of the installed package). A model that neither of them lists has
no value.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from oodzoo.core.errors import InputError
from oodzoo.core.packages import import_torchvision, torchvision_installed
from oodzoo.core.text import count
from oodzoo.ranking.testbed.agreement import Values
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.manifest import ModelRecord

Row = TypeVar("Row")


def read_values(path: Path) -> dict[str, Values]:
    """Read a CSV file with a column `model` and one column per score; empty cells are missing."""
    context = f"the table {str(path)!r}"
    table = csv.reader(_lines(path, context))
    rows = [row for row in _parsed(table, context) if any(cell.strip() for cell in row)]
    if not rows or rows[0][0].strip() != "model" or len(rows[0]) < 2:
        found = ",".join(rows[0]) if rows else ""
        raise InputError(f"{context} must start with the line model,SCORE,…, got {found!r}")
    _, *names = (cell.strip() for cell in rows[0])
    if len(set(names)) < len(names):
        raise InputError(f"{context} has duplicate score names: {', '.join(names)}")
    values: dict[str, dict[str, float | None]] = {name: {} for name in names}
    for number, (model, *cells) in enumerate(rows[1:], start=2):
        if len(cells) != len(names):
            raise InputError(
                f"{context}, row {number}: expected {count(len(rows[0]), 'cell')}, "
                f"got {len(cells) + 1}"
            )
        for name, cell in zip(names, cells, strict=True):
            if model in values[name]:
                raise InputError(f"{context}, row {number}: duplicate model {model!r}")
            values[name][model] = _number(cell.strip(), f"{context}, row {number}")
    return dict(values)


def _lines(path: Path, context: str) -> list[str]:
    try:
        return path.read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise InputError(f"cannot read {context}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{context} is not a CSV file: {error}") from error


def _parsed(table: Iterable[Row], context: str) -> list[Row]:
    try:
        return list(table)
    except csv.Error as error:
        raise InputError(f"{context} is not a CSV file: {error}") from error


def _number(cell: str, context: str) -> float | None:
    if not cell:
        return None
    try:
        value = float(cell)
    except ValueError as error:
        raise InputError(f"{context}: {cell!r} is not a number") from error
    if not math.isfinite(value):
        raise InputError(f"{context}: {cell!r} is not a finite number")
    return value


def require_valid(
    external: Mapping[str, Values], models: Collection[str], reserved: Collection[str]
) -> None:
    """Reject scores with a reserved name, unknown models, or values that are not finite."""
    for name, values in external.items():
        if name in reserved:
            raise InputError(f"the score name {name!r} is reserved; rename the external score")
        if not name.isidentifier():
            raise InputError(
                f"a score name must consist of letters, digits and underscores, got {name!r}"
            )
        for model, value in values.items():
            if model not in models:
                raise InputError(f"score {name!r}: no such model: {model!r}")
            if value is not None and not math.isfinite(value):
                raise InputError(f"score {name!r}: the value of {model!r} is not finite: {value}")


class UnpublishedError(Exception):
    """No source publishes the accuracy of a model; the message says why."""


def published_accuracies(
    store: FeatureStore, models: Sequence[str], timm_results: dict[str, float] | None
) -> tuple[dict[str, float | None], dict[str, str]]:
    """Look up the top-1 accuracy of models on ImageNet-1k, in percent.

    Returns
    -------
    values : dict
        For each model; None if it is not published.
    reasons : dict
        Why models have no value.
    """
    values: dict[str, float | None] = {}
    reasons: dict[str, str] = {}
    for name in models:
        try:
            values[name] = _accuracy(store.model(name), timm_results)
        except UnpublishedError as reason:
            values[name], reasons[name] = None, str(reason)
    return values, reasons


def _accuracy(record: ModelRecord, timm_results: dict[str, float] | None) -> float:
    kind, _, identifier = record.source.partition("/")
    if (record.spec or {}).get("pretrained") is False:
        raise UnpublishedError("its weights are random")
    if kind == "torchvision":
        return _of_torchvision(identifier, record.pretraining)
    if kind == "timm":
        return _of_timm(identifier, timm_results)
    raise UnpublishedError("its accuracy on ImageNet is not published by torchvision or timm")


def _of_torchvision(identifier: str, pretraining: str | None) -> float:
    if not torchvision_installed():
        raise UnpublishedError("torchvision, which publishes its accuracy, is not installed")
    name, _, version = identifier.partition(".")
    try:
        torchvision = import_torchvision(extra="torchvision", purpose="source_accuracy")
        known = torchvision.models.get_model_weights(name).__members__
        # the weights that were loaded: the default may be another one in this version
        chosen = version or (pretraining if pretraining in known else "DEFAULT")
        return float(known[chosen].meta["_metrics"]["ImageNet-1K"]["acc@1"])
    except (InputError, KeyError, ValueError) as error:
        raise UnpublishedError(
            f"torchvision publishes no accuracy on ImageNet for {identifier!r}"
        ) from error


def _of_timm(identifier: str, results: dict[str, float] | None) -> float:
    if results is None:
        raise UnpublishedError("pass timm's results-imagenet.csv, which has its accuracy")
    name = identifier.removeprefix("hf-hub:").removeprefix("timm/")
    matches = [name] if name in results else [row for row in results if _is_tagged(row, name)]
    if len(matches) == 1:
        return results[matches[0]]
    if matches:
        raise UnpublishedError(f"timm's results have several weights of {name!r}; name one of them")
    raise UnpublishedError(f"timm's results do not contain {name!r}")


def _is_tagged(row: str, architecture: str) -> bool:
    return "." not in architecture and row.partition(".")[0] == architecture


def read_timm_results(path: str | Path) -> dict[str, float]:
    """Read the top-1 accuracy of each model, in percent, from timm's `results-imagenet.csv`."""
    context = f"timm's results {str(path)!r}"
    lines = _lines(Path(path), context)
    rows = _parsed(csv.DictReader(lines), context)
    if not rows or not {"model", "top1"} <= set(rows[0]):
        header = lines[0].strip()[:80] if lines else ""
        raise InputError(f"{context} must have the columns model and top1, got {header!r}")
    results = {}
    for number, row in enumerate(rows, start=2):
        results[str(row["model"])] = _percent(row["top1"], f"{context}, row {number}")
    return results


def _percent(cell: str | None, context: str) -> float:
    try:
        value = float(cell or "")
    except ValueError:
        value = math.nan
    if not 0 <= value <= 100:
        raise InputError(f"{context}: top1 must be a percentage, got {cell!r}")
    return value
