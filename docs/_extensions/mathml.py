"""Formulas as MathML, converted when the documentation is built.

Browsers show MathML themselves, so the pages load no script for it and work without a network.
"""

from __future__ import annotations

from html import unescape
from typing import Any
from xml.etree import ElementTree

from docutils import nodes
from latex2mathml.converter import convert_to_element
from sphinx.application import Sphinx
from sphinx.util.math import get_node_equation_number
from sphinx.writers.html5 import HTML5Translator

NAMESPACE = "http://www.w3.org/1998/Math/MathML"
THIN_SPACE = {"width": "0.1667em"}
FENCES = {r"\{": "{", r"\}": "}", r"\|": "‖"}  # after `\Bigl`, which leaves them as they are
SCRIPTS = {"msub", "msup", "msubsup", "munder", "mover", "munderover"}


def _names_function(element: ElementTree.Element) -> bool:
    """Whether it is `log`, `softmax` or the like, also with an index or an exponent."""
    base = element[0] if element.tag in SCRIPTS else element
    text = base.text or ""
    return base.tag in ("mi", "mo") and len(text) > 1 and text.isalpha() and text.isascii()


def _space_functions(row: ElementTree.Element) -> None:
    """A thin space between the name of a function and its neighbours, as in LaTeX: `log p`."""
    spaced: list[ElementTree.Element] = []
    for child in row:
        if spaced:
            before = spaced[-1]
            after_name = _names_function(before) and child.tag != "mo"
            if after_name or (_names_function(child) and before.tag not in ("mo", "mspace")):
                spaced.append(ElementTree.Element("mspace", THIN_SPACE))
        spaced.append(child)
    row[:] = spaced


def mathml(latex: str, display: str = "inline") -> str:
    """The MathML of a formula, with its LaTeX source as an annotation."""
    # Sphinx allows rows of a formula without an environment around them.
    rows = r"\\" in latex and r"\begin" not in latex
    given = rf"\begin{{align*}}{latex}\end{{align*}}" if rows else latex
    root = convert_to_element(given, xmlns=NAMESPACE, display=display)
    for element in root.iter():
        text = unescape(element.text or "")
        element.text = FENCES.get(text, text)
    for element in root.iter("mo"):
        if _names_function(element):
            element.tag = "mi"
    for element in list(root.iter()):
        if element.tag in ("mrow", "mtd"):
            _space_functions(element)
    semantics = ElementTree.Element("semantics")
    semantics.extend(root)
    source = ElementTree.SubElement(semantics, "annotation", encoding="application/x-tex")
    source.text = latex
    root[:] = [semantics]
    return ElementTree.tostring(root, encoding="unicode")


def _inline(self: HTML5Translator, node: nodes.math) -> None:
    self.body.append(mathml(node.astext()))
    raise nodes.SkipNode


def _block(self: HTML5Translator, node: nodes.math_block) -> None:
    # A wide formula scrolls by itself, also by keyboard; the page does not.
    attributes = {"tabindex": "0", "role": "group", "aria-label": "formula"}
    self.body.append(self.starttag(node, "div", CLASS="math", **attributes))
    if node["number"]:
        number = get_node_equation_number(self, node)
        self.body.append(f'<span class="eqno">({number})</span>')
    self.body.append(mathml(node.astext().strip(), "block"))
    self.body.append("</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
