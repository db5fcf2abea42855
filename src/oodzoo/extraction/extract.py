"""Feature extraction: from images and models to a feature store; unlabelled images added to one."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from oodzoo.core.errors import InputError
from oodzoo.core.events import Listeners
from oodzoo.core.options import Compute, options_of, parse_devices, require_known
from oodzoo.core.text import count
from oodzoo.data.dataset import ImageDomains
from oodzoo.data.sources.folder import UnlabelledImages, parse_unlabelled
from oodzoo.extraction.engines import Engine, WorkPart, open_engine
from oodzoo.extraction.extractor import Extractor, plan_missing
from oodzoo.extraction.loop import ExtractionLoop
from oodzoo.extraction.models import Zoo, find_spec
from oodzoo.extraction.outcome import (
    Extraction,
    ExtractionConfig,
    ExtractionOptions,
    ExtractionProgress,
    Timings,
)
from oodzoo.extraction.target import require_usable
from oodzoo.store.feature_store import FeatureStore, UnfinishedStoreError
from oodzoo.store.table import SampleTable
from oodzoo.store.writer import writing
from oodzoo.zoo import ModelSpec
from oodzoo.zoo.preprocessing import Decode
from oodzoo.zoo.prompts import Prompts

Unlabelled = str | Path | UnlabelledImages | Sequence[str | Path | UnlabelledImages]
"""A folder of images without labels, or several."""


def extract(
    dataset: Any,
    zoo: Zoo,
    store: str | Path,
    *,
    device: str = "auto",
    batch_size: int | None = None,
    unlabelled: Unlabelled = (),
    class_names: Mapping[str, str] | None = None,
    prompts: Sequence[str] | None = None,
    listener: Listeners | None = None,
    **options: Unpack[ExtractionOptions],
) -> FeatureStore:
    """Extract the features of every image with every model of a zoo into a feature store.

    Only missing features are computed: an interrupted extraction is resumed by the same call, and
    models, images or domains can be added later.

    Parameters
    ----------
    dataset : ImageDomains, path, URL or object
        A data set, or what :class:`oodzoo.ImageDomains` takes.
    zoo : str, path or sequence
        Anything that :func:`oodzoo.load_zoo` accepts or returns, or a sequence of specs and
        loaded models.
    store : path or URL
        Folder of the feature store.
    device : str, default "auto"
        "cpu", "cuda", "cuda:1", "mps"; "auto" chooses the fastest one available. Several, as
        "cuda:0,cuda:1", are used by a process each; "all" names every GPU of this machine.
    batch_size : int, optional
        Images per forward pass; by default chosen for the device.
    precision : {"float32", "bfloat16", "float16"}
        Compute precision (PyTorch models).
    dtype : {"float32", "float16"}
        Storage type of the features.
    on_error : {"skip", "fail"}
        Whether an unreadable image is skipped and recorded, or stops the extraction.
    decode : {"reduced", "full"}
        Whether a large JPEG may be decoded at a reduced scale, which has at least twice the width
        and height that the model resizes it to. It is recorded for each model, and predictors
        decode in the same way.
    unlabelled : path, UnlabelledImages or a sequence of them
        Folders of images without labels, each a domain of its own named as the folder, or as in
        "NAME=FOLDER". Only what asks for them by name uses them.
    class_names : mapping of str to str, optional
        The text of each class, for zero-shot predictions of CLIP-like models. By default the class
        itself, with underscores as blanks, or what the store has.
    prompts : sequence of str, optional
        Templates that the texts are put into, such as "a photo of a {}."; by default some of
        CLIP's, or those of the store. Other texts are embedded anew; no feature is computed again.
    engine : {"local", "ray"}
        Where models run: in processes of this machine, or on a Ray cluster. All machines must see
        the data, the models and the store under the same paths.
    address : str, optional
        `host:port` of an existing Ray cluster, or "auto" for the one on this machine. By default
        the one named by the environment variable RAY_ADDRESS; without it, one is started on this
        machine and ends with the call.
    listener : Listener or sequence of Listener, optional
        Called as the extraction proceeds.

    Returns
    -------
    FeatureStore
        Models that failed are skipped, with a warning.
    """
    require_known("extract", options, ExtractionOptions)
    dataset = dataset if isinstance(dataset, ImageDomains) else ImageDomains(dataset)
    texts = Prompts(class_names, None if prompts is None else tuple(prompts))
    given = {"device": device, "batch_size": batch_size, "prompts": texts, **options}
    config, compute = options_of(ExtractionConfig, given), options_of(Compute, given)
    targets = open_unlabelled(unlabelled)
    with open_engine(compute) as opened_engine:
        opened, extraction = run_extraction(
            dataset,
            zoo,
            store,
            config,
            listener=listener,
            unlabelled=targets,
            engine=opened_engine,
        )
    if extraction.unreadable:
        path, reason = next(iter(extraction.unreadable.items()))
        n = count(len(extraction.unreadable), "image")
        warnings.warn(
            f"left out {n} that cannot be read; the first is {path!r}: {reason}", stacklevel=2
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
    path: str | Path,
    config: ExtractionConfig,
    *,
    listener: Listeners | None = None,
    unlabelled: Sequence[UnlabelledImages] = (),
    engine: Engine | None = None,
) -> tuple[FeatureStore, Extraction]:
    """Extract like :func:`extract`, and also return the outcome."""
    with Extractor(
        dataset, zoo, path, config, listener=listener, unlabelled=unlabelled, engine=engine
    ) as extractor:
        extractor.extract()
    extraction = extractor.extraction
    require_usable_store(extraction, len(extractor.models))
    store = FeatureStore(path)
    extractor.add_class_embeddings(store)
    done = set(extractor.models) - extraction.failed.keys()
    for name in sorted(done - set(store.models)):
        extraction.failed[name] = "another process has removed its features, or is writing them"
    if not store.n_images:
        first, reason = next(iter({**store.skipped, **extraction.unreadable}.items()))
        raise InputError(f"none of the images can be read; first error: {first!r}: {reason}")
    return store, extraction


def extract_part(
    dataset: ImageDomains,
    zoo: Zoo,
    path: str | Path,
    config: ExtractionConfig,
    part: WorkPart,
    *,
    listener: Listeners | None = None,
    unlabelled: Sequence[UnlabelledImages] = (),
) -> tuple[FeatureStore | None, Extraction]:
    """Do one of several parts of an extraction.

    The store is None if no model is finished yet, because other parts are missing.
    """
    with Extractor(
        dataset, zoo, path, config, listener=listener, unlabelled=unlabelled, part=part
    ) as extractor:
        extractor.extract()
    require_usable_store(extractor.extraction, len(extractor.models))
    try:
        store = FeatureStore(path)
    except UnfinishedStoreError:
        return None, extractor.extraction
    extractor.add_class_embeddings(store)
    return store, extractor.extraction


def require_usable_store(extraction: Extraction, n_models: int) -> None:
    """Reject the outcome of an extraction without any model, or with images that were changed."""
    if len(extraction.failed) == n_models:
        name, reason = next(iter(extraction.failed.items()))
        context = "" if reason.startswith(f"model {name!r}") else f"model {name!r}: "
        raise InputError(f"no model could be used; first error: {context}{reason}")
    _require_unchanged(extraction, "the data set")


def _require_unchanged(extraction: Extraction, listed: str) -> None:
    if extraction.interrupted:
        path, reason = next(iter(extraction.interrupted.items()))
        raise InputError(
            f"{count(len(extraction.interrupted), 'image')} could not be read after {listed} was "
            f"listed, the first is {path!r}: {reason}; restore or remove it, and rerun the command "
            "to finish: all other features are kept"
        )


def add_unlabelled(
    store: FeatureStore,
    images: UnlabelledImages,
    *,
    zoo: Sequence[ModelSpec] = (),
    device: str = "auto",
    listener: Listeners | None = None,
) -> tuple[FeatureStore, Extraction]:
    """Extract unlabelled images into a store with all of its models.

    Only missing features are computed; if there are none, no model is loaded. Images that the
    store has under the same name are replaced.

    Parameters
    ----------
    store : FeatureStore
    images : UnlabelledImages
    zoo : sequence of ModelSpec
        New location of the models, if they moved since the extraction.
    device : str, default "auto"
        See :func:`oodzoo.extract`; of several devices, the first is used.
    listener : Listener or sequence of Listener, optional

    Returns
    -------
    FeatureStore
        The store, opened again.
    Extraction
        What was done.

    Raises
    ------
    InputError
        If all images are also in the labelled domains, or if a model cannot be loaded. The store
        then has the domains as before; features that other models have computed are kept for the
        next time.
    """
    require_usable(images, {domain: store.images(domain) for domain in store.domains})
    files = images.files_by_digest
    (domain,) = SampleTable.of(None, [images]).domains
    table = store.table.replacing(domain)
    lacking = [name for name in store.models if store.coverage(name).missing(files)]
    extraction = Extraction(store.path, unreadable=images.unreadable)
    if table == store.table and not lacking:
        return store, extraction
    groups = _groups(store, lacking, zoo)  # fails before the work
    here = parse_devices(device)[0]
    with (
        writing(store.path) as writer,
        ExtractionProgress(listener, lacking, len(files)) as progress,
    ):
        writer.table = writer.table.replacing(domain)
        writer.add_images()
        timings = Timings(store.path, extraction, progress)
        for (precision, dtype, decode), specs in groups.items():
            config = ExtractionConfig(here, precision=precision, dtype=dtype, decode=decode)
            loop = ExtractionLoop(files, writer, config, progress, extraction)
            for group in loop.load_groups(specs):
                names = [loaded.name for loaded in group]
                loop.extract(group, plan_missing(writer, names, files, progress))
                group.clear()  # frees the memory for the next group
            for spec in specs:
                timings.save(spec.name, spec)
        if extraction.failed:
            model, reason = next(iter(extraction.failed.items()))
            raise InputError(
                f"model {model!r} has no features of the unlabelled domain {images.name!r}: "
                f"{reason}"
            )
        _require_unchanged(extraction, "the folder")
        writer.finish()
    return FeatureStore(store.path), extraction


def _groups(
    store: FeatureStore, models: Sequence[str], zoo: Sequence[ModelSpec]
) -> dict[tuple[str, str, Decode], list[ModelSpec]]:
    """Find the models in the zoo or where the store recorded them, by the options they need."""
    groups: dict[tuple[str, str, Decode], list[ModelSpec]] = defaultdict(list)
    for name in models:
        stored = store.model(name)
        if stored.preprocessing is None or stored.source == "python":
            what = f"the features of model {name!r} in the store {store.location!r} were imported"
            if stored.source == "python":
                what = f"model {name!r} of the store {store.location!r} is a Python function"
            raise InputError(
                f"{what}, so it cannot be run on other images; remove it with `oodzoo store rm`, "
                "or give the features of the target in Python (target={model: array})"
            )
        spec = find_spec(store, stored, zoo)
        groups[stored.precision, stored.dtype, stored.decode].append(spec)
    return groups
