"""What would change the result: in words, and measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.evaluation.data import stored, zoo
from tests.maths.combinations import Costly
from tests.maths.test_learning_curve import curve

import oodzoo
from oodzoo.combining.evaluation import Evaluation
from oodzoo.combining.evaluation.advice import (
    KINDS,
    Advice,
    most_useful,
    on_budget,
    on_domains,
    on_images,
    on_target,
    on_tuning,
)
from oodzoo.combining.evaluation.learning_curve import FewerDomains
from oodzoo.combining.evaluation.rows import Gain

TIMES = {"poor": 1.0, "best": 1.0, "fair": 1.0, "good": 1.0}


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
    (on_images(SPREAD), 2.0, "noise between test domains: it is unclear whether more images"),
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
