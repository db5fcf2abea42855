"""The page: one HTML file that needs nothing beside itself."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape

from oodzoo._io import write_bytes
from oodzoo.errors import InputError
from oodzoo.record import NAME
from oodzoo.report.blocks import Section
from oodzoo.report.document import Run, read_run, require_run
from oodzoo.report.finding import finding
from oodzoo.report.sections.combination import combination_section
from oodzoo.report.sections.data import data_section
from oodzoo.report.sections.domains import domains_section
from oodzoo.report.sections.features import features_section
from oodzoo.report.sections.made import made_section
from oodzoo.report.sections.ranking import ranking_section
from oodzoo.report.sections.testbed import testbed_section

Result = TypeVar("Result")

END = "\N{MINUS SIGN}?[0-9][0-9.,]*"
RANGE = re.compile(f"{END}(?:\N{EN DASH}| to ){END}(?:\N{NO-BREAK SPACE}%)?")

SECTIONS: tuple[tuple[str, Callable[[dict[str, Any]], Section | None]], ...] = (
    ("ranking", ranking_section),
    ("evaluation", combination_section),
    ("selection", features_section),
    ("ranking", domains_section),
    ("testbed", testbed_section),
    ("data", data_section),
)
"""Which part of the document each section tells of, in the order of the page."""


def page(run: Run) -> str:
    """The report of a run as one self-contained HTML page.

    Parameters
    ----------
    run : dict
        The document that `oodzoo run` writes as `run.json`. Parts that it lacks are left out of the
        page.

    Examples
    --------
    >>> text = page({"schema": 1, "command": "oodzoo run photos --zoo demo --out job", "seed": 0})
    >>> text.startswith("<!doctype html>"), "oodzoo run photos" in text
    (True, True)
    """
    require_run(run, NAME)
    sections = [
        section
        for part, build in SECTIONS
        if _filled(run, part) and (section := _built(part, build, run[part])) is not None
    ]
    if (made := _built("stages", made_section, run)) is not None:
        sections.append(made)
    script, style = _resource("page.js"), _resource("page.css")
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"breakable": _breakable, "unbroken": _unbroken}
    template = environment.from_string(_resource("page.html.j2"))
    text = template.render(
        finding=_built("ranking", finding, run),
        sections=sections,
        version=(run.get("versions") or {}).get("oodzoo"),
        script=Markup(script),
        style=Markup(style),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )
    return f"{text.strip()}\n"


def write_report(folder: str | Path, out: str | Path | None = None) -> Path:
    """Write the page of a run beside its record, and say where.

    Parameters
    ----------
    folder : path
        Where `run.json` lies.
    out : path, optional
        The file to write; `report.html` in the folder by default.
    """
    folder = Path(folder)
    target = Path(out) if out is not None else folder / "report.html"
    # half of a pair of surrogates, as in names that are no UTF-8, cannot be written
    write_bytes(target, page(read_run(folder)).encode("utf-8", "replace"))
    return target


def _filled(run: Run, part: str) -> bool:
    content = run.get(part)
    return bool(content and (part != "ranking" or content.get("ranking")))


def _built(part: str, build: Callable[[dict[str, Any]], Result], content: Run) -> Result:
    """Build a part of the page, or say which part of the record is not as oodzoo writes it."""
    try:
        return build(content)
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        what = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise InputError(
            f"the part {part!r} of {NAME} is not as oodzoo writes it: {what}; run it again"
        ) from error


def _breakable(name: str) -> Markup:
    """A name that may be broken where its words end."""
    return Markup(re.sub(r"([_./-]+)(?=\w)", r"\1<wbr>", str(escape(name))))


def _unbroken(text: str) -> Markup:
    """A text whose numbers stay with their unit, and both ends of a range together."""
    joined = str(escape(text)).replace(" %", "\N{NO-BREAK SPACE}%")
    return Markup(RANGE.sub(r'<span class="together">\g<0></span>', joined))


def _resource(name: str) -> str:
    return files("oodzoo.report").joinpath(name).read_text(encoding="utf-8")
