"""Zero-shot accuracy of CLIP-like models."""

from __future__ import annotations

from typing import Any

import numpy as np

from oodzoo.core.backend import to_numpy
from oodzoo.core.errors import InputError
from oodzoo.core.text import count
from oodzoo.ranking.scores.catalogue import score
from oodzoo.ranking.scores.statistics import as_classes, float64_blocks, labelled_samples


@score(
    "zero_shot",
    needs="class_embeddings",
    uses_domains=True,
    title="Zero-shot accuracy",
    reference="Radford et al., Learning Transferable Visual Models From Natural Language "
    "Supervision, ICML 2021",
)
def zero_shot(X: Any, class_embeddings: Any, y: Any, domains: Any = None) -> float:
    """Accuracy of the class whose text is nearest to the image, mean over domains.

    With the embedding tₖ of class k by the text tower, of unit length, an image with the features
    f is of the class::

        argmaxₖ fᵀtₖ / |f|

    Nothing is trained. Complexity O(ndC).

    Parameters
    ----------
    X : array of shape (n, d)
        Image embeddings.
    class_embeddings : array of shape (C, d)
        Text embeddings of the classes.
    y : array of shape (n,)
        The class of each sample, as a row of `class_embeddings`.
    domains : array of shape (n,), optional
        The domain of each sample; all domains weigh alike.

    Returns
    -------
    float
        From 0 to 1.

    References
    ----------
    A. Radford et al., "Learning Transferable Visual Models From Natural Language Supervision",
    ICML 2021.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[3.0, 1.0], [1.0, 2.0], [0.5, 0.1]])
    >>> round(zero_shot(X, np.eye(2), [0, 1, 1]), 4)
    0.6667
    >>> zero_shot(X, np.eye(2), [0, 1, 1], ["photo", "photo", "sketch"])
    0.5
    """
    backend, values, _, _ = labelled_samples(X, y)
    texts = backend.float64(backend.asarray(class_embeddings))
    if texts.ndim != 2 or texts.shape[1] != values.shape[1]:
        raise InputError(
            f"class_embeddings must have shape (C, {values.shape[1]}), as X has "
            f"{count(values.shape[1], 'feature')}, got {tuple(texts.shape)}"
        )
    labels = to_numpy(y)
    n_classes = int(texts.shape[0])
    numbers = labels.dtype.kind in "iu"
    wrong = labels[(labels < 0) | (labels >= n_classes)] if numbers else labels
    if len(wrong):
        raise InputError(
            f"y must be rows of class_embeddings, integers from 0 to {n_classes - 1}, got "
            f"{wrong[0].item()!r}"
        )
    # The argmax is the same for features of any length.
    predicted = [
        to_numpy(backend.xp.argmax(block @ texts.T, axis=1))
        for _, block in float64_blocks(backend, values)
    ]
    right = np.concatenate(predicted) == labels
    if domains is None:
        return float(right.mean())
    of_domain, n_domains = as_classes(domains, "domains", n=len(labels))
    return float(np.mean([right[of_domain == at].mean() for at in range(n_domains)]))
