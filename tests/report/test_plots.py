"""Pictures hold what the results hold."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

import oodzoo
from oodzoo.errors import InputError
from oodzoo.report.plots import save_figure
from oodzoo.testbed import Column, compare, judge, paper


def ranking(score: str = "zood") -> oodzoo.Ranking:
    rng = np.random.default_rng(0)
    y, domains = np.tile([0, 1], 60), np.repeat(["a", "b", "c"], 40)
    features = {
        name: np.stack([y, 1 - y], 1) + noise * rng.normal(size=(120, 2))
        for name, noise in (("good", 0.3), ("fair", 1.0), ("poor", 3.0))
    }
    return oodzoo.rank(features, y, domains, score=score)


def widths(ax: Axes) -> list[float]:
    return [bar.get_width() for bar in ax.patches if isinstance(bar, Rectangle)]


def abscissas(line: Line2D) -> list[float]:
    return [float(x) for x in np.asarray(line.get_xdata())]


def test_a_ranking_is_drawn_from_the_best_down() -> None:
    shown = ranking()
    figure = shown.plot()
    first, second, accuracy = figure.axes
    names = [label.get_text().split()[0] for label in first.get_yticklabels()]
    assert names == [row.model for row in shown.rows]
    assert widths(first) == [row.discriminability for row in shown.rows]
    assert widths(second) == [row.stability for row in shown.rows]
    assert first.get_ylim()[0] > first.get_ylim()[1]
    intervals = [tuple(x) for x in (abscissas(line) for line in accuracy.lines) if len(x) == 2]
    assert intervals == [row.accuracy_interval for row in shown.rows]


def test_a_peer_score_gets_a_panel_of_its_own() -> None:
    panels = [ax.get_title() for ax in ranking("logme").plot().axes]
    assert panels == ["logme", "discriminability", "stability", "expected accuracy, %"]


def test_each_score_has_a_panel_with_its_tau() -> None:
    bed = paper(resamples=20)["PACS"]
    titles = [ax.get_title() for ax in bed.plot().axes]
    assert [title.split()[0] for title in titles] == ["oodzoo", "logme", "knn", "h_score"]
    assert "0.91" in titles[0]
    ax = bed.plot().axes[0]
    drawn = sum(len(abscissas(line)) for line in ax.lines[1:])
    assert drawn == len(bed.models)


def test_several_test_beds_make_a_row_each() -> None:
    figure = compare(paper(resamples=20)).plot()
    assert len(figure.axes) == 7 * 4
    assert [ax.get_ylabel().split("\n")[0] for ax in figure.axes[::4]] == list(paper(resamples=1))


def test_a_score_of_nobody_is_drawn_as_an_empty_panel() -> None:
    accuracy = {"a": 1.0, "b": 2.0, "c": 3.0}
    columns = {"none": Column({}), "same": Column(dict.fromkeys(accuracy, 1.0))}
    bed = judge({"name": "toy"}, accuracy, columns, resamples=20)
    titles = [ax.get_title() for ax in bed.plot().axes]
    assert sorted(titles) == ["none\nno order", "same\nno order"]


@pytest.mark.parametrize(
    ("suffix", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")]
)
def test_files(tmp_path: Path, suffix: str, start: bytes) -> None:
    path = tmp_path / f"new folder/picture.{suffix}"
    save_figure(ranking().plot(), path)
    assert path.read_bytes().startswith(start)


def test_another_kind_of_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"\.png, \.svg or \.pdf"):
        save_figure(ranking().plot(), tmp_path / "picture.bmp")


def test_a_notebook_shows_a_figure_without_pyplot() -> None:
    before = "matplotlib.pyplot" in sys.modules
    figure = ranking().plot()
    assert figure._repr_png_().startswith(b"\x89PNG")  # type: ignore[attr-defined]
    assert ("matplotlib.pyplot" in sys.modules) == before
