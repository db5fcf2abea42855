"""A file `llms.txt` beside the pages: their addresses and first sentences, for language models."""

from __future__ import annotations

from pathlib import Path

from docutils import nodes
from names import first_sentence
from sphinx import addnodes
from sphinx.application import Sphinx


def _write(app: Sphinx, error: Exception | None) -> None:
    if error is not None or app.builder.name != "html":
        return
    index = app.env.get_doctree("index")
    lines = [f"# {app.config.project}", "", f"> {_start(index)}"]
    for contents in index.findall(addnodes.toctree):
        lines += ["", f"## {contents['caption'] or 'Pages'}", ""]
        for _, page in contents["entries"]:
            title, start = app.env.titles[page].astext(), _start(app.env.get_doctree(page))
            lines.append(f"- [{title}]({app.builder.get_target_uri(page)}): {start}")
    (Path(app.outdir) / "llms.txt").write_text("\n".join([*lines, ""]), encoding="utf-8")


def _start(doctree: nodes.document) -> str:
    paragraph = doctree.next_node(nodes.paragraph)
    return "" if paragraph is None else first_sentence(paragraph.astext())


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("build-finished", _write)
    return {"parallel_read_safe": True}
