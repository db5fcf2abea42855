"""Test a predictor on labelled data: images, texts, or features."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodzoo.core.errors import InputError
from oodzoo.core.events import Listeners, Stage
from oodzoo.core.remote.location import is_url
from oodzoo.core.text import count
from oodzoo.data.dataset import ImageDomains
from oodzoo.data.files import ImageFile, TextFile, modality_of
from oodzoo.data.listing import Issue, Listing, Sample
from oodzoo.data.proposals import is_request, propose_for
from oodzoo.data.sources import open_source
from oodzoo.data.sources.base import SourceOptions, collect_roles, require_used, row_names
from oodzoo.data.sources.column_roles import ONE_DOMAIN, as_names
from oodzoo.data.sources.targets import Targets, read_targets
from oodzoo.extraction.importing import read_feature_files
from oodzoo.predictor.assessment import (
    Measurement,
    Missed,
    OutOfDomain,
    TestResult,
    promise_of,
)
from oodzoo.predictor.chunks import checked_features
from oodzoo.predictor.prediction import Prediction, Unreadable
from oodzoo.predictor.predictor import Predictor, load
from oodzoo.tasks import Task
from oodzoo.tasks.task import Truth


def test(
    predictor: Predictor | str | os.PathLike[str],
    data: Any,
    *,
    root: str | os.PathLike[str] | None = None,
    columns: Mapping[str, str] | None = None,
    labels: Iterable[Any] | None = None,
    domains: Iterable[Any] | str | None = None,
    adapt: bool = False,
    listener: Listeners | None = None,
) -> TestResult:
    """Test a predictor on labelled data.

    Samples of classes that the predictor does not know count as wrong, and the accuracy without
    them is given, too. Images that cannot be read are listed, and in no figure.

    Parameters
    ----------
    predictor : Predictor, path or URL
    data : ImageDomains, path, URL or object
        Whatever :class:`oodzoo.ImageDomains` takes; one domain, or one class, will do. Also a
        folder `root/class/image`, which is one domain: it is told from `root/domain/class/image` by
        the classes of the predictor. For a predictor of texts, a table with a column of texts. For
        features, a file as `oodzoo import` reads it (.npz; for a predictor that has features only
        also .csv and .parquet), or a dict {model: array (n, d)} with `labels`.
    root, columns, labels
        As in :class:`oodzoo.ImageDomains`.
    domains : sequence or str, optional
        As there; by default those of the data, or one domain if it has none.
    adapt : bool, default False
        Whether to adapt to the samples of each domain first, without their labels, as
        :meth:`Predictor.adapted` does; a domain needs at least 20 samples then.
    listener : Listener or sequence of Listener, optional
        Receives the events of the stage "test".

    Returns
    -------
    TestResult

    Examples
    --------
    >>> import oodzoo
    >>> rng = np.random.default_rng(0)
    >>> y, place = np.arange(120) % 2, np.arange(120) % 3
    >>> X = rng.normal(size=(120, 4)) + 3 * y[:, None] + place[:, None]
    >>> predictor = oodzoo.fit({"sensor": X[:80]}, y[:80], place[:80])
    >>> oodzoo.test(predictor, {"sensor": X[80:]}, labels=y[80:]).confusion
    ((19, 1), (1, 19))
    """
    found = predictor if isinstance(predictor, Predictor) else load(predictor)
    options = SourceOptions(root, columns, labels, domains)
    samples = open_samples(found, data, options)
    if samples.task.kind != found.task.kind:
        raise InputError(
            f"{samples.name!r} has labels for {samples.task.kind!r}, but the predictor is for "
            f"{found.task.kind!r}"
        )
    texts = [sample.label for sample in samples.samples]
    truth = samples.task.truth(texts, _outputs(found), samples.name)
    names = sorted({sample.domain for sample in samples.samples})
    facts = {"models": [model.name for model in found.models], "domains": names}
    with Stage(listener, "test", images=len(texts), **facts) as stage:
        predicted: dict[int, Prediction] = {}
        missed: list[Missed] = []
        stage.progress(0, len(texts))
        for done, (row, each) in enumerate(_predictions(found, samples, adapt), 1):
            if isinstance(each, Prediction):
                predicted[row] = each
            else:
                sample = samples.samples[row]
                missed.append(Missed(sample.path, sample.domain, each.reason))
            stage.progress(done, len(texts))
        if not predicted:
            raise InputError(
                f"none of the {samples.noun}s of {samples.name!r} can be read; the first is "
                f"{missed[0].path!r}: {missed[0].reason}"
            )
        known = _is_training_data(found, data, options, samples)
        result = _result(found, samples, truth, predicted, missed, adapt, known)
        metrics = {result.metric: result.value}
        for name, measured in result.domains.items():
            metrics[f"{result.metric}_by_domain/{name}"] = result.value_of(measured)
        stage.finish(result, metrics)
    return result


test.__test__ = False  # type: ignore[attr-defined]  # for pytest


def _predictions(
    predictor: Predictor, samples: LabelledSamples, adapt: bool
) -> Iterator[tuple[int, Prediction | Unreadable]]:
    """Predict all samples; those of one domain after the other if the predictor adapts to them."""
    rows_by_domain: dict[str, list[int]] = {}
    for row, sample in enumerate(samples.samples):
        rows_by_domain.setdefault(sample.domain if adapt else "", []).append(row)
    for domain, rows in rows_by_domain.items():
        inputs = samples.inputs if len(rows_by_domain) == 1 else samples.inputs_at(rows)
        try:
            for each in predictor.stream(inputs, adapt=adapt):
                yield rows[each.position], each
        except InputError as error:
            if not adapt or len(rows_by_domain) == 1:
                raise
            raise InputError(f"domain {domain!r}: {error}") from error


def _result(
    predictor: Predictor,
    samples: LabelledSamples,
    truth: Truth,
    predicted: Mapping[int, Prediction],
    missed: Sequence[Missed],
    adapt: bool,
    is_training_data: bool,
) -> TestResult:
    task, provenance = predictor.task, predictor.provenance
    rows = sorted(predicted)
    values = _values([predicted[row] for row in rows], len(truth.names))
    y = truth.values[rows]
    kept = [samples.samples[row] for row in rows]
    domains = np.array([sample.domain for sample in kept], object)

    def measure(mine: NDArray[np.intp]) -> Measurement:
        of = [kept[at] for at in mine.tolist()]
        diagnosis = task.diagnose(
            values[mine],
            y[mine],
            truth.names,
            paths=[sample.path for sample in of],
            domains=[sample.domain for sample in of],
        )
        return Measurement(diagnosis, task.interval(values[mine], y[mine]))

    by_domain = {
        name: measure(np.flatnonzero(domains == name)) for name in sorted(set(domains.tolist()))
    }
    overall = measure(np.arange(len(rows)))
    n_known = len(truth.names) - len(truth.unknown)
    usual = y < n_known if task.one_class and truth.unknown else None
    # held-out domains had known classes only, so only these can be compared with them
    intervals = {}
    for name, each in by_domain.items():
        found = each.interval
        if usual is not None:
            mine = usual & (domains == name)
            found = task.interval(values[mine], y[mine]) if mine.any() else None
        if found is not None:
            intervals[name] = found

    def score(mine: NDArray[np.bool_]) -> float | None:
        """The main metric in percent, or the absolute error of numbers; None without samples."""
        return task.part_score(values[mine], y[mine]) if mine.any() else None

    far = np.array([predicted[row].out_of_domain for row in rows])
    trained_on = tuple(name for name in by_domain if name in provenance.domains)
    files = samples.files
    shown = set[str]().union(*(each.diagnosis.paths for each in (overall, *by_domain.values())))
    return TestResult(
        task=task.kind,
        data=samples.name,
        noun=samples.noun,
        choice=provenance.choice,
        models=tuple(model.name for model in predictor.models),
        overall=overall,
        domains=by_domain,
        unknown=truth.unknown,
        known_accuracy=None if usual is None else score(usual),
        absent=truth.absent,
        unreadable=tuple(missed),
        out_of_domain=OutOfDomain(int(far.sum()), score(far), score(~far)),
        trained_on=trained_on,
        is_training_data=is_training_data,
        issues=tuple(map(str, samples.issues)),
        adapted=adapt,
        promise=promise_of(provenance, intervals, trained_on),
        files={path: files[path] for path in shown if path in files},
    )


def _values(predictions: Sequence[Prediction], width: int) -> NDArray[np.float64]:
    """Probabilities or numbers (n, C); classes that the predictor does not know have zeros."""
    each = (p.label if p.probabilities is None else p.probabilities for p in predictions)
    found = np.array(list(each), np.float64).reshape(len(predictions), -1)
    return np.pad(found, [(0, 0), (0, width - found.shape[1])])


def _is_training_data(
    predictor: Predictor, data: Any, options: SourceOptions, samples: LabelledSamples
) -> bool:
    """Whether the data has the fingerprint of the training data.

    Images are read for it only if the domains have the same names.
    """
    provenance = predictor.provenance
    if samples.noun == "sample" or {s.domain for s in samples.samples} != {*provenance.domains}:
        return False
    root, columns = options.root, options.columns
    try:
        same = data
        if not isinstance(data, ImageDomains):
            root = None if root is None else os.fspath(root)
            same = ImageDomains(data, root=root, columns=columns, task=predictor.task.kind)
    except InputError:  # no data to train on
        return False
    return bool(same.fingerprint == provenance.data)


# --- labelled samples ----------------------------------------------------------------------------


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


def open_samples(predictor: Predictor, data: Any, options: SourceOptions) -> LabelledSamples:
    """Open labelled data, without reading images.

    Raises
    ------
    InputError
        If the data cannot be read, or is not of the kind that the predictor takes.
    """
    if isinstance(data, ImageDomains):
        for name in ("root", "columns", "labels", "domains"):
            if getattr(options, name) is not None:
                raise InputError(f"{name}= is not used with an open data set; leave it out")
        return _images(predictor, data)
    if isinstance(data, str | os.PathLike) and _is_feature_file(predictor, data):
        return _feature_file(predictor, Path(data), options)
    if predictor.features_only or _are_features(predictor, data):
        name = type(data).__name__
        require_used(options._replace(domains=None), name, ("labels",))
        inputs = data
        if not predictor.encoders or isinstance(data, Mapping):
            inputs = checked_features(data, predictor.models)
        return _rows(predictor, inputs, {}, None, options, name)
    columns, domains = options.columns or {}, options.domains
    if predictor.modality == "text":
        columns = {"text": "text", **columns}
    request = domains if isinstance(domains, str) and is_request(domains) else None
    listing = open_source(
        data,
        options._replace(
            columns=columns or None,
            domains=None if request is not None else domains,
            propose=domains is None or request is not None,
            task=predictor.task.kind,
            classes=_outputs(predictor),
        ),
    )
    if request is not None:
        listing = propose_for(listing, request).listing
    return _images(predictor, listing)


# --- images and texts ------------------------------------------------------------------------


def _images(predictor: Predictor, data: ImageDomains | Listing) -> LabelledSamples:
    name, noun = data.name, modality_of(data.files)
    if predictor.features_only:
        raise InputError(
            f"the models of the predictor have features only, but {name!r} has {noun}s; give "
            "their features as one .npz, .parquet or .csv file"
        )
    if noun != predictor.modality:
        raise InputError(f"{name!r} has {noun}s; the predictor takes {predictor.modality}s")
    if not data.samples:
        raise InputError(f"{name!r} has no samples")
    inputs = [file.text if isinstance(file, TextFile) else file for file in data.files]
    issues = data.issues if isinstance(data, Listing) else ()
    return LabelledSamples(name, noun, data.task, data.samples, inputs, issues)


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


def _feature_file(predictor: Predictor, file: Path, options: SourceOptions) -> LabelledSamples:
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
    inputs = checked_features(features, predictor.models)
    return _rows(predictor, inputs, own, read.columns.get("path"), options, str(file))


def _rows(
    predictor: Predictor,
    inputs: Any,
    own: Mapping[str, Any],
    paths: Sequence[str] | None,
    options: SourceOptions,
    name: str,
) -> LabelledSamples:
    """Features by model or inputs of encoders, with labels; `own` are those of the data."""
    n = len(next(iter(inputs.values())) if isinstance(inputs, Mapping) else inputs)
    if not n:
        raise InputError(f"{name!r} has no rows")
    roles = collect_roles(name, n, options._replace(propose=options.domains is None), own)
    targets = _targets(predictor, roles["label"], name)
    domains = as_names(roles["domain"] or [ONE_DOMAIN] * n, "domain", name)
    for what, values in (("label", targets.texts), ("domain", domains), ("path", paths)):
        if values is not None and len(values) != n:
            raise InputError(f"{name!r} has {count(len(values), what)}, but {count(n, 'row')}")
    samples = list(map(Sample, paths or row_names(n), domains, targets.texts))
    return LabelledSamples(name, "sample", targets.task, samples, inputs)


def _targets(predictor: Predictor, labels: Any, name: str) -> Targets:
    """Read labels; the columns of a matrix without names are in the order of the predictor."""
    known = _outputs(predictor)
    numbers = isinstance(labels, list) and all(isinstance(row, list | tuple) for row in labels)
    if numbers and not any(isinstance(item, str) for row in labels for item in row):
        try:
            matrix = np.array(labels, np.float64)
        except (ValueError, TypeError):
            matrix = np.empty(0)
        if matrix.ndim == 2 and matrix.shape[1] == len(known):
            labels = {output: matrix[:, at].tolist() for at, output in enumerate(known)}
    return read_targets(labels, name, predictor.task.kind)


def _outputs(predictor: Predictor) -> tuple[str, ...]:
    """Names of the classes, numbers or labels that a predictor knows."""
    return tuple(map(str, predictor.classes_.tolist()))
