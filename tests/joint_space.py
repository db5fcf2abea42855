"""A made-up space of images and texts in which zero-shot classification is right."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oodzoo.extraction.importing import import_features
from oodzoo.store.class_embeddings import ClassEmbeddings, write_class_embeddings
from oodzoo.store.feature_store import FeatureStore

Floats = NDArray[np.float64]


class JointSpace(NamedTuple):
    """Features of images of any length around the direction of their class, and the directions."""

    features: dict[str, Floats]
    y: NDArray[Any]
    domains: NDArray[Any]
    texts: Floats


def joint_space(
    *, n: int = 24, n_domains: int = 4, n_classes: int = 4, d: int = 32, seed: int = 0
) -> JointSpace:
    """Two models: "clip", whose texts are right, with few and noisy images, and "plain"."""
    rng = np.random.default_rng(seed)
    texts = np.linalg.qr(rng.normal(size=(d, n_classes)))[0].T
    y = np.tile(np.arange(n) % n_classes, n_domains)
    domains = np.repeat([f"d{i}" for i in range(n_domains)], n)
    # A domain moves in directions without a text: it misleads what is trained, not the texts.
    others = np.linalg.qr(np.concatenate([texts, rng.normal(size=(d - n_classes, d))]).T)[0].T
    moved = rng.normal(size=(n_domains, n_classes, d - n_classes)) @ others[n_classes:]
    shift = moved[np.repeat(np.arange(n_domains), n), y]
    images = texts[y] + 0.15 * rng.normal(size=(len(y), d)) + 0.5 * shift
    lengths = 10 ** rng.uniform(-1, 1, (len(y), 1))
    plain = 0.5 * np.eye(n_classes)[y] + rng.normal(size=(len(y), n_classes))
    names = np.array([f"class_{at}" for at in range(n_classes)])
    return JointSpace({"clip": lengths * images, "plain": plain}, names[y], domains, texts)


def embeddings_of(space: JointSpace, *, scale: float = 10.0, bias: float = 0.0) -> ClassEmbeddings:
    """The texts as a store keeps them."""
    classes = tuple(np.unique(space.y).tolist())
    texts = space.texts.astype(np.float32)
    return ClassEmbeddings(classes, classes, ("a photo of a {}.",), texts, scale, bias)


def stored_space(folder: Path, space: JointSpace, *, texts: bool = True) -> FeatureStore:
    """A store of the features and, unless told otherwise, the texts of "clip"."""
    folder.mkdir(exist_ok=True)
    arrays: dict[str, Any] = {"labels": space.y, "domains": space.domains, **space.features}
    np.savez(folder / "f.npz", **arrays)
    store = import_features([folder / "f.npz"], folder / "store")
    if texts:
        identity = store.model("clip").identity
        write_class_embeddings(store.path, "clip", identity, embeddings_of(space))
    return FeatureStore(folder / "store")
