"""The table of a summary: cells, and columns that are left out."""

from __future__ import annotations

from dataclasses import replace

from oodzoo.data.summary_rows import ClassCount, DomainSummary, Extent, columns_and_rows

SOUND = DomainSummary(
    domain="day",
    images=1200,
    classes=7,
    fewest=ClassCount("cat", 100),
    most=ClassCount("dog", 100),
    label_shift=0.0,
    n_bytes=2_500_000,
    unreadable=0,
    copies=0,
    shared=0,
    width=Extent(227, 227, 227),
    height=Extent(200, 200, 200),
    greyscale=0.0,
    formats={"JPEG": 1200},
    modes={"RGB": 1200},
)


def cells(*rows: DomainSummary) -> list[dict[str, str]]:
    columns, table = columns_and_rows(rows, "abcdefg")
    return [dict(zip(columns, row, strict=True)) for row in table]


def test_sound_domain_has_no_columns_of_problems() -> None:
    assert cells(SOUND) == [
        {
            "domain": "day",
            "images": "1,200",
            "classes": "7/7",
            "per class": "100",
            "shift": "0 %",
            "size": "227×200",
            "bytes": "2.5 MB",
        }
    ]


def test_column_is_shown_if_one_row_has_something_to_say() -> None:
    other = replace(
        SOUND,
        classes=6,
        most=ClassCount("dog", 1200),
        label_shift=12.5,
        unreadable=1234,
        copies=2,
        shared=3,
        width=Extent(17, 227, 4032),
        greyscale=0.2,
    )
    sound, problematic = cells(SOUND, other)
    assert {name: (sound[name], problematic[name]) for name in sound} == {
        "domain": ("day", "day"),
        "images": ("1,200", "1,200"),
        "classes": ("7/7", "6/7"),
        "per class": ("100", "100–1,200"),
        "shift": ("0 %", "12 %"),
        "unreadable": ("", "1,234"),
        "copies": ("", "2"),
        "shared": ("", "3"),
        "size": ("227×200", "227×200"),
        "sides": ("", "17–4032"),
        "grey": ("", "<1 %"),
        "bytes": ("2.5 MB", "2.5 MB"),
    }


def test_what_is_not_known_is_left_out() -> None:
    quick = DomainSummary("day", 3, 2, ClassCount("cat", 1), ClassCount("dog", 2))
    assert cells(quick) == [{"domain": "day", "images": "3", "classes": "2/7", "per class": "1–2"}]
