"""Test a predictor on labelled data."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodzoo.core.errors import InputError
from oodzoo.core.events import Listeners, Stage
from oodzoo.data.dataset import ImageDomains
from oodzoo.predictor import Prediction, Predictor, Unreadable, load
from oodzoo.predictor.assessment.result import Missed, OutOfDomain, Part, TestResult, promise_of
from oodzoo.predictor.assessment.samples import (
    DataOptions,
    LabelledSamples,
    open_samples,
    truth_of,
)
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
    options = DataOptions(root, columns, labels, domains)
    samples = open_samples(found, data, options)
    known = [str(name) for name in found.classes_.tolist()]
    texts = [sample.label for sample in samples.samples]
    truth = truth_of(found.task, known, samples.task, texts, samples.name)
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
        result = _result(found, data, options, samples, truth, predicted, missed, adapt)
        stage.finish(result, _metrics(result))
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
    data: Any,
    options: DataOptions,
    samples: LabelledSamples,
    truth: Truth,
    predicted: Mapping[int, Prediction],
    missed: Sequence[Missed],
    adapt: bool,
) -> TestResult:
    task, provenance = predictor.task, predictor.provenance
    rows = sorted(predicted)
    values = _values([predicted[row] for row in rows], len(truth.names))
    y = truth.values[rows]
    kept = [samples.samples[row] for row in rows]
    domains = np.array([sample.domain for sample in kept], object)

    def part(mine: NDArray[np.intp]) -> Part:
        of = [kept[at] for at in mine.tolist()]
        diagnosis = task.diagnose(
            values[mine],
            y[mine],
            truth.names,
            paths=[sample.path for sample in of],
            domains=[sample.domain for sample in of],
        )
        return Part(diagnosis, task.interval(values[mine], y[mine]))

    parts = {name: part(np.flatnonzero(domains == name)) for name in sorted(set(domains.tolist()))}
    overall = part(np.arange(len(rows)))
    n_known = len(truth.names) - len(truth.unknown)
    usual = y < n_known if task.one_class and truth.unknown else None
    # left-out domains had known classes only, so only these can be compared with them
    intervals = {}
    for name, each in parts.items():
        found = each.interval
        if usual is not None:
            mine = usual & (domains == name)
            found = task.interval(values[mine], y[mine]) if mine.any() else None
        if found is not None:
            intervals[name] = found
    trained_on = tuple(name for name in parts if name in provenance.domains)
    files = samples.files
    return TestResult(
        task=task.kind,
        data=samples.name,
        noun=samples.noun,
        choice=provenance.choice,
        models=tuple(model.name for model in predictor.models),
        overall=overall,
        domains=parts,
        unknown=truth.unknown,
        known_accuracy=None if usual is None else _measure(task, values[usual], y[usual]),
        absent=truth.absent,
        unreadable=tuple(missed),
        out_of_domain=_flagged(
            task, values, y, np.array([predicted[row].out_of_domain for row in rows])
        ),
        trained_on=trained_on,
        is_training_data=_is_training_data(predictor, data, options, samples),
        issues=tuple(map(str, samples.issues)),
        adapted=adapt,
        promise=promise_of(provenance, intervals, trained_on),
        files={path: files[path] for path in _shown(overall, parts) if path in files},
    )


def _values(predictions: Sequence[Prediction], width: int) -> NDArray[np.float64]:
    """Probabilities or numbers (n, C); classes that the predictor does not know have zeros."""
    each = (p.label if p.probabilities is None else p.probabilities for p in predictions)
    found = np.array(list(each), np.float64).reshape(len(predictions), -1)
    return np.pad(found, [(0, 0), (0, width - found.shape[1])])


def _measure(task: Task, values: NDArray[np.float64], y: NDArray[Any]) -> float | None:
    """The main metric in percent, or the absolute error of numbers; None without samples."""
    return task.part_score(values, y) if len(y) else None


def _flagged(
    task: Task, values: NDArray[np.float64], y: NDArray[Any], far: NDArray[np.bool_]
) -> OutOfDomain:
    return OutOfDomain(
        int(far.sum()), _measure(task, values[far], y[far]), _measure(task, values[~far], y[~far])
    )


def _is_training_data(
    predictor: Predictor, data: Any, options: DataOptions, samples: LabelledSamples
) -> bool:
    """Whether the data has the fingerprint of the training data.

    Images are read for it only if the domains have the same names.
    """
    provenance = predictor.provenance
    if samples.noun == "sample" or {s.domain for s in samples.samples} != {*provenance.domains}:
        return False
    root = None if options.root is None else os.fspath(options.root)
    try:
        same = data
        if not isinstance(data, ImageDomains):
            same = ImageDomains(data, root=root, columns=options.columns, task=predictor.task.kind)
    except InputError:  # no data to train on
        return False
    return bool(same.fingerprint == provenance.data)


def _shown(overall: Part, parts: Mapping[str, Part]) -> set[str]:
    """Paths of all samples that a part lists."""
    return set().union(*(each.diagnosis.paths for each in (overall, *parts.values())))


def _metrics(result: TestResult) -> dict[str, float]:
    """What a listener gets: the main metric, on all samples and by domain, and the second one."""
    found = {result.metric: result.value}
    found |= {
        f"{result.metric}_by_domain/{d}": result.value_of(p) for d, p in result.domains.items()
    }
    return found
