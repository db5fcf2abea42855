"""Scores read from a CSV file."""

from __future__ import annotations

from pathlib import Path

import pytest

from oodzoo.errors import InputError
from oodzoo.testbed.external import read_values, require_valid


def test_empty_cells_are_missing(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("model,source_accuracy,size\nbest,80,1\ngood,70,2\n\nfair,60,\n")
    assert read_values(table) == {
        "source_accuracy": {"best": 80.0, "good": 70.0, "fair": 60.0},
        "size": {"best": 1.0, "good": 2.0, "fair": None},
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "must start with the line model,SCORE,…, got ''"),
        ("name,a\nbest,1\n", "must start with the line model,SCORE,…, got 'name,a'"),
        ("model,a,a\nbest,1,2\n", "duplicate score names: a, a"),
        ("model,a\nbest,1,2\n", "row 2: expected 2 cells, got 3"),
        ("model,a\nbest,x\n", "row 2: 'x' is not a number"),
        ("model,a\nbest,1\nbest,1\n", "row 3: duplicate model 'best'"),
    ],
)
def test_an_invalid_table_is_rejected(tmp_path: Path, content: str, message: str) -> None:
    table = tmp_path / "t.csv"
    table.write_text(content)
    with pytest.raises(InputError, match=message) as rejected:
        read_values(table)
    assert str(rejected.value).startswith(f"the table {str(table)!r}")


def test_a_missing_or_binary_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read the table"):
        read_values(tmp_path / "no.csv")
    (tmp_path / "b.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="is not a CSV file"):
        read_values(tmp_path / "b.csv")


def test_external_scores_must_have_a_free_name_and_finite_values_of_known_models() -> None:
    require_valid({"mine": {"best": 1.0, "good": None}}, ["best", "good"], ["zood"])
    for wrong, message in (
        ({"zood": {"best": 1.0}}, "'zood' is reserved"),
        ({"mine": {"nobody": 1.0}}, "no such model: 'nobody'"),
        ({"mine": {"best": float("nan")}}, "value of 'best' is not finite: nan"),
        ({"my own": {"best": 1.0}}, "got 'my own'"),
    ):
        with pytest.raises(InputError, match=message):
            require_valid(wrong, ["best", "good"], ["zood"])
