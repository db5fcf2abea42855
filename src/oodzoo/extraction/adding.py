"""Adding unlabelled images to a feature store, with the models that the store records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from oodzoo.core.errors import InputError
from oodzoo.core.events import Listeners
from oodzoo.core.text import count
from oodzoo.data.unlabelled import UnlabelledImages
from oodzoo.extraction.config import Extraction, ExtractionConfig
from oodzoo.extraction.engines.choice import parse_devices
from oodzoo.extraction.loop import ExtractionLoop
from oodzoo.extraction.members import find_spec
from oodzoo.extraction.planning import plan_missing
from oodzoo.extraction.progress import ExtractionProgress
from oodzoo.extraction.target import require_usable
from oodzoo.extraction.timing import Timings
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.table import SampleTable
from oodzoo.store.writer import writing
from oodzoo.zoo import ModelSpec


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
        for (precision, dtype), specs in groups.items():
            config = ExtractionConfig(here, precision=precision, dtype=dtype)
            loop = ExtractionLoop(files, writer, config, progress, extraction)
            for group in loop.load_groups(specs):
                names = [loaded.name for loaded in group]
                loop.extract(group, plan_missing(writer, names, files, progress))
                group.clear()  # frees the memory for the next group
            for spec in specs:
                timings.save(spec.name, spec)
        _require_complete(extraction, images.name)
        writer.finish()
    return FeatureStore(store.path), extraction


def _groups(
    store: FeatureStore, models: Sequence[str], zoo: Sequence[ModelSpec]
) -> dict[tuple[str, str], list[ModelSpec]]:
    """Find the models in the zoo or where the store recorded them, by precision and dtype."""
    groups: dict[tuple[str, str], list[ModelSpec]] = defaultdict(list)
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
        groups[stored.precision, stored.dtype].append(spec)
    return groups


def _require_complete(extraction: Extraction, name: str) -> None:
    if extraction.failed:
        model, reason = next(iter(extraction.failed.items()))
        raise InputError(
            f"model {model!r} has no features of the unlabelled domain {name!r}: {reason}"
        )
    if extraction.interrupted:
        path, reason = next(iter(extraction.interrupted.items()))
        raise InputError(
            f"{count(len(extraction.interrupted), 'image')} could not be read after the folder was "
            f"listed, the first is {path!r}: {reason}; restore or remove it, and rerun the command "
            "to finish: all other features are kept"
        )
