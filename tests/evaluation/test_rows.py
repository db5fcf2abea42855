"""Rows of an evaluation and their documents."""

from __future__ import annotations

import dataclasses
import json

import pytest

from oodzoo.combining.evaluation.rows import Aggregation, Cell, Measures, Row
from oodzoo.core.errors import InputError


def row(*accuracies: float) -> Row:
    return Row(
        {
            f"d{at}": Cell((Measures(value, value - 1, 2.0),), ("m",), 4)
            for at, value in enumerate(accuracies)
        }
    )


def test_rows_and_aggregations_survive_json() -> None:
    cells = row(80.5, 1 / 3).cells
    cells["d1"] = dataclasses.replace(cells["d1"], milliseconds=2.5, parameters=7)
    one = Row(cells)
    document = json.loads(json.dumps(one.to_dict()))
    assert document["trials"] == {"d0": [[80.5, 79.5, 2.0]], "d1": [[1 / 3, 1 / 3 - 1, 2.0]]}
    assert document["milliseconds"] == {"d0": None, "d1": 2.5}
    assert document["parameters"] == {"d0": None, "d1": 7}
    assert Row.from_dict(document) == one
    both = Aggregation(one, row(3.0, 4.0), {"d0": 0.5, "d1": 1.0})
    assert Aggregation.from_dict(json.loads(json.dumps(both.to_dict()))) == both


def test_a_damaged_row_is_rejected() -> None:
    document = row(1.0).to_dict() | {"trials": {"d0": [["high", 1.0, 2.0]]}}
    with pytest.raises(InputError, match="the evaluation"):
        Row.from_dict(document)


def test_rows_and_cells_are_short_whatever_their_names() -> None:
    found = row(80.0, 90.0)
    assert repr(found) == "Row(accuracy 85.0 %: d0 80.0, d1 90.0)"
    cell = found.cells["d0"]
    assert repr(cell).startswith("Cell(80.0 %: ")
    long = Row({f"<domain {at}>" * 30: cell for at in range(40)})
    assert len(repr(long)) < 400
    assert "<domain" not in long._repr_html_()
    assert found._repr_html_().count("<tr>") == 3


def test_a_row_exceeds_a_limit_if_it_does_for_one_domain() -> None:
    cells = row(80.0, 90.0).cells
    assert not Row(cells).exceeds(None, None)
    assert Row(cells).exceeds(None, 100.0)  # the times are unknown
    timed = {
        d: dataclasses.replace(c, milliseconds=2.0 + at) for at, (d, c) in enumerate(cells.items())
    }
    assert not Row(timed).exceeds(1, 3.0)
    assert Row(timed).exceeds(1, 2.5)
    two = timed | {"d1": dataclasses.replace(timed["d1"], models=("m", "n"))}
    assert Row(two).exceeds(1, None)
