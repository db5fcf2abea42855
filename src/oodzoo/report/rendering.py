"""The page as HTML: a headline and sections, in one self-contained file."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from importlib.resources import files

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape

from oodzoo.report.blocks import Headline, Section

_END = "\N{MINUS SIGN}?[0-9][0-9.,]*"
_RANGE = f"{_END}(?:\N{EN DASH}| to ){_END}(?:\N{NO-BREAK SPACE}%)?"
_OPTION = "(?<!\\S)\\(?--[a-z][a-z-]*"
_TOGETHER = re.compile(f"{_RANGE}|{_OPTION}")


def render(headline: Headline, sections: Sequence[Section], version: str | None = None) -> str:
    """A self-contained HTML page.

    Parameters
    ----------
    headline : Headline
        The first screen.
    sections : sequence of Section
        What follows, in this order.
    version : str, optional
        Version of oodzoo that computed the results.
    """
    script, style = resource("page.js"), resource("page.css") + resource("chart.css")
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"breakable": _breakable, "unbroken": _unbroken}
    template = environment.from_string(resource("page.html.j2"))
    text = template.render(
        headline=headline,
        sections=sections,
        version=version,
        script=Markup(script),
        style=Markup(style),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )
    return f"{text.strip()}\n"


def _breakable(name: str) -> Markup:
    """Allow line breaks between the words of a name."""
    return Markup(re.sub(r"([_./-]+)(?=\w)", r"\1<wbr>", str(escape(name))))


def _unbroken(text: str) -> Markup:
    """Prevent line breaks within ranges and options, and between a number and its percent sign."""
    joined = str(escape(text)).replace(" %", "\N{NO-BREAK SPACE}%")
    return Markup(_TOGETHER.sub(r'<span class="together">\g<0></span>', joined))


def resource(name: str) -> str:
    """A file of the page: template, script or style."""
    return files("oodzoo.report").joinpath(name).read_text(encoding="utf-8")
