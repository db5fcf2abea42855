"""Tables at several widths: names and numbers stay whole."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from oodzoo.cli.tables import Fitted, Part, column_widths, fit_table, needed_width

COLUMNS = ["rank", "model", "acc. %", "90 %", "d", "ms"]
ROWS = [
    [1, "vit_small_patch14_dinov2.lvd142m", 94.4, "87-100", 384, 12.3],
    [2, "resnet50.a1_in1k", 9.5, "0-20", 2048, 4.1],
]


def fit(width: int, *least: str) -> Fitted:
    return fit_table(COLUMNS, ROWS, left=2, width=width, least=least)


def test_the_least_columns_are_left_out_first() -> None:
    assert fit(60, "d", "ms").dropped == ["d"]
    assert fit(55, "d", "ms").dropped == ["d", "ms"]


def test_without_them_the_table_is_divided() -> None:
    fitted = fit(50)
    assert [part.columns for part in fitted.parts] == [
        ["rank", "model", "acc. %"],
        ["rank", "model", "90 %", "d"],
        ["rank", "model", "ms"],
    ]
    assert fitted.dropped == []


def test_names_of_several_words_stay_whole_in_a_divided_table() -> None:
    rows = [["best by discriminability", *"1234"]]
    fitted = fit_table(["accuracy %", *(f"domain{n}" for n in range(4))], rows, left=1, width=41)
    assert [len(part.columns) for part in fitted.parts] == [3, 3]
    widths = [column_widths(part, 41)[0] for part in fitted.parts]
    assert widths == [len("best by discriminability")] * 2


def test_a_name_that_takes_the_width_has_a_line_of_its_own() -> None:
    fitted = fit(30, "d")
    assert fitted.parts == []
    assert fitted.lines[:3] == [
        "1  vit_small_patch14_dinov2.lvd142m",
        "  acc. % 94.4  90 % 87-100",
        "  d 384  ms 12.3",
    ]
    assert fitted.dropped == []


@pytest.mark.parametrize("width", range(12, 90, 3))
def test_nothing_is_lost_or_cut_at_any_width(width: int) -> None:
    fitted = fit(width, "d")
    for part in fitted.parts:
        assert needed_width(part.columns, part.rows, part.left) <= width
    text = " ".join([cell for p in fitted.parts for row in p.rows for cell in row] + fitted.lines)
    wanted = [str(cell) for row in ROWS for at, cell in enumerate(row)
              if COLUMNS[at] not in fitted.dropped]  # fmt: skip
    assert all(cell in text for cell in wanted)


def test_text_may_be_broken_between_words() -> None:
    rows = [["net", "trained on many images", "1"]]
    columns = ["model", "pretraining", "d"]
    assert needed_width(columns, rows, 2) == 5 + 1 + 11 + 1 + 1
    assert needed_width(columns, rows, 1) == 5 + 1 + 22 + 1 + 1


def test_wide_characters_take_two_cells() -> None:
    assert needed_width(["名前"], [["漢字"]], 1) == cell_len("漢字") == 4


def test_the_widest_text_gives_way() -> None:
    part = Part(["model", "pretraining", "parameters"], [["a" * 20, "b c d e " * 5, "1"]], 2)
    assert column_widths(part, 200) == [20, 40, 10]
    assert column_widths(part, 50) == [20, 18, 10]
    assert column_widths(part, 10) == [20, 11, 10]  # no narrower than words
