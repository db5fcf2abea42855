"""Figures show what the results hold, in every file format."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from PIL import Image
from tests.report.example import DOMAINS, consistent_selection, example_run, without

import oodzoo
from oodzoo.errors import InputError
from oodzoo.record import Run
from oodzoo.report.figures import (
    figures_of,
    plot_comparison,
    plot_curves,
    plot_domains,
    plot_inclusion,
    plot_term,
    save_figure,
    write_figures,
)
from oodzoo.task import Kind
from oodzoo.testbed import Column, compare, judge, paper

ALL = {
    "ranking", "transfer-by-domain", "accuracy-by-domain", "held-out-domains", "accuracy",
    "accuracy-over-k", "inclusion-probabilities", "scores",
}  # fmt: skip
START = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}


def ranking(score: str = "unseen", *, target: bool = False) -> oodzoo.Ranking:
    rng = np.random.default_rng(0)
    y, domains = np.tile([0, 1], 60), np.repeat(["a", "b", "c"], 40)
    features = {
        name: np.stack([y, 1 - y], 1) + noise * rng.normal(size=(120, 2))
        for name, noise in (("good", 0.3), ("fair", 1.0), ("poor", 3.0))
    }
    images = {name: array[:40] + 0.1 for name, array in features.items()}
    return oodzoo.rank(features, y, domains, score=score, target=images if target else None)


def widths(ax: Axes) -> list[float]:
    return [bar.get_width() for bar in ax.patches if isinstance(bar, Rectangle)]


def abscissas(line: Line2D) -> list[float]:
    return [float(x) for x in np.asarray(line.get_xdata())]


def row_names(ax: Axes) -> list[str]:
    return [label.get_text() for label in ax.get_yticklabels()]


# --- rankings ------------------------------------------------------------------------------------


def test_a_ranking_is_drawn_from_the_best_down() -> None:
    shown = ranking()
    figure = shown.plot()
    first, second, accuracy = figure.axes
    assert [name.split()[0] for name in row_names(first)] == [row.model for row in shown.rows]
    assert widths(first) == [row.evidence for row in shown.rows]
    assert widths(second) == [row.transfer for row in shown.rows]
    ticks = [abscissas(line) for line in second.lines[:3]]
    assert ticks == [[fold.transfer for fold in row.folds] for row in shown.rows]
    assert first.get_ylim()[0] > first.get_ylim()[1]
    intervals = [tuple(x) for x in (abscissas(line) for line in accuracy.lines) if len(x) == 2]
    assert intervals == [row.accuracy_interval for row in shown.rows]


def panels(shown: oodzoo.Ranking) -> list[str]:
    *terms, last = [ax.get_title() for ax in shown.plot().axes]
    assert last == "expected accuracy, %"
    return terms


@pytest.mark.parametrize(
    ("task", "metric", "lowest"),
    [("regression", "explained variance", -100), ("multilabel", "average precision", 0)],
)
def test_figures_have_the_metric_of_the_task(task: Kind, metric: str, lowest: float) -> None:
    run = example_run(task=task)
    assert run.ranking is not None
    name = metric.replace(" ", "-")
    assert {name, f"{name}-by-domain", f"{name}-over-k"} <= set(figures_of(run))
    figure = run.ranking.plot()
    last = figure.axes[-1]
    assert last.get_title() == f"expected {metric}, %"
    assert last.get_xlim()[0] >= lowest
    assert f"{metric} expected on an unseen domain" in figure.get_supxlabel()
    dots = [abscissas(line)[0] for line in last.lines if line.get_marker() == "o"]
    assert dots == [max(row.expected_accuracy, lowest) for row in run.ranking.rows]
    for draw in figures_of(run).values():
        titles = " ".join(ax.get_title() for ax in draw().axes).lower()
        assert "accuracy" not in titles


def test_panels_are_the_terms_of_the_score() -> None:
    assert panels(ranking()) == ["evidence", "transfer, %"]
    assert panels(ranking(target=True)) == ["evidence", "transfer, %", "agreement, %"]
    assert panels(ranking("zood")) == ["discriminability", "stability"]
    assert panels(ranking("knn")) == ["knn", "evidence", "transfer, %"]


def caption(shown: oodzoo.Ranking) -> str:
    return str(shown.plot().get_supxlabel())


def test_the_caption_says_what_the_dots_are() -> None:
    shown = caption(ranking())
    assert "accuracy expected on an unseen domain, with the 90 % interval for a new domain" in shown
    assert "the choice is repeated" in shown
    assert "the choice is repeated" not in caption(ranking("knn"))
    assert "accuracy expected on the target" in caption(ranking(target=True))


def test_a_heat_map_leaves_out_what_is_not_known() -> None:
    shown = ranking()
    first, *others = shown.rows
    folds = (replace(first.folds[0], transfer=None), *first.folds[1:])
    less = replace(shown, rows=(replace(first, folds=folds), *others))
    assert less.plot()._repr_png_()  # type: ignore[attr-defined]
    (image,) = plot_term(less, "transfer").axes[0].images
    assert np.isnan(np.asarray(image.get_array(), np.float64)).sum() == 1


def test_a_heat_map_shows_the_folds(run: Run) -> None:
    assert run.ranking is not None
    ax = plot_term(run.ranking, "stability").axes[0]
    shown = np.asarray(ax.images[0].get_array())
    assert shown.shape == (27, 4)
    assert shown[3, 1] == run.ranking.rows[3].folds[1].stability
    assert [label.get_text() for label in ax.get_xticklabels()] == list(DOMAINS)


def test_held_out_domains_start_with_the_hardest(run: Run) -> None:
    assert run.ranking is not None
    (ax,) = plot_domains(run.ranking).axes
    means = [abscissas(line)[0] for line in ax.lines[1::3]]
    assert means == sorted(means)
    assert len(abscissas(ax.lines[0])) == 27


# --- evaluation and selection --------------------------------------------------------------------


def test_methods_are_drawn_on_average_and_by_domain(run: Run) -> None:
    assert run.evaluation is not None
    (ax,) = plot_comparison(run.evaluation).axes
    names = row_names(ax)
    assert names[:4] == ["Average", "Recommended", "Single", "Pool"]
    assert len(names) == 1 + 9 + 4 * (1 + 4)
    assert names.count("Pool (chosen)") == 3
    recommended, single, pool = ax.lines[:3]
    assert abscissas(recommended) == [run.evaluation.recommended.average]
    assert abscissas(single) == [run.evaluation.single.average]
    assert abscissas(pool) == [run.evaluation.pool.average]
    assert pool.get_marker() == "^"
    assert ax.get_xlabel() == "accuracy %"
    assert any(line.get_visible() for line in ax.get_xgridlines())
    (main,) = run.evaluation.plot().axes
    assert row_names(main)[:6] == [*names[:4], "Ensemble", "Selection"]
    assert len(row_names(main)) == 6 + 4 * (1 + 4)
    assert row_names(run.evaluation.plot(baselines=True).axes[0]) == names


def test_methods_with_images_of_the_target_are_drawn() -> None:
    evaluation = example_run(5, target=True).evaluation
    assert evaluation is not None
    (ax,) = plot_comparison(evaluation).axes
    assert row_names(ax).count("Pool with target") == 5
    drawn = {(line.get_marker(), line.get_color()) for line in ax.lines}
    assert len([marker for marker, _ in drawn if marker in ("*", "o", "^", "v", "s", "D")]) == 6


def test_accuracy_over_the_number_of_models(run: Run) -> None:
    assert run.evaluation is not None
    (ax,) = plot_curves(run.evaluation).axes
    ensemble, _ = ax.lines
    assert abscissas(ensemble) == [1, 2, 3, 5]
    expected = [each.ensemble.average for each in run.evaluation.ablation.values()]
    assert list(np.asarray(ensemble.get_ydata())) == expected


def test_inclusion_probabilities(run: Run) -> None:
    assert run.selection is not None
    axes = plot_inclusion(run.selection).axes
    assert [ax.get_title() for ax in axes] == list(run.selection.models)
    heights = [bar.get_height() for bar in axes[0].patches if isinstance(bar, Rectangle)]
    assert heights == list(run.selection.per_model[0].histogram)
    assert axes[0].get_xlabel() == "inclusion probability"


def test_ranks_of_consistent_features(run: Run) -> None:
    summary = consistent_selection(["one", "two"], ["cat"])
    assert "feature-ranks" in figures_of(replace(run, selection=summary))
    axes = plot_inclusion(summary).axes
    heights = [bar.get_height() for bar in axes[1].patches if isinstance(bar, Rectangle)]
    assert heights == list(summary.per_model[1].rank_histogram or ())
    assert axes[1].get_xlabel() == "share contributing less"


# --- test beds -----------------------------------------------------------------------------------


def test_each_score_has_a_panel_with_its_tau() -> None:
    bed = paper(resamples=20)["PACS"]
    titles = [ax.get_title() for ax in bed.plot().axes]
    assert [title.split()[0] for title in titles] == ["zood", "logme", "knn", "h_score"]
    assert "0.91" in titles[0]
    ax = bed.plot().axes[0]
    drawn = sum(len(abscissas(line)) for line in ax.lines[1:])
    assert drawn == len(bed.models)


def test_several_test_beds_make_a_row_each() -> None:
    figure = compare(paper(resamples=20)).plot()
    assert len(figure.axes) == 7 * 4
    assert [ax.get_ylabel().split("\n")[0] for ax in figure.axes[::4]] == list(paper(resamples=1))


def test_a_score_without_values_is_an_empty_panel() -> None:
    accuracy = {"a": 1.0, "b": 2.0, "c": 3.0}
    columns = {"none": Column({}), "same": Column(dict.fromkeys(accuracy, 1.0))}
    bed = judge({"name": "toy"}, accuracy, columns, resamples=20)
    titles = [ax.get_title() for ax in bed.plot().axes]
    assert sorted(titles) == ["none\nτ is undefined", "same\nτ is undefined"]


# --- files and notebooks -------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", START)
def test_save_figure(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"new folder/figure.{suffix}"
    save_figure(ranking().plot(), path)
    assert path.read_bytes().startswith(START[suffix])


def test_save_figure_rejects_other_formats(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"must end in \.png, \.svg or \.pdf, got '.*\.bmp'"):
        save_figure(ranking().plot(), tmp_path / "figure.bmp")


@pytest.mark.parametrize("format", START)
def test_every_figure_in_every_format(tmp_path: Path, format: str) -> None:  # noqa: A002
    written = write_figures(example_run(3), tmp_path, format)
    assert {path.stem for path in written} == ALL
    for path in written:
        assert path.suffix == f".{format}"
        assert path.read_bytes().startswith(START[format])
        if format == "png":
            with Image.open(path) as image:
                assert len(image.convert("RGB").getcolors(1 << 24) or []) > 20


@pytest.mark.parametrize("format", ["svg", "pdf"])
def test_equal_figures_give_equal_files(tmp_path: Path, format: str) -> None:  # noqa: A002
    run = Run("oodzoo run", evaluation=example_run(3).evaluation)
    first = [path.read_bytes() for path in write_figures(run, tmp_path / "a", format)]
    assert first == [path.read_bytes() for path in write_figures(run, tmp_path / "b", format)]


@pytest.mark.parametrize(
    ("part", "figures"),
    [
        ("ranking", {name for name in ALL if "domain" in name} | {"ranking"}),
        ("evaluation", {"accuracy", "accuracy-over-k"}),
        ("selection", {"inclusion-probabilities"}),
        ("testbed", {"scores"}),
    ],
)
def test_absent_parts_have_no_figures(run: Run, part: str, figures: set[str]) -> None:
    assert set(figures_of(without(run, part))) == ALL - figures


def test_files_show_at_most_thirty_models() -> None:
    figure = figures_of(example_run(40))["ranking"]()
    assert len(row_names(figure.axes[0])) == 30


def test_names_are_not_formulas(tmp_path: Path) -> None:
    odd = ["$x_", r"$\frac{", "网络", "a & <b>", "%d{}"]
    run = example_run(models=odd, domains=["$", "b", "c"], classes=odd)
    written = write_figures(run, tmp_path, "svg")
    assert {path.stem for path in written} == ALL


def test_unknown_format(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown format 'bmp'; expected one of png, svg, pdf"):
        write_figures(example_run(3), tmp_path, "bmp")
    assert not list(tmp_path.iterdir())


def test_a_notebook_shows_a_figure_without_pyplot() -> None:
    before = "matplotlib.pyplot" in sys.modules
    figure = ranking().plot()
    assert figure._repr_png_().startswith(b"\x89PNG")  # type: ignore[attr-defined]
    assert ("matplotlib.pyplot" in sys.modules) == before
