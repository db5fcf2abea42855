"""Labelled samples of any kind that a predictor takes: images, texts, or features."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from oodzoo.core.errors import InputError
from oodzoo.core.remote.location import is_url
from oodzoo.core.text import count
from oodzoo.data.dataset import ImageDomains
from oodzoo.data.files import ImageFile, TextFile, modality_of
from oodzoo.data.listing import Issue, Sample
from oodzoo.data.proposals import is_request, propose_for
from oodzoo.data.sources import open_source
from oodzoo.data.sources.base import (
    SourceOptions,
    collect_roles,
    require_used,
    row_names,
)
from oodzoo.data.sources.column_roles import ONE_DOMAIN, as_names
from oodzoo.data.sources.targets import Targets, read_targets
from oodzoo.extraction.importing import read_feature_files
from oodzoo.predictor import Predictor
from oodzoo.predictor.chunks import checked_features
from oodzoo.tasks import Task
from oodzoo.tasks.task import Truth


class DataOptions(NamedTuple):
    """What is known about test data besides the data; see :class:`oodzoo.ImageDomains`."""

    root: str | os.PathLike[str] | None = None
    columns: Mapping[str, str] | None = None
    labels: Iterable[Any] | None = None
    domains: Iterable[Any] | str | None = None


@dataclass(frozen=True)
class LabelledSamples:
    """Labelled samples.

    Attributes
    ----------
    name : str
        What messages call the data.
    noun : str
        What a sample is called: "image", "text" or "sample".
    task : Task
        What the labels are.
    samples : sequence of Sample
        Path or name, domain and label of each.
    inputs : sequence or dict
        What the predictor takes: files, texts, or features by model.
    issues : sequence of Issue
        Problems that the listing shows.
    """

    name: str
    noun: str
    task: Task
    samples: Sequence[Sample]
    inputs: Any
    issues: Sequence[Issue] = ()

    @property
    def files(self) -> dict[str, ImageFile]:
        """Where images are, by path."""
        if self.noun != "image":
            return {}
        paths = (sample.path for sample in self.samples)
        return dict(zip(paths, self.inputs, strict=True))

    def inputs_at(self, rows: Sequence[int]) -> Any:
        """The inputs of some of the samples."""
        if isinstance(self.inputs, Mapping):
            return {name: array[list(rows)] for name, array in self.inputs.items()}
        return [self.inputs[row] for row in rows]


def open_samples(predictor: Predictor, data: Any, options: DataOptions) -> LabelledSamples:
    """Open labelled data, without reading images.

    Raises
    ------
    InputError
        If the data cannot be read, or is not of the kind that the predictor takes.
    """
    if isinstance(data, ImageDomains):
        return _opened(predictor, data, options)
    if isinstance(data, str | os.PathLike) and _is_feature_file(predictor, data):
        return _feature_file(predictor, Path(data), options)
    if predictor.features_only or _are_features(predictor, data):
        return _arrays(predictor, data, options)
    return _listed(predictor, data, options)


# --- images and texts ------------------------------------------------------------------------


def _opened(predictor: Predictor, data: ImageDomains, options: DataOptions) -> LabelledSamples:
    if given := [name for name, value in options._asdict().items() if value is not None]:
        raise InputError(f"{given[0]}= is not used with an open data set; leave it out")
    _require_modality(predictor, data.name, data.modality)
    inputs = _inputs(data.files)
    return LabelledSamples(data.name, data.modality, data.task, data.samples, inputs)


def _listed(predictor: Predictor, data: Any, options: DataOptions) -> LabelledSamples:
    columns, domains = options.columns, options.domains
    if predictor.modality == "text" and "text" not in (columns or {}):
        columns = {**(columns or {}), "text": "text"}
    request = domains if isinstance(domains, str) and is_request(domains) else None
    given = SourceOptions(
        options.root,
        columns,
        options.labels,
        None if request is not None else domains,
        propose=options.domains is None or request is not None,
        task=predictor.task.kind,
        classes=[str(name) for name in predictor.classes_.tolist()],
    )
    listing = open_source(data, given)
    if request is not None:
        listing = propose_for(listing, request).listing
    modality = modality_of(listing.files)
    _require_modality(predictor, listing.name, modality)
    if not listing.samples:
        raise InputError(f"{listing.name!r} has no samples")
    return LabelledSamples(
        listing.name,
        modality,
        listing.task,
        listing.samples,
        _inputs(listing.files),
        listing.issues,
    )


def _inputs(files: Sequence[ImageFile]) -> list[Any]:
    return [file.text if isinstance(file, TextFile) else file for file in files]


def _require_modality(predictor: Predictor, name: str, modality: str) -> None:
    if predictor.features_only:
        raise InputError(
            f"the models of the predictor have features only, but {name!r} has {modality}s; give "
            "their features as one .npz, .parquet or .csv file"
        )
    if modality != predictor.modality:
        raise InputError(f"{name!r} has {modality}s; the predictor takes {predictor.modality}s")


# --- features --------------------------------------------------------------------------------


def _is_feature_file(predictor: Predictor, data: str | os.PathLike[str]) -> bool:
    """Whether a path is that of features, not of a table of images or texts."""
    if is_url(str(data)):
        return False
    suffix = Path(data).suffix.lower()
    return suffix == ".npz" or (predictor.features_only and not Path(data).is_dir())


def _are_features(predictor: Predictor, data: Any) -> bool:
    """Whether data is a dict of features by model."""
    if not isinstance(data, Mapping):
        return False
    return all(hasattr(data.get(model.name), "ndim") for model in predictor.models)


def _feature_file(predictor: Predictor, file: Path, options: DataOptions) -> LabelledSamples:
    if options.root is not None:
        raise InputError(f"root= is not used with features, got {str(file)!r}; leave it out")
    read = read_feature_files([file], names=options.columns)
    if not read.features:
        raise InputError(f"{str(file)!r} has no features")
    if not read.labels and options.labels is None:
        raise InputError(f"{str(file)!r} has no labels; a test needs them")
    features: Any = read.features
    if not read.named and len(features) == len(predictor.models) == 1:
        (features,) = features.values()  # the name of the file need not be that of the model
    own: dict[str, Any] = {"label": read.labels} if read.labels else {}
    own |= {"domain": read.columns["domain"]} if "domain" in read.columns else {}
    return _features(predictor, features, own, read.columns.get("path"), options, str(file))


def _arrays(predictor: Predictor, data: Any, options: DataOptions) -> LabelledSamples:
    name = type(data).__name__
    used = SourceOptions(options.root, options.columns, options.labels)
    require_used(used, name, ("labels",))
    if predictor.encoders and not isinstance(data, Mapping):
        return _labelled(predictor, data, len(data), {}, None, options, name)
    return _features(predictor, data, {}, None, options, name)


def _features(
    predictor: Predictor,
    features: Any,
    own: Mapping[str, Any],
    paths: Sequence[str] | None,
    options: DataOptions,
    name: str,
) -> LabelledSamples:
    checked = checked_features(features, predictor.models)
    n = len(next(iter(checked.values())))
    return _labelled(predictor, checked, n, own, paths, options, name)


def _labelled(
    predictor: Predictor,
    inputs: Any,
    n: int,
    own: Mapping[str, Any],
    paths: Sequence[str] | None,
    options: DataOptions,
    name: str,
) -> LabelledSamples:
    if not n:
        raise InputError(f"{name!r} has no rows")
    given = SourceOptions(
        None, None, options.labels, options.domains, propose=options.domains is None
    )
    roles = collect_roles(name, n, given, own)
    targets = _targets(predictor, roles["label"], name)
    domains = as_names(roles["domain"] or [ONE_DOMAIN] * n, "domain", name)
    for what, values in (("label", targets.texts), ("domain", domains), ("path", paths)):
        if values is not None and len(values) != n:
            raise InputError(f"{name!r} has {count(len(values), what)}, but {count(n, 'row')}")
    samples = list(map(Sample, paths or row_names(n), domains, targets.texts))
    return LabelledSamples(name, "sample", targets.task, samples, inputs)


def _targets(predictor: Predictor, labels: Any, name: str) -> Targets:
    """Read labels; the columns of a matrix without names are in the order of the predictor."""
    kind, known = predictor.task.kind, tuple(map(str, predictor.classes_.tolist()))
    numbers = isinstance(labels, list) and all(isinstance(row, list | tuple) for row in labels)
    if numbers and not any(isinstance(item, str) for row in labels for item in row):
        try:
            matrix = np.array(labels, np.float64)
        except (ValueError, TypeError):
            matrix = np.empty(0)
        if matrix.ndim == 2 and matrix.shape[1] == len(known):
            labels = {output: matrix[:, at].tolist() for at, output in enumerate(known)}
    return read_targets(labels, name, kind)


def truth_of(predicted: Task, known: Sequence[str], task: Task, texts: Sequence[str], source: str
) -> Truth:  # fmt: skip
    """Read the labels of samples for a predictor.

    Parameters
    ----------
    predicted : Task
        What the predictor predicts.
    known : sequence of str
        Its classes, numbers or labels.
    task : Task
        What the labels are.
    texts : sequence of str
        The label of each sample, as text.
    source : str
        What messages call the data.

    Raises
    ------
    InputError
        If the labels are of another kind, or none is known; or if a number is missing.
    """
    if task.kind != predicted.kind:
        raise InputError(
            f"{source!r} has labels for {task.kind!r}, but the predictor is for {predicted.kind!r}"
        )
    return task.truth(texts, tuple(known), source)
