r"""How well features tell proposed domains apart.

A ridge regression on the coordinates of :mod:`oodzoo.domains.embedding` predicts the domain of
samples that it was not fitted to (five folds, groups kept whole). With its balanced accuracy *b*
and k domains, the separability is

.. math:: \max\left(0, \frac{b - 1/k}{1 - 1/k}\right),

0 at chance and 1 if every sample is right. Domains with a separability near 0 differ in no way that
the models see: to leave one out is then no harder than a random split.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import GroupKFold, KFold

from oodzoo.domains.embedding import Floats

_FOLDS = 5


def separability(
    coordinates: Floats,
    domains: Sequence[str],
    groups: Sequence[str | None],
    *,
    seed: int = 0,
) -> float:
    """Return the separability of domains, from 0 to 1."""
    names, codes = np.unique(np.asarray(domains), return_inverse=True)
    keys = [f"row {row}" if group is None else f"group {group}" for row, group in enumerate(groups)]
    units = np.unique(keys, return_inverse=True)[1]
    if len(set(units.tolist())) < _FOLDS:
        return 0.0
    if len(set(units.tolist())) == len(units):
        splits = KFold(_FOLDS, shuffle=True, random_state=seed).split(coordinates)
    else:
        splits = GroupKFold(_FOLDS).split(coordinates, groups=units)
    right = np.zeros(len(codes), bool)
    for train, test in splits:
        if len(np.unique(codes[train])) < 2:
            continue
        model = RidgeClassifier(class_weight="balanced").fit(coordinates[train], codes[train])
        right[test] = model.predict(coordinates[test]) == codes[test]
    balanced = float(np.mean([right[codes == at].mean() for at in range(len(names))]))
    chance = 1 / len(names)
    return max(0.0, (balanced - chance) / (1 - chance))
