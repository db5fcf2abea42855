"""Accuracy of linear probes on test domains, which scores are compared with."""

from __future__ import annotations

import numpy as np

from oodzoo.errors import InputError
from oodzoo.features.columns import Columns
from oodzoo.features.source import FeatureSource
from oodzoo.heads.linear import left_out_accuracies

PROBE_C = 0.01
"""C (inverse regularisation strength) of the logistic regression."""


def probe_accuracy(source: FeatureSource, model: str) -> dict[str, float]:
    """Compute the accuracy on each domain, in percent, of a linear probe trained on the others.

    The probe is a multinomial logistic regression with C = 0.01, on features standardised over the
    training domains.
    """
    samples = Columns.all_of(source, [model]).samples(source, source.domains)
    for position, name in enumerate(source.domains):
        present = np.unique(samples.labels[samples.domains != position])
        if len(present) < 2:
            raise InputError(
                f"the domains other than {name!r} have only the class "
                f"{source.classes[present[0]]!r}; a probe needs at least two classes to train on"
            )
    accuracies = left_out_accuracies(samples, len(source.classes), PROBE_C)
    return {name: 100 * share for name, share in zip(source.domains, accuracies, strict=True)}
