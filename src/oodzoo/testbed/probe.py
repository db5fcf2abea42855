"""Accuracy of linear probes on left-out domains, by which scores are judged."""

from __future__ import annotations

import numpy as np

from oodzoo.errors import InputError
from oodzoo.features.columns import Columns, Samples
from oodzoo.features.source import FeatureSource
from oodzoo.heads.linear import fit_head

PROBE_C = 0.01
"""C (inverse regularisation strength) of the logistic regression."""


def probe_accuracy(source: FeatureSource, model: str) -> dict[str, float]:
    """Compute the accuracy on each domain, in percent, of a linear probe trained on the others.

    The probe is a multinomial logistic regression with C = 0.01, on features standardised over the
    training domains.
    """
    features, labels, domains = Columns.all_of(source, [model]).samples(source, source.domains)
    accuracy = {}
    for position, name in enumerate(source.domains):
        left_out = domains == position
        training = Samples(features[~left_out], labels[~left_out], domains[~left_out])
        if len(np.unique(training.labels)) < 2:
            only = source.classes[training.labels[0]]
            raise InputError(
                f"the domains other than {name!r} have only the class {only!r}; "
                "a probe needs at least two classes to train on"
            )
        head = fit_head(training, len(source.classes), C=PROBE_C)
        predicted = head.logits(features[left_out]).argmax(axis=1)
        accuracy[name] = 100 * float(np.mean(predicted == labels[left_out]))
    return accuracy
