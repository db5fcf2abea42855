"""Linear probe: leave-one-domain-out accuracy of each model on the embedded digits.

Run from the project's root: ``python -m tools.demo_zoo.probe`` prints the accuracy of every model,
and of the raw pixels, on each held-out domain. It does not need PyTorch.
"""

from __future__ import annotations

import argparse
import tempfile
import tomllib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from joblib import Parallel, delayed
from numpy.typing import NDArray
from PIL import Image
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from oodzoo.demo import write_digits, zoo_file

__all__ = [
    "Digits",
    "Probed",
    "leave_one_domain_out",
    "model_features",
    "probe",
    "probe_raw",
    "read_digits",
]

Array = NDArray[Any]


@dataclass(frozen=True)
class Digits:
    """The embedded data in memory: ``(n, 32, 32, 3)`` pixels, classes, domains."""

    pixels: Array
    labels: Array
    domains: Array


@dataclass(frozen=True)
class Probed:
    """Accuracy of one representation on each held-out domain, in percent."""

    name: str
    feature_dim: int
    domains: dict[str, float]

    @property
    def mean(self) -> float:
        return float(np.mean(list(self.domains.values())))


def read_digits(root: Path) -> Digits:
    """Read a folder written by :func:`oodzoo.demo.write_digits`."""
    paths = sorted(root.glob("*/*/*.png"))
    pixels = np.stack([np.asarray(Image.open(path)) for path in paths])
    labels = np.array([path.parent.name for path in paths])
    domains = np.array([path.parent.parent.name for path in paths])
    return Digits(pixels, labels, domains)


def model_features(model: dict[str, Any], folder: Path, pixels: Array) -> Array:
    """Run the model of one entry of ``folder/zoo.toml`` on the images."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # threads slow down models this small
    session = onnxruntime.InferenceSession(
        str(folder / model["source"].removeprefix("onnx/")),
        options,
        providers=["CPUExecutionProvider"],
    )
    colours = (pixels / np.float32(255) - np.float32(model["mean"])) / np.float32(model["std"])
    images = np.ascontiguousarray(colours.transpose(0, 3, 1, 2), dtype=np.float32)
    parts = [
        session.run([model["features"]], {"input": images[start : start + 64]})[0]
        for start in range(0, len(images), 64)
    ]
    return np.concatenate(parts)


def leave_one_domain_out(
    features: Array, digits: Digits, domains: Sequence[str] | None = None
) -> dict[str, float]:
    """Accuracy in percent of a regularised linear classifier on each held-out domain, or some."""
    names = domains or [str(domain) for domain in np.unique(digits.domains)]
    # for matrices of this size, threads help across folds, not inside BLAS
    with warnings.catch_warnings(), threadpool_limits(1):
        # 300 iterations are part of the protocol; full convergence does not matter
        warnings.simplefilter("ignore", ConvergenceWarning)
        folds = Parallel(n_jobs=-1, prefer="threads")(
            delayed(_held_out_accuracy)(name, features, digits) for name in names
        )
    return dict(zip(names, folds, strict=True))


def _held_out_accuracy(domain: str, features: Array, digits: Digits) -> float:
    held_out = digits.domains == domain
    classifier = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=300))
    classifier.fit(features[~held_out], digits.labels[~held_out])
    return 100.0 * float(classifier.score(features[held_out], digits.labels[held_out]))


def probe_raw(digits: Digits, domains: Sequence[str] | None = None) -> Probed:
    """Probe the raw pixels; on many features it takes longer than all models together."""
    raw = digits.pixels.reshape(len(digits.pixels), -1).astype(np.float32)
    return Probed("raw pixels", raw.shape[1], leave_one_domain_out(raw, digits, domains))


def probe(zoo: Path, digits: Digits) -> list[Probed]:
    """Probe every model of a ``zoo.toml``."""
    probed = []
    for model in tomllib.loads(zoo.read_text(encoding="utf-8"))["model"]:
        features = model_features(model, zoo.parent, digits.pixels)
        accuracy = leave_one_domain_out(features, digits)
        probed.append(Probed(model["name"], features.shape[1], accuracy))
    return probed


def probe_embedded(zoo: Path) -> list[Probed]:
    """Probe the raw pixels of the digits, which come first, and every model of ``zoo``."""
    with tempfile.TemporaryDirectory() as folder:
        digits = read_digits(write_digits(folder))
        return [probe_raw(digits), *probe(zoo, digits)]


def main(arguments: list[str] | None = None) -> None:
    """Print the table, best first."""
    parser = argparse.ArgumentParser(description="Probe a zoo on the embedded digits.")
    parser.add_argument("--zoo", type=Path, default=zoo_file(), help="a zoo.toml")
    probed = probe_embedded(parser.parse_args(arguments).zoo)
    domains = list(probed[0].domains)
    print(f"{'':28}{'d':>5}" + "".join(f"{name:>9}" for name in [*domains, "mean"]))
    for row in sorted(probed, key=lambda row: -row.mean):
        cells = [*row.domains.values(), row.mean]
        print(f"{row.name:28}{row.feature_dim:5}" + "".join(f"{cell:9.1f}" for cell in cells))


if __name__ == "__main__":
    main()
