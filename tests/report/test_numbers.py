"""Names as text."""

from __future__ import annotations

import pytest

from oodzoo.report.numbers import listed, shortened, text_width


@pytest.mark.parametrize("text", ["x" * 100, "网络" * 20, "ab", "a", ""])
@pytest.mark.parametrize("room", [5, 40, 200])
def test_shortened_names_fit(text: str, room: float) -> None:
    short = shortened(text, room)
    assert len(short) <= max(len(text), 3)
    if room >= 40:
        assert text_width(short.replace("…", ""), 12) + 12 * ("…" in short) <= room


def test_lists_of_names() -> None:
    assert listed([]) == ""
    assert listed(["a", "b", "c"]) == "a, b and c"
    assert listed(["a", "b", "c"], 2) == "a, b and 1 more"
