"""What scores are judged by: the accuracy of linear probes on domains they have not seen."""

from __future__ import annotations

import numpy as np

from oodzoo.errors import InputError
from oodzoo.features.columns import Columns, Samples
from oodzoo.features.source import FeatureSource
from oodzoo.heads.linear import fit_head

STRENGTH = 0.01
"""C of the logistic regression."""


def probe_accuracy(source: FeatureSource, model: str) -> dict[str, float]:
    """Percent of each domain that a linear probe trained on the others gets right.

    Multinomial logistic regression with C = 0.01, on features standardised over the training
    domains.
    """
    features, labels, domains = Columns.all_of(source, [model]).samples(source, source.domains)
    accuracy = {}
    for number, name in enumerate(source.domains):
        left_out = domains == number
        training = Samples(features[~left_out], labels[~left_out], domains[~left_out])
        if len(np.unique(training.labels)) < 2:
            only = source.classes[training.labels[0]]
            raise InputError(
                f"the domains other than {name!r} have the class {only!r} alone; "
                "a probe needs two classes to train on"
            )
        head = fit_head(training, len(source.classes), C=STRENGTH)
        predicted = head.logits(features[left_out]).argmax(axis=1)
        accuracy[name] = 100 * float(np.mean(predicted == labels[left_out]))
    return accuracy
