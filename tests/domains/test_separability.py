"""How well features tell domains apart, against a literal form."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.model_selection import GroupKFold, KFold
from tests.oracles import domains as oracle

from oodzoo.domains.clusters import separability

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("k", [2, 3, 4])
def test_it_equals_the_oracle(k: int) -> None:
    codes = RNG.integers(0, k, 150)
    points = RNG.normal(size=(150, 6)) + np.eye(6)[codes]
    folds = [test.tolist() for _, test in KFold(5, shuffle=True, random_state=3).split(points)]
    found = separability(points, [f"d{code}" for code in codes], [None] * 150, seed=3)
    assert found == pytest.approx(oracle.separability(points, codes.tolist(), folds))
    assert 0.1 < found < 1


def test_groups_are_not_split() -> None:
    groups = [f"g{row // 5:02d}" for row in range(150)]
    codes = np.array([row // 5 % 2 for row in range(150)])
    points = np.repeat(RNG.normal(size=(30, 20)), 5, axis=0)  # a group shows its domain
    number = [int(group[1:]) for group in groups]
    folds = [test.tolist() for _, test in GroupKFold(5).split(points, groups=number)]
    names = [f"d{code}" for code in codes]
    found = separability(points, names, list(groups))
    assert found == pytest.approx(oracle.separability(points, codes.tolist(), folds))
    assert found < separability(points, names, [None] * 150)


def test_limits() -> None:
    codes = np.arange(200) % 2
    names = [f"d{code}" for code in codes]
    points = codes[:, None].astype(np.float64)
    assert separability(points, names, [None] * 200) == 1
    assert separability(RNG.normal(size=(200, 3)), names, [None] * 200) < 0.3
    assert separability(points, names, ["a"] * 200) == 0  # one group
