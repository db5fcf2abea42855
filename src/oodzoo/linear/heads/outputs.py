r"""Heads made of class embeddings.

A text tower gives an embedding :math:`t_c` of each class. On features z of unit length, zero-shot
classification is a linear head that needs no training,

.. math:: \ell_c(z) = s\,t_c^\top z + b.

A head that starts from it adds a logistic regression, :math:`\ell(z) + Wz + a`, whose L2 penalty is
that of W: the distance from the zero-shot head, which is the limit of small C but for a.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from oodzoo.extraction.columns import Samples
from oodzoo.linear.heads.linear import LinearHead, fit_head
from oodzoo.linear.heads.paths import left_out_masks, left_out_paths
from oodzoo.linear.heads.samples import check_samples


def zero_shot_head(
    class_embeddings: NDArray[np.floating[Any]], scale: float, bias: float = 0.0
) -> LinearHead:
    """Make the head of features of unit length; its C is 0, because nothing was trained.

    Examples
    --------
    >>> head = zero_shot_head(np.float32([[1, 0], [0, 1]]), 100.0)
    >>> head.probabilities(np.float32([[0.8, 0.6]])).round(3).tolist()
    [[1.0, 0.0]]
    """
    weights = scale * np.asarray(class_embeddings, np.float64)
    return LinearHead(weights, np.full(len(weights), float(bias)), 0.0)


def left_out_zero_shot(
    samples: Samples,
    n_classes: int,
    left_out: Sequence[AbstractSet[int]],
    *,
    zero_shot: LinearHead,
    device: str | None = None,
) -> list[NDArray[np.float32]]:
    """Predict domains by the zero-shot head, in the form of :func:`~.paths.left_out_paths`.

    There is one setting, and the training domains do not matter.
    """
    check_samples(samples, n_classes)
    masks = left_out_masks(samples, left_out)
    predicted = log_softmax(zero_shot.logits(samples.features), axis=1).astype(np.float32)
    return [predicted[None, mask] for mask in masks]


def left_out_from_zero_shot(
    samples: Samples,
    n_classes: int,
    left_out: Sequence[AbstractSet[int]],
    *,
    zero_shot: LinearHead,
    device: str | None = None,
) -> list[NDArray[np.float32]]:
    """Predict domains by heads that start from the zero-shot head, for each C."""
    offset = zero_shot.logits(samples.features)
    return left_out_paths(samples, n_classes, left_out, device=device, offset=offset)


def fit_from_zero_shot(
    samples: Samples, n_classes: int, C: float, zero_shot: LinearHead
) -> LinearHead:
    """Fit a head that starts from the zero-shot head; the result includes it."""
    fitted = fit_head(samples, n_classes, C=C, offset=zero_shot.logits(samples.features))
    return LinearHead(fitted.weights + zero_shot.weights, fitted.bias + zero_shot.bias, fitted.C)
