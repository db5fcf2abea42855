"""What is said about the expected accuracy is true for each kind of ranking."""

from __future__ import annotations

import numpy as np
import pytest
from tests.report.example import example_run

import oodzoo
from oodzoo.ranking.result import Ranking
from oodzoo.report.expected import choice_is_repeated, interval_text, where


def ranking(n_models: int = 3, *, target: bool = False) -> Ranking:
    found = example_run(n_models, target=target).ranking
    assert found is not None
    return found


def test_the_interval_is_for_a_new_domain() -> None:
    shown = ranking()
    low, high = shown.rows[0].accuracy_interval
    assert interval_text(shown, shown.rows[0]) == (
        f"90 % interval for a new domain: {low:.0f}–{high:.0f} %"
    )
    assert where(shown) == "on an unseen domain"


def test_with_images_of_the_target_it_is_for_the_target() -> None:
    shown = ranking(target=True)
    assert interval_text(shown, shown.rows[0]).startswith("90 % interval: ")
    assert where(shown) == "on the target"


@pytest.mark.parametrize(("score", "repeated"), [("zood", True), ("knn", False)])
def test_the_choice_is_said_to_be_repeated_only_if_it_is(score: str, repeated: bool) -> None:
    """Each of two models is the better one on one domain: without it, the other one is chosen."""
    rng = np.random.default_rng(0)
    y, domains = np.tile([0, 1], 60), np.repeat(["a", "b", "c"], 40)
    clear = np.stack([y, 1 - y], 1)
    noise = {"x": np.repeat([0.2, 2.0, 0.8], 40), "y": np.repeat([2.0, 0.2, 0.8], 40)}
    features = {
        name: clear + size[:, None] * rng.normal(size=(120, 2)) for name, size in noise.items()
    }
    shown = oodzoo.rank(features, y, domains, score=score)
    first = shown.rows[0]
    own = np.mean([fold.accuracy for fold in first.folds])
    assert (first.expected_accuracy != pytest.approx(own)) == repeated
    assert choice_is_repeated(shown) == repeated


def test_one_model_leaves_no_choice() -> None:
    assert choice_is_repeated(ranking(2))
    assert not choice_is_repeated(ranking(1))
