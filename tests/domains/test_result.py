"""Tables and documents of proposals."""

from __future__ import annotations

from dataclasses import replace

from oodzoo.data.proposals import Candidate
from oodzoo.domains.result import CAUTION, DomainProposals, Sensitivity

CAMERA = Candidate("camera", (), 2, {"canon": 30, "sony": 1200}, 1.0, 0.5, separability=0.8)
SERIAL = Candidate("serial", values=9, reason="another value for each image")
SENSITIVITY = Sensitivity(
    "camera",
    "unseen",
    {"clusters:2": 0.5, "random:2": None},
    {"camera": "x", "clusters:2": "x", "random:2": "y"},
    {"x": (1, 1), "y": (2, 3)},
    "random:2",
    {},
)
FOUND = DomainProposals((CAMERA, SERIAL), "camera", {2: 0.9}, ("A note.",), SENSITIVITY)


def test_tables() -> None:
    header, rows = FOUND.table()
    assert header == ["proposal", "domains", "smallest", "classes", "evenness", "separable", ""]
    assert rows == [["camera", "2", "30", "100 %", "0.50", "0.80", "recommended"]]
    assert FOUND.sensitivity_table()[1] == [
        ["camera", "chosen", "x"],
        ["clusters:2", "0.50", "x"],
        ["random:2", "-", "y"],
    ]
    assert FOUND.rank_table()[1] == [["x", "2", "1"], ["y", "0", "2-3"]]


def test_lines_and_text() -> None:
    lines = FOUND.lines()
    assert lines == [
        "serial cannot be used: another value for each image.",
        "A note.",
        "The first model, x, is the same under all 2 proposals.",
        CAUTION,
    ]
    text = str(FOUND)
    assert all(line in text for line in lines)
    assert "weighted tau" in text
    assert "weighted tau" not in str(DomainProposals((CAMERA,), "camera", {}))


def test_notebooks_show_the_tables_and_the_lines() -> None:
    assert repr(FOUND) == "DomainProposals(2 proposals, recommended 'camera')"
    assert repr(DomainProposals((), None, {})) == "DomainProposals(0 proposals, none can be used)"
    html = replace(FOUND, notes=("<b>",))._repr_html_()
    assert html.count("<table") == 3
    assert html.count("<p>") == len(FOUND.lines())
    assert "<b>" not in html


def test_document() -> None:
    document = FOUND.to_dict()
    assert document["recommended"] == "camera"
    assert [each["usable"] for each in document["proposals"]] == [True, False]
    assert document["stability"] == {"2": 0.9}
    assert document["sensitivity"]["firsts"] == {"x": 2}
    assert document["sensitivity"]["ranks"] == {"x": [1, 1], "y": [2, 3]}


def test_a_proposal_is_found_by_its_name() -> None:
    assert FOUND.find("serial") is SERIAL
    assert FOUND.find("site") is None
