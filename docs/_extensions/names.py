"""The directive ``names``: a table of what a page documents, with the first sentence of each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class NamesNode(nodes.General, nodes.Element):  # type: ignore[misc]
    """The place of a table, until all objects of its page are known."""


class Names(SphinxDirective):
    """Put a table of names here."""

    def run(self) -> list[nodes.Node]:
        return [NamesNode()]


def first_sentence(text: str) -> str:
    """The first sentence of a text, without line breaks."""
    joined = " ".join(text.split())
    return re.split(r"(?<=[.:])\s(?=[A-Z`(])", joined, maxsplit=1)[0].rstrip(":")


def _objects(doctree: nodes.document) -> Iterator[tuple[str, str, str]]:
    """Identifier, name and first sentence of each object that is not part of another one."""
    for described in doctree.findall(addnodes.desc):
        signature = described.next_node(addnodes.desc_signature)
        inside = isinstance(described.parent, addnodes.desc_content)
        if inside or signature is None or not signature["ids"]:
            continue
        content = described.next_node(addnodes.desc_content)
        paragraph = None if content is None else content.next_node(nodes.paragraph)
        text = "" if paragraph is None else first_sentence(paragraph.astext())
        yield signature["ids"][0], signature["ids"][0], text


def _table(rows: list[tuple[str, str, str]]) -> nodes.table:
    body = nodes.tbody()
    for identifier, name, text in rows:
        link = nodes.reference("", "", nodes.literal(text=name), refid=identifier, internal=True)
        cells = [nodes.paragraph("", "", link), nodes.paragraph(text=text)]
        body += nodes.row("", *(nodes.entry("", cell) for cell in cells))
    head = [nodes.entry("", nodes.paragraph(text=title)) for title in ("name", "what it is")]
    group = nodes.tgroup("", *(nodes.colspec(colwidth=width) for width in (40, 60)), cols=2)
    group += [nodes.thead("", nodes.row("", *head)), body]
    return nodes.table("", group, classes=["names"])


def _fill(app: Sphinx, doctree: nodes.document) -> None:
    for place in list(doctree.findall(NamesNode)):
        rows = list(_objects(doctree))
        place.replace_self(_table(rows) if rows else [])


def _break_names(app: Sphinx, page: str, template: str, context: dict[str, Any], _: Any) -> None:
    """Let the names in these tables break after a dot or an underscore."""
    if body := context.get("body"):
        context["body"] = re.sub(
            r'<table class="names.*?</table>',
            lambda table: re.sub(
                r'(?<=<span class="pre">)[^<]+',
                lambda name: re.sub(r"(?<=[._])(?=\w)", "<wbr>", name.group()),
                table.group(),
            ),
            body,
            flags=re.DOTALL,
        )


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_node(NamesNode)
    app.add_directive("names", Names)
    app.connect("doctree-read", _fill)
    app.connect("html-page-context", _break_names)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
