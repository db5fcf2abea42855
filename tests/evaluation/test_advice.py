"""What would change the result, in words."""

from __future__ import annotations

import pytest
from tests.evaluation.test_learning_curve import curve

from oodzoo.combining.evaluation.advice import (
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


def test_a_budget() -> None:
    found = on_budget(20, "resnet", 65.6, 75.9, 12.4)
    assert found.text == (
        "With at most 20 ms per image (--max-ms 20): resnet, 65.6 %, 10.3 points less, 12 times as "
        "fast."
    )
    assert found.gain == pytest.approx(-10.3)
    assert on_budget(0.35, "m", 76.9, 75.9, 2.46).text.endswith(
        "1.0 points more, 2.5 times as fast."
    )
    same = on_budget(42, "net", 80.41, 80.4, 2.2, "explained_variance").text
    assert same.endswith("net, 80.4 %, the same explained variance, 2.2 times as fast.")


def test_images_and_domains() -> None:
    images = on_images(curve(80.0, 82.3))
    assert images.gain == pytest.approx(2.3)
    assert images.text.endswith("help. Add them to the data and run the same command again.")
    assert on_images(curve(80.0, 80.0)).text.endswith("would hardly help.")
    more = on_domains(FewerDomains(3, {"a": 70.0, "b": 80.0}, {"a": 73.0, "b": 83.0}), "accuracy")
    assert more.text.startswith(
        "Training on 3 domains instead of 2 raised the accuracy of the top model by 3.0 points: "
        "labelled images of a further domain would probably help."
    )
    less = on_domains(FewerDomains(3, {"a": 70.0}, {"a": 69.0}), "explained_variance")
    assert "lowered the explained variance of the top model by 1.0 points" in less.text
    assert "would hardly help" in less.text
    unsure = FewerDomains(3, {"a": 70.0, "b": 80.0}, {"a": 74.0, "b": 79.0})
    assert "it is unclear whether labelled images" in on_domains(unsure, "accuracy").text


def test_what_was_not_measured_says_how() -> None:
    assert on_target(None, 80.0).gain is None
    assert "--with-target" in on_target(None, 80.0).text
    assert on_tuning(None).gain is None
    assert "--tune --data DATA" in on_tuning(None).text


def test_what_was_measured_says_what_to_do_if_it_helps() -> None:
    helps, hurts = on_target(82.0, 75.9), on_target(75.0, 75.9)
    assert helps.gain == pytest.approx(6.1)
    assert "82.0 %, 6.1 points more: if you have some, use oodzoo fit STORE --target" in helps.text
    assert hurts.text.endswith("the pool reaches 75.0 %, 0.9 points less.")
    good = on_tuning(Gain("pool", 3.0, 1.0, 5.0), "Pool", recommended=True)
    poor = on_tuning(Gain("pool", 1, 2, 1))
    assert "gives 3.0 points more than Pool: oodzoo fit STORE --choose single" in good.text
    assert "oodzoo" not in poor.text
    assert on_tuning(Gain("pool", 0, 1, 0), "Pool").text.endswith("gives the same as Pool.")


def test_the_most_useful_advice_is_about_data_and_the_first_budget() -> None:
    images, domains = Advice("more_images", "i", 0.2), Advice("more_domains", "d", 3.0)
    target, half, tenth = (
        Advice("target_images", "t", 9.0),
        Advice("budget", "half", -1.0),
        Advice("budget", "tenth", -20.0),
    )
    assert most_useful([images, domains, target, half, tenth]) == [domains, half]
    assert most_useful([target]) == []
    with pytest.raises(ValueError, match="got 'luck'"):
        Advice("luck", "")
