"""The sections with the evaluation, what was chosen, and what would change it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files
from typing import Any

import pytest
from tests.report.example import DOMAINS, evaluation_row, example_run
from tests.report.reader import Reader

from oodzoo.combining.evaluation.advice import KINDS, Advice, on_budget, on_target, on_tuning
from oodzoo.combining.evaluation.result import Evaluation
from oodzoo.combining.evaluation.rows import Cell, Gain
from oodzoo.combining.evaluation.rows import Row as EvaluationRow
from oodzoo.report import page
from oodzoo.report.combination import methods
from oodzoo.report.recommendation import ADVICE_TITLES, Cost, cost_of
from oodzoo.report.record import Run
from oodzoo.tasks import Kind


@pytest.fixture
def evaluation(run: Run) -> Evaluation:
    assert run.evaluation is not None
    return run.evaluation


def of(task: Kind = "classification", **options: Any) -> Evaluation:
    found = example_run(3, task=task, **options).evaluation
    assert found is not None
    return found


def shown(evaluation: Evaluation) -> Reader:
    return Reader(page(Run("oodzoo run", evaluation=evaluation)))


def choosing(**changes: Any) -> Evaluation:
    """An evaluation with another recommendation."""
    return replace(of(), recommended=replace(of().recommended, **changes))


def test_csv_equals_the_evaluation(evaluation: Evaluation, read: Reader) -> None:
    keys = {
        "Single": "single", "Pool": "pool", "Ensemble": "ensemble", "Selection": "selection",
        "Random features": "random_features", "Paper's selection": "paper_selection",
        "Oracle": "oracle", "Best by logme": "best_by_logme",
    }  # fmt: skip
    rows = [row for row in read.table("accuracy") if row["method"] != "Recommended"]
    assert {row["method"] for row in rows} == {*keys}
    for row in rows:
        given = evaluation.rows[keys[row["method"]]]
        if row["domain"] == "average":
            assert float(row["accuracy"]) == given.average
        else:
            cell = given.cells[row["domain"]]
            assert float(row["accuracy"]) == cell.accuracy
            assert tuple(row["models"].split(";")) == cell.models
            assert int(row["n_features"]) == cell.n_features
            assert float(row["milliseconds"]) == cell.milliseconds == 2.5 * len(cell.models)
            assert float(row["parameters_million"]) == 3 * len(cell.models)
    entries = evaluation.ablation.items()
    for row, (k, each) in zip(read.table("accuracy-over-k"), entries, strict=True):
        assert int(row["top_k"]) == k
        assert float(row["ensemble"]) == each.ensemble.average
        assert float(row["paper_selection"]) == each.selection.average
    curve = evaluation.learning_curve
    assert curve is not None
    for row, point in zip(read.table("learning-curve"), curve.points, strict=True):
        assert float(row["images_per_class"]) == point.images_per_class
        assert float(row["average"]) == point.average
        assert {d: float(row[f"domain_{d}"]) for d in DOMAINS} == point.domains
    choices = read.table("choices")
    assert [row["choice"] for row in choices] == ["Pool", "Pool", "Pool", "Selection"]
    for row in choices:
        assert float(row["accuracy"]) == evaluation.recommended.domains[row["domain"]]
        assert float(row["milliseconds"]) == 2.5 * int(row["models"])
        assert float(row["parameters_million"]) == 3 * int(row["models"])


def test_the_cost_is_averaged_if_it_is_known_everywhere(evaluation: Evaluation) -> None:
    first, *_ = evaluation.domains

    def row_of(cell: Cell) -> dict[str, str]:
        pool = EvaluationRow(evaluation.pool.cells | {first: cell})
        rows = shown(replace(evaluation, pool=pool)).table("accuracy")
        return next(row for row in rows if row["method"] == "Pool" and row["domain"] == "average")

    known = row_of(replace(evaluation.pool.cells[first], milliseconds=50.0, parameters=0))
    assert float(known["milliseconds"]) == (50 + 3 * 10) / 4
    assert float(known["parameters_million"]) == 3 * 12 / 4
    unknown = row_of(replace(evaluation.pool.cells[first], milliseconds=None))
    assert unknown["milliseconds"] == ""
    assert float(unknown["parameters_million"]) == 12


def test_ways_to_combine_models_have_shapes_and_colours_of_their_own() -> None:
    ways = [method for method in methods(of(target=True)) if method.kind != "baseline"]
    assert len({method.shape for method in ways}) == len(ways) == 6
    style = files("oodzoo.report").joinpath("chart.css").read_text(encoding="utf-8")
    marks = {
        method.kind: re.search(rf"\.{method.kind}\b[^{{}}]*{{ --mark: var\((.+?)\)", style)
        for method in ways
    }
    colours = [found[1] for found in marks.values() if found]
    assert len(set(colours)) == len(marks) == 5


def test_baselines_keep_one_order(evaluation: Evaluation) -> None:
    names = ["best_by_zzz", "oracle", "best_by_lda", "random_features", "best_by_h_score"]
    for order in (names, names[::-1]):
        baselines = {
            key: evaluation_row(dict.fromkeys(DOMAINS, 50.0 + at), ["m"])
            for at, key in enumerate(order)
        }
        rows = shown(replace(evaluation, baselines=baselines)).table("accuracy")
        assert list(dict.fromkeys(row["method"] for row in rows))[5:] == [
            "Random features", "Oracle", "Best by h_score", "Best by lda", "Best by zzz"
        ]  # fmt: skip


def with_pools(evaluation: Evaluation, *pools: tuple[str, ...]) -> Evaluation:
    """The evaluation with other models in the pool of each domain."""
    row = evaluation_row(dict.fromkeys(DOMAINS, 50.0), ["?"])
    for cell, models in zip(list(row.cells), pools, strict=True):
        row.cells[cell] = replace(row.cells[cell], models=models)
    return replace(evaluation, pool=row)


def alone() -> Evaluation:
    best = replace(of().recommended, models=("a",), choices=dict.fromkeys(DOMAINS, "pool"))
    return replace(with_pools(of(), *[("a",)] * 4), recommended=best)


def topped(top_k: int | dict[str, int]) -> Callable[[], Evaluation]:
    return lambda: replace(of(), top_k=top_k)


BOTH = {"single": 80.0, "pool": 85.5, "ensemble": 84.0}
SENTENCES: list[tuple[str, Callable[[], Evaluation], str]] = [
    ("yes", topped(3), "the features of the top 3 models,"),
    ("yes", topped(1), "the features of the top model,"),
    ("yes", topped(dict.fromkeys(DOMAINS, 2)), "the features of the top 2 models,"),
    ("yes", topped(dict(zip(DOMAINS, (1, 2, 3, 3), strict=True))), "of the top 1–3 models,"),
    ("yes", of, "Oracle picks"),
    ("yes", of, "“Best by X”: the top model under score X."),
    ("yes", of, "Paper's selection keeps the informative features of the top 3 models."),
    ("no", lambda: replace(of(), baselines={}), "Oracle picks"),
    ("no", lambda: replace(of(), baselines={}), "“Best by X”"),
    ("no", lambda: replace(of(), baselines={}), "Paper's selection keeps"),
    ("yes", lambda: of(target=True), "Pool with target knows the unlabelled images"),
    ("no", of, "with target"),
    ("yes", lambda: of("regression"), "Pool averages the predictions of the heads"),
    ("yes", lambda: of("multilabel"), "averages the log-odds"),
    ("yes", of, "Single 71.0 %, Pool 78.2 %, Ensemble 76.0 %, Selection 77.5 %; chosen: Pool."),
    ("yes", of, "Pool without art_painting, cartoon and photo; Selection without sketch."),
    ("no", of, "the limits on models"),
    ("yes", lambda: choosing(choices=dict.fromkeys(DOMAINS, "ensemble")),
     "chosen: Pool. Without each test domain, the choice is Ensemble."),
    ("yes", lambda: choosing(choices=dict.fromkeys(DOMAINS, "pool")),
     "chosen: Pool. Without each test domain, the choice is the same."),
    ("yes", lambda: choosing(estimates={"single": 1.0, "pool": 2.0}),
     "Ensemble and Selection exceed the limits on models or time."),
    ("yes", lambda: choosing(estimates={"single": 1.0, "pool": 2.0, "ensemble": 3.0}),
     "(left-out domains): Single 1.0 %, Pool 2.0 %, Ensemble 3.0 %; chosen: Pool."),
    ("yes", lambda: choosing(estimates={"single": 1.0, "pool": 2.0, "ensemble": 3.0}),
     "Selection exceeds the limits on models or time."),
    ("yes", lambda: choosing(within=BOTH), ("On all domains (left-out domains and within the "
     "domains): Single 71.0 and 80.0 %, Pool 78.2 and 85.5 %, Ensemble 76.0 and 84.0 %, "
     "Selection 77.5 %; chosen: Pool.")),
    ("yes", of, "have 3 models each"),
    ("yes", alone, "Every pool is a single model"),
    ("yes", alone, "chosen: Pool, a single model."),
    ("no", of, "Beside published results"),
    ("yes", lambda: replace(of(), published="PACS"), "Beside published results on PACS"),
]  # fmt: skip


@pytest.mark.parametrize(("said", "given", "words"), SENTENCES)
def test_what_is_said(said: str, given: Callable[[], Evaluation], words: str) -> None:
    assert (words in shown(given()).text) == (said == "yes")


def test_the_cost_is_the_sum_over_the_models(run: Run) -> None:
    assert run.ranking is not None
    first, second, *others = run.ranking.rows
    both = [second.model, first.model]
    found = cost_of(both, run.ranking)
    times = (first.milliseconds or 0) + (second.milliseconds or 0)
    assert found.milliseconds == pytest.approx(times)
    assert found.parameters == 2_974_377 + 2_974_378
    less = replace(run.ranking, rows=(replace(first, parameters=None), second, *others))
    assert cost_of(both, less) == Cost(found.milliseconds, None)
    assert cost_of([*both, "not ranked"], run.ranking) == cost_of(both, None) == Cost(None, None)


def test_models_of_the_pools(evaluation: Evaluation) -> None:
    changed = with_pools(evaluation, ("b", "a"), ("a",), ("a", "c"), ("b", "a"))
    chosen = replace(changed, recommended=replace(changed.recommended, models=("a", "d")))
    rows = shown(chosen).table("pools")
    assert [list(row.values()) for row in rows] == [
        ["a", "4", "1", "2", "1", "1", "2"],
        ["b", "2", "", "1", "", "", "1"],
        ["c", "1", "", "", "", "2", ""],
        ["d", "0", "2", "", "", "", ""],
    ]
    assert list(rows[0]) == ["model", "pools", "all_domains", *DOMAINS]
    other = replace(chosen, recommended=replace(chosen.recommended, choice="ensemble"))
    rows = shown(other).table("pools")
    assert list(rows[0]) == ["model", "pools", *DOMAINS]
    assert [row["model"] for row in rows] == ["a", "b", "c"]


# --- what would change it ------------------------------------------------------------------------


def advised(*advice: Advice) -> str:
    return page(Run("oodzoo run", evaluation=replace(of(), advice=advice, learning_curve=None)))


def test_the_largest_gain_is_first(read: Reader) -> None:
    order = ["+2.5 points", "+0.2 points", "\N{MINUS SIGN}4.0 points", "not measured"]
    places = [read.text.index(words) for words in order]
    assert places == sorted(places)
    assert ">0.0 points<" in advised(Advice("budget", "As accurate.", -0.01))
    assert 'id="changes"' not in advised()
    assert set(ADVICE_TITLES) == set(KINDS)


def test_commands_can_be_run_in_the_folder_of_the_report() -> None:
    tuned = on_tuning(Gain("pool", 3.0, 1.0, 2.0), "Pool", recommended=True)
    budget = on_budget(42.0, "net", 80.0, 80.0, 2.2)
    text = advised(on_target(None, 80.0), on_tuning(None), on_target(85.0, 80.0), tuned, budget)
    section = text.partition('<section id="changes"')[2].partition("</section>")[0]
    assert set(re.findall("<code>(.*?)</code>", section)) == {
        "oodzoo evaluate store --with-target",
        "oodzoo evaluate store --tune --data DATA",
        "oodzoo fit store --target FOLDER --out adapted",
        "oodzoo fit store --choose single --out single",
        "oodzoo tune single DATA --out tuned",
        "oodzoo fit store --max-ms 42 --out faster",
    }
    texts = re.findall('<p class="why">(.*?)</p>', section)
    assert any("may help: this measures by how much." in each for each in texts)
    assert not any("oodzoo" in each.partition(" This needs ")[0] for each in texts)
