"""The image files of the samples of a store, for what needs more than their features."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodzoo._text import count
from oodzoo.data.dataset import ImageDomains
from oodzoo.errors import InputError
from oodzoo.features.source import FeatureSource, StoreSource


@dataclass(frozen=True)
class StoredImages:
    """The images of a store.

    Attributes
    ----------
    data : ImageDomains
        The samples of the store, and no others.
    rows : dict of str to array
        For each domain, the position of each sample of the store among those of the data set in
        the domain.
    """

    data: ImageDomains
    rows: dict[str, NDArray[np.int64]]


def require_store(source: FeatureSource) -> StoreSource:
    """Raise an InputError unless features come from a store."""
    if not isinstance(source, StoreSource):
        raise InputError(
            "fine-tuning needs models and images, but there are arrays of features only; extract "
            "them into a store with oodzoo extract"
        )
    return source


def find_images(source: StoreSource, data: Any) -> StoredImages:
    """Find the images of the samples of a store by domain, label, group and content.

    Parameters
    ----------
    source : StoreSource
    data : ImageDomains, path, URL or object
        What :class:`oodzoo.ImageDomains` takes. It may have other images, too.

    Raises
    ------
    InputError
        If a sample of the store is not among them.
    """
    store, kind = source.store, source.task.kind
    found = data if isinstance(data, ImageDomains) else ImageDomains(data, task=kind)
    if found.modality != "image":
        raise InputError(f"{found.name!r} has {found.modality}s; only images can be fine-tuned on")
    if found.task.kind != kind:
        raise InputError(
            f"{found.name!r} has labels for {found.task.kind!r}, but the store for {kind!r}"
        )
    names = [str(name) for name in source.classes]
    if not source.task.is_classification and names != list(found.classes):
        raise InputError(
            f"{found.name!r} has the outputs {', '.join(found.classes)}, but the store "
            f"{', '.join(names)}"
        )
    if store.domains_proposed is not None:
        places = {path: domain for domain in store.domains for path in store.paths(domain)}
        found = found.with_domains(places, store.domains_proposed)
    known: dict[Any, list[int]] = defaultdict(list)
    for at, (sample, digest) in enumerate(zip(found.samples, found.digests, strict=True)):
        known[sample.domain, digest, sample.label, sample.group].append(at)
    chosen: dict[str, list[int]] = {}
    missing: list[str] = []
    for domain in source.domains:
        columns = zip(
            store.paths(domain),
            store.images(domain),
            store.label_texts(domain),
            store.groups(domain),
            strict=True,
        )
        chosen[domain] = []
        for path, *rest in columns:
            same = known[domain, *rest]
            if same:
                chosen[domain].append(same.pop())
            else:
                missing.append(path)
    if missing:
        n = sum(map(len, chosen.values())) + len(missing)
        raise InputError(
            f"{found.name!r} is not the data of the store {store.location!r}: "
            f"{len(missing):,} of its {count(n, 'image')} (such as "
            f"{missing[0]!r}) {'is' if len(missing) == 1 else 'are'} not there with the same "
            "content, domain and label; give the data of the extraction, or run oodzoo store sync"
        )
    kept = sorted(at for rows in chosen.values() for at in rows)
    positions = {}
    for domain, rows in chosen.items():
        order = {at: position for position, at in enumerate(sorted(rows))}
        positions[domain] = np.array([order[at] for at in rows], np.int64)
    return StoredImages(found.only(kept), positions)
