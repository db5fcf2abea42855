"""Results of tests, for the page: classes, numbers and several labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from oodzoo.data.files import EmbeddedFile, ImageFile
from oodzoo.predictor.assessment import Measurement, Missed, OutOfDomain, Promise, TestResult
from oodzoo.tasks import Kind, task_of


def example_test(
    task: Kind = "classification",
    names: Sequence[str] = ("cat", "dog", "horse", "sheep"),
    domains: Sequence[str] = ("dawn", "dusk", "noon"),
    n: int = 300,
    image: bytes | None = None,
) -> TestResult:
    """A test of a middling predictor, with something of everything to report."""
    rng = np.random.default_rng(0)
    width = len(names)
    y: Any
    if task == "classification":
        y = rng.integers(0, width, n)
        logits = 1.5 * np.eye(width)[y] + rng.normal(size=(n, width))
        values = np.exp(2 * logits) / np.exp(2 * logits).sum(axis=1, keepdims=True)
    elif task == "regression":
        y = 30 + 10 * rng.normal(size=(n, width))
        values = y + 6 * rng.normal(size=(n, width))
    else:
        y = (rng.random((n, width)) < 0.3).astype(float)
        values = 1 / (1 + np.exp(-(3 * y - 1.5 + 1.5 * rng.normal(size=(n, width)))))
    paths = [f"{at}/photo-{at}.jpg" for at in range(n)]
    place = np.array([domains[at % len(domains)] for at in range(n)], object)

    def part(mine: np.ndarray) -> Measurement:
        found = task_of(task).diagnose(
            values[mine],
            y[mine],
            names,
            paths=[paths[at] for at in mine],
            domains=place[mine].tolist(),
        )
        return Measurement(found, task_of(task).interval(values[mine], y[mine]))

    files: dict[str, ImageFile] = {} if image is None else dict.fromkeys(paths, EmbeddedFile(image))
    verdicts: dict[str, Any] = dict.fromkeys(domains, "within")
    verdicts[domains[0]] = "below"
    return TestResult(
        task=task,
        data="/home/ada/photos/new",
        noun="image",
        choice="pool",
        models=("resnet_imagenet", "vit_clip"),
        overall=part(np.arange(n)),
        domains={name: part(np.flatnonzero(place == name)) for name in domains},
        unknown={"emu": 3} if task == "classification" else {},
        known_accuracy=71.0 if task == "classification" else None,
        absent=(),
        unreadable=(Missed("x/broken.jpg", domains[0], "the file is empty"),),
        out_of_domain=OutOfDomain(12, 41.7, 72.1),
        promise=Promise(78.0, (70.0, 86.0), verdicts),
        files=files,
    )
