"""Reports of a run or a test: one self-contained HTML page, and its charts as SVG."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from oodzoo.core.io import write_tidily
from oodzoo.data.files import StoredFile
from oodzoo.report.assessment_page import write_test_report
from oodzoo.report.combination import combination_section
from oodzoo.report.data import data_section, leaks_section, provenance_section, race_section
from oodzoo.report.diagnosis import diagnosis_section
from oodzoo.report.page import Section, render
from oodzoo.report.ranking_section import domains_section, layers_section, networks, ranking_section
from oodzoo.report.recommendation import advice_section, headline
from oodzoo.report.record import Run, image_files, read_run
from oodzoo.report.scores import scores_section, selection_section

__all__ = ["page", "write_report", "write_test_report"]


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
