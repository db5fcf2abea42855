"""What is recommended loses little against the best single model in hindsight, in simulated zoos.

By default a few worlds are simulated; with `OODZOO_WORLDS=all`, as in `make slow`, all of them.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from tests.maths.worlds import ZOOS, Arrays, World

import oodzoo

ALL = os.environ.get("OODZOO_WORLDS") == "all"
SEEDS = 5 if ALL else 2
TRAINING = (2, 3, 4, 6) if ALL else (2, 4)
PER_CLASS = (5, 20, 200) if ALL else (5, 20)

LEAST = {
    "specialist": {5: -2.0, 20: -0.5, 200: -0.5},
    "equals": {5: 10.0, 20: 15.0, 200: 15.0},
    "families": {5: -3.0, 20: 3.0, 200: 3.0},
    "adversary": {5: 0.0, 20: 5.0, 200: 5.0},
}
"""Least gain in points, mean over seeds, by the zoo and the samples of each class and domain."""

MINORITY = -20.0
"""The same of two families and three known domains: the unseen domain is like one of them only, and
what two of three prefer is taken."""


def accuracy(world: World, features: Arrays, **options: Any) -> float:
    """On the unseen domain, of what is fitted to the others."""
    training = {model: values[world.training] for model, values in features.items()}
    fitted = oodzoo.fit(training, world.y[world.training], world.domains[world.training], **options)
    unseen = {model: features[model][~world.training] for model in fitted.columns.models}
    return 100 * float(np.mean(np.asarray(fitted.predict(unseen)) == world.y[~world.training]))


@pytest.mark.parametrize("zoo", ZOOS)
@pytest.mark.parametrize("per_class", PER_CLASS)
@pytest.mark.parametrize("n_training", TRAINING)
def test_what_is_recommended_loses_little(zoo: str, n_training: int, per_class: int) -> None:
    gains = []
    for seed in range(SEEDS):
        world = World(n_training, per_class, seed)
        features = ZOOS[zoo](world)
        oracle = max(accuracy(world, features, choose="single", models=[m]) for m in features)
        gains.append(accuracy(world, features) - oracle)
    minority = zoo == "families" and n_training == 3
    assert np.mean(gains) >= (MINORITY if minority else LEAST[zoo][per_class]), gains


def test_a_specialist_is_not_drowned() -> None:
    """Equal weights of all models are far below it."""
    world = World(2, 20, 0)
    predictor = oodzoo.fit(ZOOS["specialist"](world), world.y, world.domains, choose="pool")
    assert predictor.provenance.pool["specialist"] > 0.5


def test_equally_good_models_share_the_weight() -> None:
    world = World(2, 20, 0)
    predictor = oodzoo.fit(ZOOS["equals"](world), world.y, world.domains, choose="pool")
    weights = predictor.provenance.pool.values()
    assert len(weights) >= 4
    assert max(weights) < 0.5


def test_an_adversary_is_left_out() -> None:
    """With it in the pools that it fits, the gain over the best single model is half as large."""
    gains = []
    for seed in range(2):
        world = World(4, 20, seed)
        features = ZOOS["adversary"](world)
        oracle = max(accuracy(world, features, choose="single", models=[m]) for m in features)
        gains.append(accuracy(world, features, choose="pool") - oracle)
    assert np.mean(gains) >= 18, gains
