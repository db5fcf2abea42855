"""Accuracy of heads on test domains, which scores are compared with."""

from __future__ import annotations

import numpy as np

from oodzoo.errors import InputError
from oodzoo.features.columns import Columns
from oodzoo.features.source import FeatureSource, groups_of
from oodzoo.heads.linear import fit_head
from oodzoo.heads.paths import C_GRID

HEAD = "logistic regression, C chosen on the training domains"


def head_accuracy(
    source: FeatureSource, model: str, test: str, *, tested: FeatureSource | None = None
) -> float:
    """Measure the accuracy on a test domain, in percent, of a head trained on the other domains.

    The head is a linear probe, a logistic regression (:func:`oodzoo.heads.linear.fit_head`), with C
    chosen on the training domains. The accuracy is cached in the store.

    Parameters
    ----------
    source : FeatureSource
    model, test : str
        Name of the model and of the test domain.
    tested : FeatureSource, optional
        Source of the samples to test on, if it is another one; with the same classes.
    """

    def compute() -> dict[str, np.ndarray]:
        return {"accuracy": np.array(_measure(source, model, test, tested or source))}

    found = source.cached("head-accuracy", [model], compute, settings=f"{test!r}, {C_GRID}")
    return float(found["accuracy"])


def _measure(source: FeatureSource, model: str, test: str, tested: FeatureSource) -> float:
    training = [domain for domain in source.domains if domain != test]
    columns = Columns.all_of(source, [model])
    samples = columns.samples(source, training)
    present = np.unique(samples.labels)
    if len(present) < 2:
        raise InputError(
            f"the domains other than {test!r} have only the class {source.classes[present[0]]!r}; "
            "a head needs at least two classes to train on"
        )
    head = fit_head(samples, len(source.classes), groups=groups_of(source, training))
    unseen = columns.samples(tested, [test])
    right = head.logits(unseen.features).argmax(axis=1) == unseen.labels
    return 100 * float(np.mean(right))
