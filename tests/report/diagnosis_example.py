"""Made-up diagnoses of predictions; their numbers are drawn at random."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from oodzoo.tasks import CLASSIFICATION
from oodzoo.tasks.classification import ClassDiagnosis


def example_diagnosis(
    classes: Sequence[str], domain: str = "sketch", accuracy: float = 75.0, images: int = 30
) -> ClassDiagnosis:
    """Predictions for some images of each class; most mistakes take a class for the next one."""
    rng = np.random.default_rng(len(domain))
    n_classes = len(classes)
    y = np.repeat(np.arange(n_classes), images)
    shift = rng.choice([1, 2], len(y), p=[0.8, 0.2])
    predicted = np.where(rng.random(len(y)) < accuracy / 100, y, (y + shift) % n_classes)
    confidence = rng.uniform(0.4, 1, len(y))
    probabilities = np.full((len(y), n_classes), 1e-3)
    probabilities[np.arange(len(y)), predicted] = confidence
    paths = [f"{domain}/{classes[c]}/{at}.jpg" for at, c in enumerate(y.tolist())]
    return CLASSIFICATION.diagnose(probabilities, y, classes, paths=paths, domains=domain)


def example_diagnoses(
    classes: Sequence[str], domains: Mapping[str, float], images: int = 30
) -> dict[str, ClassDiagnosis]:
    """A diagnosis for each domain, with about this accuracy."""
    return {
        domain: example_diagnosis(classes, domain, accuracy, images)
        for domain, accuracy in domains.items()
    }
