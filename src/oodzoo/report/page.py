"""The page of a run, and how pages are rendered: one self-contained file."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape

from oodzoo.core.io import write_tidily
from oodzoo.data.files import StoredFile
from oodzoo.report.blocks import Headline, Section
from oodzoo.report.combination import combination_section
from oodzoo.report.data import data_section, leaks_section, provenance_section, race_section
from oodzoo.report.diagnosis import diagnosis_section
from oodzoo.report.headline import headline
from oodzoo.report.ranking_section import domains_section, layers_section, networks, ranking_section
from oodzoo.report.recommendation import advice_section
from oodzoo.report.record import Run, image_files, read_run
from oodzoo.report.scores import scores_section, selection_section


def page(run: Run, files: Mapping[str, StoredFile] | None = None) -> str:
    """The report of a run as one self-contained HTML page.

    Parameters
    ----------
    run : Run
        Sections of parts that are None are left out.
    files : dict of str to StoredFile, optional
        Where images are, by their paths, for thumbnails; the page does not contain it.

    Examples
    --------
    >>> from oodzoo.report.record import Run
    >>> text = page(Run(command="oodzoo run photos --zoo demo --out job"))
    >>> text.startswith("<!doctype html>"), "oodzoo run photos" in text
    (True, True)
    """
    return render(headline(run), sections_of(run, files or {}), run.versions.get("oodzoo"))


def write_report(
    folder: str | Path, out: str | Path | None = None, *, run: Run | None = None
) -> Path:
    """Write the report of a run.

    Parameters
    ----------
    folder : path
        The folder of the run, with its `run.json`.
    out : path, optional
        The file to write; `report.html` in the folder by default.
    run : Run, optional
        The run, if it has been read already.

    Returns
    -------
    Path
        The file.
    """
    folder = Path(folder)
    target = Path(out) if out is not None else folder / "report.html"
    # unpaired surrogates, as in file names that are not UTF-8, cannot be encoded
    content = page(run or read_run(folder), image_files(folder)).encode("utf-8", "replace")
    write_tidily(target, content)
    return target


def sections_of(run: Run, images: Mapping[str, StoredFile]) -> list[Section]:
    """What there is to show, in the order of use: what to do about it, then why, then details."""
    sections = []
    if run.evaluation and (advice := advice_section(run.evaluation)):
        sections.append(advice)
    if run.evaluation and run.evaluation.diagnosis:
        sections.append(diagnosis_section(run.evaluation, images))
    if run.ranking:
        sections.append(ranking_section(run.ranking))
        sections += [layers_section(run.ranking)] if networks(run.ranking) else []
    if run.evaluation:
        sections.append(combination_section(run.evaluation))
    if run.ranking:
        sections.append(domains_section(run.ranking))
    if run.selection:
        sections.append(selection_section(run.selection))
    if run.testbed and run.testbed.scores:
        sections.append(scores_section(run.testbed))
    if run.extraction and run.extraction.dropped:
        sections.append(race_section(run.extraction.dropped))
    if run.leaks and run.leaks.problems:
        sections.append(leaks_section(run.leaks, images))
    if run.data:
        sections.append(data_section(run.data, images))
    sections.append(provenance_section(run))
    return sections


# --- the page as HTML -----------------------------------------------------------------------------

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
