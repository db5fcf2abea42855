"""Example images of a run, which its report shows."""

from __future__ import annotations

import io
import itertools
from collections.abc import Mapping, Sequence

from oodzoo.combining.evaluation.result import Evaluation
from oodzoo.data import images
from oodzoo.data.dataset import ImageDomains
from oodzoo.data.files import (
    EmbeddedFile,
    ImageFile,
    ObjectImage,
    StoredFile,
    UnreadableImageError,
    absolute,
)
from oodzoo.data.listing import shown_label
from oodzoo.data.sampling import strata_of
from oodzoo.report.data import shown_pairs
from oodzoo.report.diagnosis import shown_mistakes
from oodzoo.report.record import Example
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.leaks.pairs import NearDuplicates

EXAMPLES = 12
"""Images of each domain that the record names; the report shows some of them."""

_SIDE = 144
"""Largest side in pixels of an image that is embedded."""


def choose_examples(dataset: ImageDomains) -> dict[str, tuple[Example, ...]]:
    """Choose some images of each domain, one of each class, or other stratum, in turn."""
    return {domain: _examples(dataset, domain) for domain in dataset.domains}


def _examples(dataset: ImageDomains, domain: str) -> tuple[Example, ...]:
    samples = [sample for sample in dataset.samples if sample.domain == domain]
    strata = strata_of(dataset.task, [sample.label for sample in samples])
    by_stratum: dict[str, list[Example]] = {stratum: [] for stratum in sorted(set(strata))}
    for sample, stratum in zip(samples, strata, strict=True):
        label = shown_label(dataset.task, sample.label)
        by_stratum[stratum].append(Example(sample.path, label))
    turns = itertools.chain.from_iterable(itertools.zip_longest(*by_stratum.values()))
    return tuple(itertools.islice((example for example in turns if example), EXAMPLES))


def example_files(
    dataset: ImageDomains, examples: Mapping[str, Sequence[Example]]
) -> dict[str, StoredFile]:
    """Return where the examples are, by path; images of Python objects are embedded."""
    wanted = {example.path for some in examples.values() for example in some}
    found: dict[str, StoredFile] = {}
    for sample, file in zip(dataset.samples, dataset.files, strict=True):
        if sample.path in wanted and (stored := stored_file(file)) is not None:
            found[sample.path] = stored
    return found


def leak_files(
    leaks: NearDuplicates, store: FeatureStore, files: Mapping[str, ImageFile]
) -> dict[str, StoredFile]:
    """Return where the near-duplicates are that the report shows, by their keys."""
    shown = [
        image
        for pair in shown_pairs(leaks)
        for image in zip(pair.keys, pair.domains, pair.paths, strict=True)
    ]
    return _files(shown, store, files)


def mistake_files(
    evaluation: Evaluation, store: FeatureStore, files: Mapping[str, ImageFile]
) -> dict[str, StoredFile]:
    """Return where the mistakes are that the report shows, by their keys."""
    shown = [
        (mistake.key, domain, mistake.path)
        for domain, mistakes in shown_mistakes(evaluation).items()
        for mistake in mistakes
    ]
    return _files(shown, store, files)


def _files(
    images: Sequence[tuple[str, str, str]], store: FeatureStore, files: Mapping[str, ImageFile]
) -> dict[str, StoredFile]:
    """Find images, given by key, domain and path."""
    digests = {
        domain: dict(zip(store.paths(domain), store.images(domain), strict=True))
        for domain in {domain for _, domain, _ in images}
    }
    found: dict[str, StoredFile] = {}
    for key, domain, path in images:
        file = files.get(digests[domain][path])
        if file is not None and (stored := stored_file(file)) is not None:
            found[key] = stored
    return found


def stored_file(file: ImageFile) -> StoredFile | None:
    """Return a file that can be read later; None if an image in memory cannot be decoded."""
    if not isinstance(file, ObjectImage):
        return absolute(file)
    try:
        image = images.read(file)
    except UnreadableImageError:
        return None
    image.thumbnail((_SIDE, _SIDE))
    content = io.BytesIO()
    image.save(content, "PNG")
    return EmbeddedFile(content.getvalue())
