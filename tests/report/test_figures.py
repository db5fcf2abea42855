"""Charts as SVG: what they show, their styles, files."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from tests.report.example import without

from oodzoo.core.errors import InputError
from oodzoo.report.figures import Plot, write_figures
from oodzoo.report.record import Run
from oodzoo.testbed import compare, paper

RANKING = {"ranking", "held-out-domains", "transfer-by-domain", "accuracy-by-domain"}
MISTAKES = {"classes", "reliability", "confusion", *(f"confusion-{at}" for at in range(1, 5))}
EVALUATION = {"learning-curve", "accuracy", "accuracy-over-k"} | MISTAKES
SELECTION = {"features-kept", "inclusion-probabilities"}
ALL = RANKING | EVALUATION | SELECTION | {"scores"}
SVG = "{http://www.w3.org/2000/svg}"


def texts(plot: Plot) -> list[str]:
    return [each.text or "" for each in ElementTree.fromstring(plot.svg).iter(f"{SVG}text")]


@pytest.mark.parametrize(
    ("part", "gone"),
    [
        ("command", set()),
        ("ranking", RANKING),
        ("evaluation", EVALUATION),
        ("selection", SELECTION),
        ("testbed", {"scores"}),
    ],
)
def test_each_chart_of_the_page_is_a_file(
    run: Run, tmp_path: Path, part: str, gone: set[str]
) -> None:
    shown = run if part == "command" else without(run, part)
    written = write_figures(shown, tmp_path / "new")
    assert {path.name for path in written} == {f"{name}.svg" for name in ALL - gone}
    for path in written:
        root = ElementTree.parse(path).getroot()
        assert root.tag == f"{SVG}svg"
        assert root.get("aria-label") == root.findtext(f"{SVG}title")
        for each in root.iter():  # nothing that needs a style sheet, a script or another file
            assert not {"class", "data-tip", "href"} & {*each.keys()}
            assert "var(" not in each.get("style", "")


def test_each_score_has_a_panel_with_its_tau() -> None:
    beds = paper(resamples=20)
    panels = [text for text in texts(beds["PACS"].plot()) if text in beds["PACS"].scores]
    assert panels == beds["PACS"].order
    assert "τ 0.91" in " ".join(texts(beds["PACS"].plot()))
    assert len(re.findall("<circle", beds["PACS"].plot().svg)) == 4 * len(beds["PACS"].models)
    several = texts(compare(beds).plot())
    assert [text for text in several if text in beds] == list(beds)
    assert sum(text in beds["PACS"].scores for text in several) == 4 * len(beds)


def test_a_file_is_what_a_notebook_shows(run: Run, tmp_path: Path) -> None:
    assert run.ranking is not None
    plot = run.ranking.plot()
    for name in ("figure.png", "figure", "figure.svg.gz"):
        with pytest.raises(InputError):
            plot.save(tmp_path / name)
    assert not list(tmp_path.iterdir())
    plot.save(tmp_path / "new folder/figure.SVG")
    assert (tmp_path / "new folder/figure.SVG").read_text() == plot._repr_svg_() == plot.svg
    assert repr(plot) == "Plot(title='Score breakdown')"
