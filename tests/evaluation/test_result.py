"""Results and advice in words, tables and JSON; constructed, so that each sentence occurs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.evaluation.data import stored, zoo
from tests.maths.combinations import Costly

import oodzoo
from oodzoo.combining.evaluation import Evaluation
from oodzoo.combining.evaluation.learning_curve import CurvePoint, FewerDomains, LearningCurve
from oodzoo.combining.evaluation.result import Recommended
from oodzoo.combining.evaluation.rows import Aggregation, Cell, Gain, Row
from oodzoo.combining.statements import (
    KINDS,
    Advice,
    caution,
    most_useful,
    on_budget,
    on_domains,
    on_images,
    on_target,
    on_tuning,
)
from oodzoo.core.errors import InputError
from oodzoo.tasks.classification import Measures


def row(*accuracies: float) -> Row:
    return Row(
        {
            f"d{at}": Cell((Measures(value, value - 1, 2.0),), ("m",), 4)
            for at, value in enumerate(accuracies)
        }
    )


def recommended(**changes: Any) -> Recommended:
    fixed: dict[str, Any] = {
        "choice": "pool",
        "models": ("m", "n"),
        "average": 88.0,
        "interval": (70.5, 100.0),
        "domains": {"d0": 86.0, "d1": 90.0},
        "choices": {"d0": "pool", "d1": "single"},
        "estimates": {"single": 80.0, "pool": 90.0},
    }
    return Recommended(**fixed | changes)


def evaluation(**changes: Any) -> Evaluation:
    fixed: dict[str, Any] = {
        "protocol": "fast",
        "score": "zood",
        "top_k": 3,
        "trials": 1,
        "domains": ("d0", "d1"),
        "recommended": recommended(),
        "single": row(80.0, 90.0),
        "pool": row(86.0, 91.0),
        "ensemble": row(85.0, 90.0),
        "selection": row(84.0, 90.0),
        "feature_ratio": {"d0": 0.25, "d1": 0.5},
    }
    return Evaluation(**fixed | changes)


# --- rows ----------------------------------------------------------------------------------------


def test_rows_and_aggregations_survive_json() -> None:
    cells = row(80.5, 1 / 3).cells
    cells["d1"] = replace(cells["d1"], milliseconds=2.5, parameters=7)
    one = Row(cells)
    document = json.loads(json.dumps(one.to_dict()))
    assert document["trials"] == {"d0": [[80.5, 79.5, 2.0]], "d1": [[1 / 3, 1 / 3 - 1, 2.0]]}
    assert document["milliseconds"] == {"d0": None, "d1": 2.5}
    assert document["parameters"] == {"d0": None, "d1": 7}
    assert Row.from_dict(document) == one
    both = Aggregation(one, row(3.0, 4.0), {"d0": 0.5, "d1": 1.0})
    assert Aggregation.from_dict(json.loads(json.dumps(both.to_dict()))) == both
    with pytest.raises(InputError, match="the evaluation"):
        Row.from_dict(document | {"trials": {"d0": [["high", 1.0, 2.0]]}})


# --- what is recommended -------------------------------------------------------------------------


def test_damaged_recommendations_are_rejected() -> None:
    document = evaluation().to_dict()
    broken = document | {"recommended": document["recommended"] | {"average": "high"}}
    with pytest.raises(InputError, match="the evaluation"):
        Evaluation.from_dict(broken)
    for changes, says in (
        ({"choice": "best"}, r"a choice must be one of single, pool, .* got 'best'"),
        ({"choices": {"d0": "pool", "d1": "none"}}, "got 'none'"),
        ({"choices": {"d0": "pool"}}, "of the same domains"),
    ):
        with pytest.raises(ValueError, match=says):
            recommended(**changes)


# --- findings ------------------------------------------------------------------------------------


def test_findings() -> None:
    baselines = {"random_features": row(82.0, 90.0), "oracle": row(90.0, 91.0)}
    found = evaluation(baselines=baselines, with_target={"pool": row(91.0, 92.0)}).findings()
    assert found == [
        (
            "Recommended: a pool of heads of 2 models. Chosen in the same way without each domain, "
            "it classifies 88.0 % of the images of unseen domains correctly (Single 85.0 %, "
            "Ensemble 87.5 %, Selection 87.0 %)."
        ),
        (
            "That is 2.5 points below the best single model on each held-out domain (90.5 %), "
            "which is unknown in advance."
        ),
        (
            "For d1, another combination was chosen without it, and the choice is part of what is "
            "measured; Pool in every domain has 88.5 %."
        ),
        "With unlabelled images of each held-out domain, the pool reaches 91.5 %.",
        "Selection keeps 38 % of the features, 1.0 points above as many random ones (86.0 %).",
    ]
    assert evaluation().findings() == [found[0], found[2]]
    same = recommended(choices={"d0": "pool", "d1": "pool"})
    assert evaluation(recommended=same).findings() == [found[0]]
    equal = {"random_features": row(84.04, 90.0), "oracle": row(86.0, 90.0)}
    _, oracle, _, random = evaluation(baselines=equal).findings()
    assert oracle.startswith("That is equal to the best single model")
    assert "of the features, equal to as many random ones (87.0 %)" in random
    assert evaluation(unseen={"d0": ("x",), "d1": ("y", "z")}).findings()[2:] == [
        "The class 'x' occurs only in domain 'd0' and is always misclassified there.",
        "The classes 'y', 'z' occur only in domain 'd1' and are always misclassified there.",
    ]


def test_numbers_that_are_predicted_worse_than_by_their_mean() -> None:
    domains = {"d0": -86.0, "d1": 20.0}
    bad = evaluation(task="regression", recommended=recommended(domains=domains, average=-33.0))
    assert caution(bad).startswith("In the domain 'd0', and on average it is worse than predicting")
    assert caution(bad) in bad.findings()
    better = recommended(domains={"d0": -2.0, "d1": 50.0}, average=24.0)
    assert "on average" not in caution(evaluation(task="regression", recommended=better))
    assert caution(evaluation(task="regression")) == ""


# --- a mapping, and what notebooks show ----------------------------------------------------------


def test_an_evaluation_is_a_mapping_of_rows() -> None:
    found = evaluation(baselines={"oracle": row(90.0, 95.0)}, with_target={"pool": row(88.0, 92.0)})
    names = ["single", "pool", "ensemble", "selection", "pool_with_target", "oracle"]
    assert (list(found), len(found)) == (names, 6)
    assert {name: found[name] for name in found} == found.rows
    assert found.oracle == row(90.0, 95.0)
    assert evaluation().oracle is None
    assert ("oracle" in found, "recommended" in found) == (True, False)
    with pytest.raises(KeyError, match="the evaluation has no row 'orakel'; did you mean oracle"):
        found["orakel"]
    for name, line in zip(found.rows, str(found).splitlines()[2:], strict=False):
        assert line.split()[:2] == [name, f"{found.rows[name].average:.1f}"]
    drawn = found.plot().svg
    assert all(f">{name}</text>" in drawn for name in ("d0", "d1", "Pool"))


def test_what_notebooks_show_is_short_whatever_the_names() -> None:
    found = row(80.0, 90.0)
    assert repr(found) == "Row(accuracy 85.0 %: d0 80.0, d1 90.0)"
    assert repr(found.cells["d0"]).startswith("Cell(80.0 %: ")
    assert found._repr_html_().count("<tr>") == 3
    long = Row({f"<domain {at}>" * 30: found.cells["d0"] for at in range(40)})
    assert len(repr(long)) < 400
    assert "<domain" not in long._repr_html_()
    assert repr(evaluation()) == (
        "Evaluation(2 held-out domains: recommended pool of 2 models, 88.0 %; single 85.0, pool "
        "88.5, ensemble 87.5, selection 87.0 %)"
    )
    assert repr(recommended()) == "Recommended(pool of 2 models, 88.0 %)"
    odd = evaluation(recommended=recommended(choice="single", models=("<b>\n" * 99,)))
    assert len(repr(odd)) < 400
    html = odd._repr_html_()
    assert html.count("<tr>") == 2 + len(odd)
    assert html.count("<p>") == len(odd.findings())
    assert "<b>" not in html


TIMES = {"poor": 1.0, "best": 1.0, "fair": 1.0, "good": 1.0}


def curve(*averages: float, spread: float = 0.0, metric: str = "accuracy") -> LearningCurve:
    points = [
        CurvePoint(10.0 * 2**number, value, {"a": value, "b": value + spread * number})
        for number, value in enumerate(averages)
    ]
    return LearningCurve(tuple(points), "m", metric)


def domains(**pairs: tuple[float, float]) -> FewerDomains:
    fewer, every = ({name: pair[at] for name, pair in pairs.items()} for at in range(2))
    return FewerDomains(3, fewer, every)


GROWN = "training images per class, the accuracy of the top model rose by"
SPREAD = curve(80.0, 82.0, spread=9.0)  # gains of 2 and 11

WORDS: list[tuple[Advice, float | None, str]] = [
    (on_budget(20, "m", 65.6, 75.9, 12.4), -10.3,
     "With at most 20 ms per image (--max-ms 20): m, 65.6 %, 10.3 points less, 12 times as fast."),
    (on_budget(0.35, "m", 76.9, 75.9, 2.46), 1.0, "1.0 points more, 2.5 times as fast."),
    (on_budget(42, "net", 80.41, 80.4, 2.2, "explained_variance"), 0.01,
     "net, 80.4 %, the same explained variance, 2.2 times as fast."),
    (on_images(curve(80.0, 82.3)), 2.3,
     (f"From 10 to 20 {GROWN} 2.3 points: more images would probably help. Add them to the data "
     "and run the same command again.")),
    (on_images(curve(80.0, 81.0, 81.2)), 0.2,
     f"From 20 to 40 {GROWN} 0.2 points: more images of the same domains would hardly help."),
    (on_images(curve(80.0, 79.0, metric="explained_variance")), -1.0,
     ("From 10 to 20 training images, the explained variance of the top model fell by 1.0 "
     "points: more images of the same domains would hardly help.")),
    (on_images(SPREAD), 2.0, "noise between held-out domains: it is unclear whether more images"),
    (on_domains(domains(a=(70, 73), b=(80, 83)), "accuracy"), 3,
     ("Training on 3 domains instead of 2 raised the accuracy of the top model by 3.0 points: "
     "labelled images of a further domain would probably help")),
    (on_domains(domains(a=(70, 69)), "explained_variance"), -1,
     ("lowered the explained variance of the top model by 1.0 points: labelled images of a "
     "further domain would hardly help")),
    (on_domains(domains(a=(70, 74), b=(80, 79)), "accuracy"), 1.5,
     "it is unclear whether labelled images"),
    (on_target(None, 80.0), None, "--with-target"),
    (on_target(82.0, 75.9), 6.1, "82.0 %, 6.1 points more: if you have some, use oodzoo fit STORE"),
    (on_target(75.0, 75.9), -0.9, "the pool reaches 75.0 %, 0.9 points less."),
    (on_tuning(None), None, "--tune --data DATA"),
    (on_tuning(Gain("pool", 3.0, 1.0, 5.0), "Pool", recommended=True), 3,
     "gives 3.0 points more than Pool: oodzoo fit STORE --choose single"),
    (on_tuning(Gain("pool", 0, 1, 0), "Pool"), 0, "gives the same as Pool."),
]  # fmt: skip


@pytest.mark.parametrize(("advice", "gain", "words"), WORDS)
def test_in_words(advice: Advice, gain: float | None, words: str) -> None:
    assert advice.gain == (None if gain is None else pytest.approx(gain))
    assert words in advice.text
    assert advice.text.endswith(words) or not words.endswith(".")


def test_the_most_useful_advice_is_about_data_and_the_first_budget() -> None:
    images, more = Advice("more_images", "i", 0.2), Advice("more_domains", "d", 3.0)
    target = Advice("target_images", "t", 9.0)
    half, tenth = Advice("budget", "half", -1.0), Advice("budget", "tenth", -20.0)
    assert most_useful([images, more, target, half, tenth]) == [more, half]
    assert most_useful([target]) == []
    with pytest.raises(ValueError, match="got 'luck'"):
        Advice("luck", "")
    assert "oodzoo" not in on_tuning(Gain("pool", 1, 2, 1)).text


# --- measured ------------------------------------------------------------------------------------


def kinds(result: Evaluation) -> list[str]:
    return [each.kind for each in result.advice]


def test_the_advice_of_a_store(tmp_path: Path) -> None:
    result = oodzoo.evaluate(stored(tmp_path, *zoo(n=21)), top_k=2, baselines=False)
    assert kinds(result) == list(KINDS[:4])  # no time per image is known
    images, more, target, tuning = result.advice
    assert result.learning_curve is not None
    assert images.gain == result.learning_curve.gain
    assert more.gain is not None
    assert (target.gain, tuning.gain) == (None, None)
    document = json.loads(json.dumps(result.to_dict()))
    assert Evaluation.from_dict(document) == result
    best = max((images, more), key=lambda each: each.gain or 0)
    assert result.findings()[-1] == best.text
    for key in ("advice", "diagnosis", "learning_curve", "tied", "task", "metric"):
        del document[key]
    old = Evaluation.from_dict(document)  # of an earlier version
    assert (old.advice, old.diagnosis, old.learning_curve) == ((), {}, None)
    assert (old.tied, old.task) == (result.tied, "classification")


def test_less_time_is_what_an_evaluation_within_the_limit_finds() -> None:
    source = Costly(*zoo(n=21), TIMES)
    result = oodzoo.evaluate(source, top_k=2, baselines=False)
    assert "fine_tuning" not in kinds(result)  # there are no images
    assert len(result.recommended.models) > 1
    budget = next(each for each in result.advice if each.kind == "budget")
    max_ms = float(budget.text.split("--max-ms ")[1].split(")")[0])
    assert max_ms == len(result.recommended.models) / 2
    within = oodzoo.evaluate(source, top_k=2, baselines=False, max_ms=max_ms).recommended
    assert budget.gain == pytest.approx(within.average - result.recommended.average)
