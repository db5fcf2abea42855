"""What the theme leaves out: for readers without a mouse or a screen, and on narrow ones."""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

OPTION = re.compile(r'<span class="pre">(?=-{1,2}[a-zA-Z][^<]{,24}</span>)')


def _complete(app: Sphinx, page: str, template: str, context: dict[str, Any], _: Any) -> None:
    # Code and tables that are wider than the page scroll; the keyboard must be able to reach them.
    if body := context.get("body"):
        body = body.replace("<pre>", '<pre tabindex="0">')
        for wide in ('class="table-wrapper', 'class="output text_html"'):
            body = body.replace(wide, f'tabindex="0" {wide}')
        context["body"] = OPTION.sub('<span class="pre option">', body)
    # A heading without a level.
    if tree := context.get("furo_navigation_tree"):
        context["furo_navigation_tree"] = tree.replace(
            'class="caption" role="heading"', 'class="caption" role="heading" aria-level="2"'
        )


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("html-page-context", _complete, priority=900)  # after the theme
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
