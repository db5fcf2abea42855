"""Measure how well the distance from the training images detects out-of-domain images.

    python benchmarks/out_of_domain.py [--store STORE] [--zoo ZOO] [--images FOLDER] [--top-k 3]
                                       [--seeds 5]

Without --store, the embedded digits and zoo are used.

Every part of the predictor (models, features, Gaussians, threshold) is fitted without the images on
which it is evaluated:

- held-out domains: models ranked and the predictor fitted without the domain, on 80 % of the images
  of the others; AUROC of the domain against the other 20 %, and the share of the domain flagged.
- unrelated images: fitted on 80 % of all images; AUROC against the other 20 %, and the share
  flagged. The images are the embedded digits (or, with --images, those of a folder), noise, crops
  of scikit-learn's sample photographs, coloured textures, and single-colour images.
- false alarms: the share of held-out training images flagged, over several seeds, and its maximum.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from sklearn.datasets import load_sample_images
from sklearn.metrics import roc_auc_score

import oodzoo
from oodzoo.combining.selection import select_features
from oodzoo.demo import write_digits
from oodzoo.demo.digits import DOMAINS, _scans, _texture, draw_digit
from oodzoo.extraction.columns import Columns, Samples
from oodzoo.extraction.features import ArraySource
from oodzoo.predictor import gaussian
from oodzoo.predictor.chunks import iter_features
from oodzoo.predictor.filing import image_files
from oodzoo.predictor.models import find_model
from oodzoo.ranking.ranker import rank, rank_for_test_domains
from oodzoo.zoo import load_zoo

HELD_OUT = 0.2


class Data:
    """The labels, domains and features of all images of a store."""

    def __init__(self, store: oodzoo.FeatureStore) -> None:
        self.store = store
        self.labels = np.concatenate([store.labels(d) for d in store.domains])
        counts = [len(store.labels(d)) for d in store.domains]
        self.domains = np.repeat(np.arange(len(store.domains)), counts)

    def features(self, models: Sequence[str]) -> dict[str, NDArray[np.float32]]:
        return {
            m: np.concatenate([self.store.features(m, d) for d in self.store.domains])
            for m in models
        }

    def kept(self, models: Sequence[str], rows: NDArray[np.bool_]) -> tuple[Columns, Samples]:
        """Select features on some rows; return the selection and those features of all rows."""
        features = self.features(models)
        source = ArraySource(
            {name: array[rows] for name, array in features.items()},
            self.labels[rows],
            self.domains[rows],
        )
        kept = select_features(source, models, method="paper").columns
        together = [features[name][:, kept.by_model[name]] for name in kept.models]
        return kept, Samples(np.concatenate(together, axis=1), self.labels, self.domains)


def fitted(samples: Samples, rows: NDArray[np.bool_]) -> gaussian.TrainingGaussian:
    features, labels, domains = samples
    return gaussian.fit_gaussian(Samples(features[rows], labels[rows], domains[rows]))


def unrelated(
    rng: np.random.Generator, folder: Path | None, digits: bool
) -> dict[str, list[Image.Image]]:
    """Return images that are unrelated to the training images, by kind."""
    kinds: dict[str, list[Image.Image]] = {}
    if digits:
        scans, _ = _scans()
        kinds["digits"] = [
            Image.fromarray(draw_digit(scans[at], list(DOMAINS)[at % len(DOMAINS)], at))
            for at in rng.choice(len(scans), 120, replace=False).tolist()
        ]
    if folder is not None:
        files = list(image_files([folder]))
        chosen = rng.choice(len(files), min(120, len(files)), replace=False)
        kinds[folder.name] = [Image.open(files[at]).convert("RGB") for at in chosen]
    kinds["noise"] = [
        Image.fromarray(rng.integers(0, 256, (224, 224, 3), np.uint8)) for _ in range(60)
    ]
    kinds["photographs"] = list(_crops(rng))
    textures = (np.array([_texture(rng) for _ in range(60)]) * 255).astype(np.uint8)
    kinds["textures"] = [Image.fromarray(pixels).resize((224, 224)) for pixels in textures]
    colours = rng.integers(0, 256, (60, 3)).tolist()
    kinds["one colour"] = [Image.new("RGB", (224, 224), tuple(colour)) for colour in colours]
    return kinds


def _crops(rng: np.random.Generator) -> Iterator[Image.Image]:
    for image in load_sample_images().images:
        height, width, _ = image.shape
        for _ in range(40):
            side = int(rng.integers(160, 400))
            top, left = rng.integers(0, height - side), rng.integers(0, width - side)
            yield Image.fromarray(image[top : top + side, left : left + side])


def row(name: str, home: NDArray[np.float64], away: NDArray[np.float64]) -> None:
    truth = np.repeat([0, 1], [len(home), len(away)])
    auroc = roc_auc_score(truth, np.concatenate([home, away]))
    print(f"{name:28} {auroc:7.3f} {100 * np.mean(away > 1):9.1f} {len(away):8}", flush=True)


def held_out_domains(data: Data, top_k: int) -> None:
    rankings = rank_for_test_domains(data.store)
    for number, domain in enumerate(data.store.domains):
        rng = np.random.default_rng(number)
        others = data.domains != number
        held = others & (rng.random(len(others)) < HELD_OUT)
        models = [line.model for line in rankings[domain].rows[:top_k]]
        _, samples = data.kept(models, others & ~held)
        model = fitted(samples, others & ~held)
        far = model.distances(samples.features[~others])
        row(f"domain {domain}", model.distances(samples.features[held]), far)


def unrelated_images(data: Data, arguments: argparse.Namespace) -> None:
    models = [line.model for line in rank(data.store).rows[: arguments.top_k]]
    rng = np.random.default_rng(0)
    kinds = unrelated(
        rng, arguments.images, digits=bool(arguments.store) and arguments.images is None
    )
    specs = load_zoo(arguments.zoo) if arguments.zoo else []
    loaded = {name: find_model(data.store, name, specs).load("cpu") for name in models}
    whole = Columns({name: np.arange(loaded[name].info.feature_dim) for name in models})
    seen = {
        kind: np.concatenate([p.features for p in iter_features(images, loaded, whole, 16)])
        for kind, images in kinds.items()
    }
    alarms = []
    for seed in range(arguments.seeds):
        held = np.random.default_rng(seed).random(len(data.labels)) < HELD_OUT
        kept, samples = data.kept(models, ~held)
        model = fitted(samples, ~held)
        home = model.distances(samples.features[held])
        alarms.append(100 * float(np.mean(home > 1)))
        if seed == 0:
            starts = np.cumsum([0, *(loaded[name].info.feature_dim for name in models)])
            columns = np.concatenate(
                [kept.by_model[name] + at for name, at in zip(models, starts, strict=False)]
            )
            for kind, features in seen.items():
                row(kind, home, model.distances(features[:, columns]))
    shown = ", ".join(f"{share:.1f}" for share in alarms)
    print(
        f"false alarms on held-out training images, %: mean {np.mean(alarms):.1f}, maximum "
        f"{max(alarms):.1f} of {shown}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--store", type=Path)
    parser.add_argument("--zoo")
    parser.add_argument("--images", type=Path)
    parser.add_argument("--top-k", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    with TemporaryDirectory() as folder:
        if arguments.store is None:
            write_digits(Path(folder) / "data")
            store = oodzoo.extract(Path(folder) / "data", "demo", Path(folder) / "store")
        else:
            store = oodzoo.FeatureStore(arguments.store)
        data = Data(store)
        print(f"{'images':28} {'AUROC':>7} {'flagged %':>9} {'images':>8}")
        held_out_domains(data, arguments.top_k)
        unrelated_images(data, arguments)


if __name__ == "__main__":
    main()
