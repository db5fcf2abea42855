"""Charts as SVG: what they show, their styles, files."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from tests.report.example import example_run, without

from oodzoo.core.errors import InputError
from oodzoo.report.figures import Plot, write_figures
from oodzoo.report.record import Run
from oodzoo.tasks import Kind
from oodzoo.testbed import Column, compare, judge, paper

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


@pytest.mark.parametrize(
    ("task", "metric"),
    [("regression", "explained variance"), ("multilabel", "average precision")],
)
def test_charts_have_the_metric_of_the_task(tmp_path: Path, task: Kind, metric: str) -> None:
    written = write_figures(example_run(task=task), tmp_path)
    name = metric.replace(" ", "-")
    assert {name, f"{name}-by-domain", f"{name}-over-k"} <= {path.stem for path in written}
    for path in written:
        assert "accuracy" not in path.read_text().lower()


def test_a_ranking_is_drawn_from_the_best_down() -> None:
    ranking = example_run(40).ranking
    assert ranking is not None
    drawn = [text for text in texts(ranking.plot()) if text.startswith("model_0")]
    assert drawn == [row.model for row in ranking.rows[:30]]
    assert len(re.findall(r"<rect [^>]*fill:#0072b2", ranking.plot().svg)) == 30  # evidence


def test_methods_are_drawn_on_average_and_by_domain(run: Run) -> None:
    assert run.evaluation is not None
    main = ["Recommended", "Single", "Pool", "Ensemble", "Selection"]
    drawn = texts(run.evaluation.plot())
    assert [text for text in drawn if text in main][:5] == main
    assert drawn.count("Pool (chosen)") == 3
    assert drawn.count("Single") == 1 + 4
    assert f"{run.evaluation.pool.average:.1f}" in drawn
    assert "Oracle" not in drawn
    assert "Oracle" in texts(run.evaluation.plot(baselines=True))


def test_each_score_has_a_panel_with_its_tau() -> None:
    beds = paper(resamples=20)
    panels = [text for text in texts(beds["PACS"].plot()) if text in beds["PACS"].scores]
    assert panels == beds["PACS"].order
    assert "τ 0.91" in " ".join(texts(beds["PACS"].plot()))
    assert len(re.findall("<circle", beds["PACS"].plot().svg)) == 4 * len(beds["PACS"].models)
    several = texts(compare(beds).plot())
    assert [text for text in several if text in beds] == list(beds)
    assert sum(text in beds["PACS"].scores for text in several) == 4 * len(beds)


def test_a_score_without_values_is_an_empty_panel() -> None:
    accuracy = {"a": 1.0, "b": 2.0, "c": 3.0}
    columns = {"none": Column({}), "same": Column(dict.fromkeys(accuracy, 1.0))}
    drawn = texts(judge({"name": "toy"}, accuracy, columns, resamples=20).plot())
    assert drawn.count("τ is undefined") == 2


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


def test_any_name_can_be_drawn(tmp_path: Path) -> None:
    odd = ["$x_", "网络", 'a & <b> "', "%d{}", "\x01\ud800"]
    written = write_figures(example_run(models=odd, domains=["$", "b"], classes=odd), tmp_path)
    for path in written:
        ElementTree.parse(path)
    shown = {each.text for each in ElementTree.parse(written[-1]).iter(f"{SVG}text")}
    ranked = {each.text for each in ElementTree.parse(tmp_path / "ranking.svg").iter(f"{SVG}text")}
    assert set(odd[:4]) <= ranked
    assert shown
