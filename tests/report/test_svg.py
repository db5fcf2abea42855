"""The SVG writer."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from oodzoo.report.svg import Drawing


def test_a_drawing_is_labelled_xml() -> None:
    drawing = Drawing(10, 20, "Title <1>", 'a "b" & c')
    with drawing.group("row"):
        drawing.rect(1, 2, -3, 4.04, "bar", data_tip="<tip>")
    drawing.circle(1, 2, 3, "dot")
    root = ET.fromstring(drawing.render())
    assert root.attrib["aria-label"] == root.findtext("title") == 'Title <1>. a "b" & c'
    rect = root.find("g/rect")
    assert rect is not None
    assert rect.attrib == {
        "x": "1", "y": "2", "width": "0", "height": "4", "class": "bar", "data-tip": "<tip>"
    }  # fmt: skip


def test_long_names_are_shortened_and_shown_as_a_tip() -> None:
    drawing = Drawing(10, 10, "", "")
    drawing.name(0, 0, "short", 100)
    drawing.name(0, 0, "a_very_long_name_indeed", 60, end="middle")
    short, long = ET.fromstring(drawing.render()).findall("text")
    assert (short.text, short.get("data-tip")) == ("short", None)
    assert "…" in str(long.text)
    assert long.get("data-tip") == "a_very_long_name_indeed"
    assert long.get("text-anchor") == "middle"
