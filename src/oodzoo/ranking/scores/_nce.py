"""NCE: conditional entropy of the target label given the source label."""

from __future__ import annotations

from typing import Any

import numpy as np

from oodzoo.ranking.scores.catalogue import score
from oodzoo.ranking.scores.statistics import as_classes


@score(
    "nce",
    needs="source_labels",
    title="Negative conditional entropy",
    reference="Tran et al., Transferability and Hardness of Supervised Classification Tasks, "
    "ICCV 2019",
)
def nce(source_labels: Any, y: Any) -> float:
    """Negative conditional entropy of the target label given the source label.

    With the empirical joint distribution of both labels::

        NCE = -H(Y | Z) = Σ_{y,z} P(y, z) ln P(y | z)

    The score is at most 0, for source labels that determine the target label, and at least the
    negative entropy of the target labels. Needs the pre-training head. Complexity O(n log n).

    Parameters
    ----------
    source_labels : array of shape (n,)
        The most probable source class of each sample, strings or integers.
    y : array of shape (n,)
        Target labels, strings or integers.

    Returns
    -------
    float

    References
    ----------
    A. T. Tran, C. V. Nguyen, T. Hassner, "Transferability and Hardness of Supervised
    Classification Tasks", ICCV 2019.

    Examples
    --------
    >>> nce(["tabby", "siamese", "beagle", "beagle"], ["cat", "cat", "dog", "dog"])
    0.0
    >>> round(nce([7, 7, 7, 7], ["cat", "cat", "dog", "dog"]), 4)
    -0.6931
    """
    target, n_classes = as_classes(y, "y", at_least=2)
    source, n_source = as_classes(source_labels, "source_labels", n=len(target))
    pairs = np.bincount(source * n_classes + target, minlength=n_source * n_classes)
    joint = pairs.reshape(n_source, n_classes)
    conditional = joint / joint.sum(axis=1, keepdims=True)
    seen = joint > 0
    return float(np.sum(joint[seen] * np.log(conditional[seen])) / len(target))
