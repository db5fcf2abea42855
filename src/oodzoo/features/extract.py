"""Feature extraction: from images and models to a feature store."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from oodzoo._text import count
from oodzoo.data.dataset import ImageDomains
from oodzoo.data.unlabelled import UnlabelledImages, parse_unlabelled
from oodzoo.errors import InputError
from oodzoo.features.config import Extraction, ExtractionConfig, Reporter, Silent
from oodzoo.features.loop import ExtractionLoop
from oodzoo.features.members import Zoo, member_name, resolve_zoo
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.table import SampleTable
from oodzoo.store.writer import writing

Unlabelled = str | Path | UnlabelledImages | Sequence[str | Path | UnlabelledImages]
"""A folder of images without labels, or several."""


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
    unlabelled: Unlabelled = (),
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
    unlabelled : path, UnlabelledImages or a sequence of them
        Folders of images without labels, each a domain of its own named as the folder, or as in
        "NAME=FOLDER". Only what asks for them by name uses them.

    Returns
    -------
    FeatureStore
        Models that failed are skipped, with a warning.
    """
    dataset = dataset if isinstance(dataset, ImageDomains) else ImageDomains(dataset)
    config = ExtractionConfig(device, batch_size, precision, dtype, on_error)
    opened, extraction = run_extraction(
        dataset, zoo, Path(store), config, unlabelled=open_unlabelled(unlabelled)
    )
    for message in extraction.warnings():
        warnings.warn(message, stacklevel=2)
    return opened


def open_unlabelled(given: Unlabelled) -> list[UnlabelledImages]:
    """Open folders of images without labels; their names are distinct."""
    folders = [given] if isinstance(given, str | Path | UnlabelledImages) else given
    opened = [parse_unlabelled(folder) for folder in folders]
    names = [images.name for images in opened]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(
            f"two folders of unlabelled images are named {twice!r}; give one as NAME=FOLDER"
        )
    return opened


def run_extraction(
    dataset: ImageDomains,
    zoo: Zoo,
    path: Path,
    config: ExtractionConfig,
    reporter: Reporter | None = None,
    *,
    unlabelled: Sequence[UnlabelledImages] = (),
) -> tuple[FeatureStore, Extraction]:
    """Extract like :func:`extract`, report progress, and also return the outcome."""
    members = resolve_zoo(zoo)
    unreadable = {
        name: reason for part in (dataset, *unlabelled) for name, reason in part.unreadable.items()
    }
    if unreadable and config.on_error == "fail":
        name, reason = next(iter(unreadable.items()))
        raise InputError(f"cannot read {name!r}: {reason}")
    files = _files(dataset, unlabelled)
    if not files:
        name, reason = next(iter(unreadable.items()))
        raise InputError(f"none of the images can be read; first error: {name!r}: {reason}")
    table = SampleTable.of(dataset, unlabelled)
    with writing(path) as writer:
        loop = ExtractionLoop(files, writer, config, reporter or Silent())
        loop.reporter.start([member_name(member) for member in members], len(files))
        writer.require_all_images(table, unreadable)
        writer.set_table(table)
        writer.add_images()
        for group in loop.load_groups(members):
            loop.extract(group)
            group.clear()  # frees the memory for the next group
    extraction = loop.extraction
    extraction.unreadable = unreadable
    if len(extraction.failed) == len(members):
        name, reason = next(iter(extraction.failed.items()))
        context = "" if reason.startswith(f"model {name!r}") else f"model {name!r}: "
        raise InputError(f"no model could be used; first error: {context}{reason}")
    if extraction.interrupted:
        name, reason = next(iter(extraction.interrupted.items()))
        raise InputError(
            f"{count(len(extraction.interrupted), 'image')} could not be read after the data set "
            f"was listed, the first is {name!r}: {reason}; restore or remove it, and rerun the "
            "command to finish: all other features are kept"
        )
    store = FeatureStore(path)
    for name in sorted(loop.extracted - set(store.models)):
        extraction.failed[name] = "another process has removed its features, or is writing them"
    if not store.n_images:
        first, reason = next(iter({**store.skipped, **unreadable}.items()))
        raise InputError(f"none of the images can be read; first error: {first!r}: {reason}")
    return store, extraction


def _files(dataset: ImageDomains, unlabelled: Sequence[UnlabelledImages]) -> dict[str, Path]:
    """Return a file of each image, by its SHA-256."""
    pairs = [
        (digest, dataset.file(sample))
        for sample, digest in zip(dataset.samples, dataset.digests, strict=True)
    ]
    for part in unlabelled:
        pairs += [(d, part.file(path)) for path, d in zip(part.paths, part.digests, strict=True)]
    return {digest: file for digest, file in reversed(pairs) if digest is not None}
