"""Feature extraction: from images and models to a feature store."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Literal

from oodzoo.data.dataset import ImageDomains
from oodzoo.errors import InputError
from oodzoo.features.config import Extraction, ExtractionConfig, Reporter, Silent
from oodzoo.features.loop import ExtractionLoop
from oodzoo.features.members import Zoo, member_name, resolve_zoo
from oodzoo.features.store import FeatureStore
from oodzoo.features.writer import writing


def extract(
    dataset: ImageDomains | str | Path,
    zoo: Zoo,
    store: str | Path,
    *,
    device: str = "auto",
    batch_size: int | None = None,
    precision: str = "float32",
    dtype: str = "float32",
    on_error: Literal["skip", "fail"] = "skip",
) -> FeatureStore:
    """Extract the features of every image with every model of a zoo into a feature store.

    Only missing features are computed: an interrupted extraction is resumed by the same call, and
    models, images or domains can be added later.

    Parameters
    ----------
    dataset : ImageDomains or path
        A data set, or what :class:`oodzoo.ImageDomains` takes.
    zoo : str, path or sequence
        Anything that :func:`oodzoo.load_zoo` accepts or returns, or a sequence of specs and
        loaded models.
    store : path
        Folder of the feature store.
    device : str, default "auto"
        "cpu", "cuda", "cuda:1", "mps"; "auto" chooses the fastest one available.
    batch_size : int, optional
        Images per forward pass; by default chosen for the device.
    precision : {"float32", "bfloat16", "float16"}
        Compute precision (PyTorch models).
    dtype : {"float32", "float16"}
        Storage type of the features.
    on_error : {"skip", "fail"}
        Whether an unreadable image is skipped and recorded, or stops the extraction.

    Returns
    -------
    FeatureStore
        Models that failed are skipped, with a warning.
    """
    dataset = dataset if isinstance(dataset, ImageDomains) else ImageDomains(dataset)
    config = ExtractionConfig(device, batch_size, precision, dtype, on_error)
    opened, extraction = run_extraction(dataset, zoo, Path(store), config)
    for message in extraction.warnings():
        warnings.warn(message, stacklevel=2)
    return opened


def run_extraction(
    dataset: ImageDomains,
    zoo: Zoo,
    path: Path,
    config: ExtractionConfig,
    reporter: Reporter | None = None,
) -> tuple[FeatureStore, Extraction]:
    """Extract like :func:`extract`, report progress, and also return the outcome."""
    members = resolve_zoo(zoo)
    with writing(path) as writer:
        loop = ExtractionLoop(dataset, writer, config, reporter or Silent())
        loop.reporter.start([member_name(member) for member in members], len(dataset))
        writer.add_images(dataset)
        for group in loop.load_groups(members):
            loop.extract(group)
            group.clear()  # frees the memory for the next group
    extraction = loop.extraction
    if len(extraction.failed) == len(members):
        name, reason = next(iter(extraction.failed.items()))
        context = "" if reason.startswith(f"model {name!r}") else f"model {name!r}: "
        raise InputError(f"no model could be used; first error: {context}{reason}")
    store = FeatureStore(path)
    if not store.n_images:
        first, reason = next(iter(store.skipped.items()))
        raise InputError(f"none of the images can be read; first error: {first!r}: {reason}")
    return store, extraction
