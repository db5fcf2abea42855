"""Features of a few models in several domains, for each task."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import oodzoo
from oodzoo.tasks import Kind

Y = np.tile(["no", "yes"], 45)
DOMAINS = np.repeat(["a", "b", "c"], 30)


def rows(seed: int = 0, width: int = 3) -> NDArray[np.float64]:
    """Features (90, width) that tell the classes apart."""
    shift = 2.0 * (Y == "yes")[:, None]
    found: NDArray[np.float64] = np.random.default_rng(seed).normal(size=(90, width)) + shift
    return found


def problem(kind: Kind, outputs: int = 2) -> tuple[dict[str, Any], Any, Any]:
    """Two useful models and noise, in four domains."""
    rng = np.random.default_rng(0)
    domains = np.repeat(["a", "b", "c", "d"], 50)
    latent = rng.normal(size=(200, 4)) + 0.3 * rng.normal(size=(4, 4))[np.arange(200) // 50]
    y = latent[:, :outputs] + 0.2 * rng.normal(size=(200, outputs))
    y = y * 30 + 100 if kind == "regression" else (y > 0).astype(int)
    features = {
        "one": latent @ rng.normal(size=(4, 8)) + 0.1 * rng.normal(size=(200, 8)),
        "two": latent @ rng.normal(size=(4, 6)) + 0.3 * rng.normal(size=(200, 6)),
        "noise": rng.normal(size=(200, 5)),
    }
    return features, y, domains


def used(predictor: oodzoo.Predictor, features: dict[str, Any]) -> dict[str, Any]:
    """The features of the models that a predictor uses."""
    return {model.name: features[model.name] for model in predictor.models}


def changed(predictor: oodzoo.Predictor, **parts: Any) -> oodzoo.Predictor:
    """The predictor with other parts, and without encoders."""
    return replace(predictor, **{"encoders": {}, "device": "cpu", **parts})


def truth(paths: list[Any]) -> list[str]:
    """The classes of images in folders of classes."""
    return [path.parent.name for path in paths]
