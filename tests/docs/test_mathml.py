"""Formulas of the documentation, as MathML."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.docs.pages import DOCS, ROOT

pytest.importorskip("latex2mathml")
pytest.importorskip("docutils")
pytest.importorskip("sphinx")

_file = DOCS / "_extensions" / "mathml.py"
_spec = importlib.util.spec_from_file_location("mathml", _file)
assert _spec is not None
assert _spec.loader is not None
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)
mathml = _module.mathml
NAMESPACE = "{" + _module.NAMESPACE + "}"
LEAVES = {NAMESPACE + tag for tag in ("mi", "mn", "mo", "mtext")}


def leaves(latex: str) -> list[str]:
    """What a reader sees, without the source; a space is written as one."""
    root = ElementTree.fromstring(mathml(latex))
    return [
        " " if element.tag == NAMESPACE + "mspace" else element.text or ""
        for element in root.iter()
        if element.tag in {*LEAVES, NAMESPACE + "mspace"}
    ]


def formulas() -> list[str]:
    """The formulas of all pages and docstrings."""
    found: list[str] = []
    for page in [path for path in DOCS.rglob("*.md") if "_build" not in path.parts]:
        text = re.sub(r"```.*?```|`[^`]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        found += re.findall(r"\$\$(.+?)\$\$", text, re.DOTALL)
        text = re.sub(r"\$\$.+?\$\$", "", text, flags=re.DOTALL)
        found += re.findall(r"(?<![\\$\w])\$([^\s$](?:[^$]*?[^\s$])?)\$", text)
    for module in Path(ROOT / "src").rglob("*.py"):
        text = module.read_text(encoding="utf-8").replace("\\\\", "\\")
        found += re.findall(r":math:`(.+?)`", text, re.DOTALL)
        found += re.findall(r"\.\. math:: (.+?)\n *\n", text, re.DOTALL)
    return found


def test_names_of_functions_are_upright_and_apart() -> None:
    assert leaves(r"\log p(x)") == ["log", " ", "p", "(", "x", ")"]
    assert leaves(r"\operatorname{softmax}(x)") == ["softmax", "(", "x", ")"]
    assert leaves(r"2 \operatorname{tr} A") == ["2", " ", "tr", " ", "A"]
    assert leaves(r"\max_c a") == ["max", "c", " ", "a"]
    assert "<mo>softmax" not in mathml(r"\operatorname{softmax}(x)")
    assert leaves(r"\Bigl\{a\Bigr\}") == ["{", "a", "}"]
    assert leaves(r"\bigl\|a\bigr\|") == ["‖", "a", "‖"]


def test_rows_without_an_environment() -> None:
    root = ElementTree.fromstring(mathml("a &= b \\\\ c &= d", "block"))
    assert len(list(root.iter(NAMESPACE + "mtr"))) == 2
    assert "&amp;" not in re.sub("<annotation.*", "", mathml("a &= b \\\\ c &= d"))
    root = ElementTree.fromstring(mathml(r"a < b"))  # the source is kept
    (source,) = root.iter(NAMESPACE + "annotation")
    assert source.text == "a < b"


def test_all_formulas_are_converted() -> None:
    found = formulas()
    assert len(found) > 200
    broken = {formula for formula in found if re.search(r"[\\&$_]", "".join(leaves(formula)))}
    assert not broken
