"""Fine-tuning of the top model without each held-out domain.

The runs that leave out two domains serve both of them as held-out domains if the top model is the
same. What is found for a held-out domain is kept in the cache of the store, and so are finished
runs and checkpoints until all held-out domains of a model are done.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import os
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from oodzoo.combining.evaluation.choice import Candidate
from oodzoo.combining.evaluation.judge import interval_of
from oodzoo.combining.evaluation.result import Evaluation, Recommended, estimate_of
from oodzoo.combining.evaluation.rows import Gain, Row, TunedFacts, Tuning
from oodzoo.combining.evaluation.scoring import Scorer, trial_rows
from oodzoo.combining.statements import FINE_TUNED
from oodzoo.combining.verdict import is_better
from oodzoo.core.errors import InputError
from oodzoo.core.events import Stage, tracked
from oodzoo.core.io import locked
from oodzoo.core.text import count, duration
from oodzoo.data.dataset import ImageDomains
from oodzoo.extraction.columns import Columns
from oodzoo.extraction.features import Arrays, FeatureSource, StoreSource
from oodzoo.extraction.models import find_spec
from oodzoo.store.format import CACHE, require_no_links
from oodzoo.tuning.problem import TuneSettings, opened
from oodzoo.tuning.tuner import Tuner
from oodzoo.zoo import ModelSpec, load_model
from oodzoo.zoo.preprocessing import Preprocessing
from oodzoo.zoo.sources import load_trainable


@dataclass(frozen=True)
class Request:
    """What to fine-tune on, and how.

    Attributes
    ----------
    images : StoredImages
    settings : TuneSettings
    zoo : sequence of ModelSpec
        New locations of models.
    device : str
    max_hours : float, optional
        Longest time for a model; by default there is a limit on the CPU only.
    """

    images: StoredImages
    settings: TuneSettings
    zoo: Sequence[ModelSpec]
    device: str
    max_hours: float | None


@dataclass(frozen=True)
class TunedFold:
    """A model that was fine-tuned without a held-out domain.

    Attributes
    ----------
    outputs : array (n, C)
        For the held-out domain, in the order of the store (:class:`oodzoo.tasks.Task`).
    facts : TunedFacts
    """

    outputs: NDArray[np.float64]
    facts: TunedFacts


def fine_tune(
    source: StoreSource, models: Mapping[str, str], request: Request, stage: Stage
) -> dict[str, TunedFold]:
    """Fine-tune a model without each held-out domain, and predict that domain.

    Parameters
    ----------
    source : StoreSource
    models : dict of str to str
        The model for each held-out domain.
    request : Request
    stage : Stage
        Receives the events of the stages "tuning", one for each model.
    """
    for test, name in models.items():
        _require_model(source, name, test)
    found: dict[str, TunedFold] = {}
    for name in tracked(list(dict.fromkeys(models.values()))):
        tests = [test for test, model in models.items() if model == name]
        identity = _identity(source, name, request)
        with ExitStack() as stack:
            entered = partial(stack.enter_context, _tuner(source, name, tests, request, stage))
            tuner = functools.cache(entered)  # once, if a result is not in the cache of the store
            for test in tracked(tests):
                arrays = source.cached(
                    "fine_tuned",
                    [name],
                    partial(_predict_unseen, source, test, request.images, tuner),
                    settings=json.dumps([test, *identity]),
                )
                facts = TunedFacts(**json.loads(str(arrays["facts"])))
                found[test] = TunedFold(arrays["outputs"], facts)
    return found


def _predict_unseen(
    source: StoreSource, test: str, images: StoredImages, tuner: Callable[[], Tuner]
) -> Arrays:
    """Fine-tune a model without a held-out domain; its outputs there, and facts."""
    judged = tuner().judged([test])
    head = _in_store(source, test, images, judged.head_outputs[test])
    facts = TunedFacts(
        choice=judged.candidate.name,
        learning_rate=judged.learning_rate,
        linear_head=100 * source.task.score(head, source.labels(test)),
        seconds=judged.seconds,
        device=tuner().device,
    )
    outputs = _in_store(source, test, images, judged.outputs[test])
    return {"outputs": outputs, "facts": np.array(json.dumps(asdict(facts)))}


def _identity(source: StoreSource, name: str, request: Request) -> list[Any]:
    """What fine-tuning depends on: settings, model and images."""
    fingerprint = source.store.model(name).fingerprint
    return [request.settings.to_dict(), fingerprint, request.images.data.fingerprint]


def _in_store(
    source: StoreSource, test: str, images: StoredImages, outputs: NDArray[Any]
) -> NDArray[np.float64]:
    """Outputs with rows and classes as in the store.

    Classes that the training domains lack are never predicted, as in all rows of an evaluation.
    """
    here = outputs[images.rows[test]].astype(np.float64)
    if not source.task.one_class:
        return here
    training = source.only([domain for domain in source.domains if domain != test])
    columns = [images.data.classes.index(str(label)) for label in training.classes]
    full = np.full((len(here), len(source.classes)), -np.inf)
    known = here[:, columns]
    places = [source.classes.index(label) for label in training.classes]
    full[:, places] = known - logsumexp(known, axis=1, keepdims=True)
    return full


@contextmanager
def _tuner(
    source: StoreSource, name: str, tests: Sequence[str], request: Request, stage: Stage
) -> Iterator[Tuner]:
    """A tuner of a model, with a folder in the cache that is removed when all is done."""
    spec, preprocessing = _load(source, name, request.zoo)
    folder = _folder(source, name, request)
    facts = {"model": name, "test_domains": list(tests), **request.settings.to_dict()}
    with (
        nullcontext() if folder is None else locked(folder),
        Stage(stage.events, "tuning", **facts) as tuning,
        opened(request.images.data, preprocessing.geometry) as problem,
    ):
        tuner = Tuner(
            lambda: load_trainable(spec, preprocessing),
            problem,
            request.settings,
            device=request.device,
            folder=None if folder is None else folder / "runs",
            stage=tuning,
        )
        _require_time(tuner, name, tests, request.max_hours)
        yield tuner
        if folder is not None:  # while it is locked: another process may be next
            shutil.rmtree(folder, ignore_errors=True)
    if folder is not None:
        with suppress(OSError):  # another model is being tuned
            folder.parent.rmdir()


def _folder(source: StoreSource, name: str, request: Request) -> Path | None:
    """Where runs are kept until they are done; None in a store that cannot be written."""
    digest = hashlib.sha256(json.dumps(_identity(source, name, request)).encode()).hexdigest()
    folder = source.store.path / CACHE / "tuning" / digest[:32]
    if not os.access(source.store.path, os.W_OK):
        return None
    try:
        return require_no_links(source.store.path, folder)
    except InputError:  # nothing outside the store is written
        return None


def _require_model(source: StoreSource, name: str, test: str) -> None:
    """Raise an InputError for a model that cannot be loaded from a zoo."""
    stored = source.store.model(name)
    if stored.preprocessing is not None and stored.source != "python":
        return
    why = "is a Python function" if stored.source == "python" else "has imported features"
    raise InputError(
        f"model {name!r}, the first of the ranking without the domain {test!r}, {why}; only models "
        "that can be loaded from a zoo can be fine-tuned"
    )


def _load(
    source: StoreSource, name: str, zoo: Sequence[ModelSpec]
) -> tuple[ModelSpec, Preprocessing]:
    """Find a model of the store, and check that it is the one that computed the features."""
    stored = source.store.model(name)
    # another file is reported below, as one of another model
    spec = replace(find_spec(source.store, stored, zoo), sha256=None)
    info = load_model(spec, precision=stored.precision).info
    if info.fingerprint != stored.fingerprint:
        raise InputError(
            f"model {name!r}: {spec.source} is not the model that the store's features were "
            "computed with; give the zoo with that model (--zoo, or zoo=), or extract again"
        )
    if spec.kind == "onnx" and spec.layer is None:
        spec = replace(spec, features=info.outputs[0])
    return spec, info.preprocessing.decoding(stored.decode)


def _require_time(tuner: Tuner, name: str, tests: Sequence[str], max_hours: float | None) -> None:
    """Raise an InputError if the training would take too long."""
    limit = tuner.hours_allowed(max_hours)
    steps = tuner.planned_steps([tests[0]])
    if limit == math.inf or not steps:
        return
    settings = tuner.settings
    runs = n_runs(tests, tuner.data.domains, settings)
    seconds = tuner.estimated_seconds([tests[0]]) / steps * runs * settings.steps
    if seconds > 3600 * limit:
        gpu = "use a GPU (--device cuda), " if tuner.device == "cpu" else ""
        raise InputError(
            f"fine-tuning {name!r} without each domain would take about {duration(seconds)} on "
            f"{tuner.device}, {runs} runs of {settings.steps} steps; {gpu}train adapters only "
            f"(--lora 8), take fewer --tune-steps, or allow it with --max-hours "
            f"{seconds / 3600 * 1.2:.0f}"
        )


def n_runs(tests: Sequence[str], domains: Sequence[str], settings: TuneSettings) -> int:
    """Number of training runs for some held-out domains with the same model.

    Examples
    --------
    >>> n_runs(["a", "b", "c"], ["a", "b", "c"], TuneSettings())
    9
    """
    rates = len(settings.learning_rates)
    if not settings.by_domain:
        return rates * len(tests)
    pairs = {frozenset((test, other)) for test in tests for other in domains if other != test}
    return rates * len(pairs) + len(tests)


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
    if not source.task.one_class and names != list(found.classes):
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


def with_fine_tuned(
    evaluation: Evaluation, source: FeatureSource, folds: Mapping[str, TunedFold], best: str
) -> Evaluation:
    """Add the row of fine-tuned models to an evaluation.

    They are recommended if they are better than what is recommended otherwise, on the held-out
    domains (three or more), by more than a standard error between them; and better on average than
    the linear heads that the training starts from, to which the gain may be due otherwise.

    Parameters
    ----------
    evaluation : Evaluation
    source : FeatureSource
    folds : dict of str to TunedFold
        By held-out domain.
    best : str
        The first model of the ranking on all domains.
    """
    cells, diagnoses = {}, {}
    for test, fold in folds.items():
        model = evaluation.single.cells[test].models[0]
        candidate = Candidate(Columns.all_of(source, [model]), outputs=fold.outputs)
        rows = trial_rows(source, test, evaluation.protocol, evaluation.trials)
        scorer = Scorer(source, test, rows)
        cells[test] = scorer.cell(candidate)
        if (found := scorer.diagnose(candidate)) is not None:
            diagnoses[test] = found
    row = Row(cells)
    before = evaluation.recommended
    tuned = row.measure(row.metric)
    gains = np.array([tuned[test] - before.domains[test] for test in evaluation.domains])
    error = float(gains.std(ddof=1)) / math.sqrt(len(gains))
    over_head = [_gain_over_head(source, test, fold) for test, fold in folds.items()]
    tuning = Tuning(
        Gain(before.choice, float(gains.mean()), error, float(np.mean(over_head))),
        {test: fold.facts for test, fold in folds.items()},
    )
    recommended, diagnosis = before, evaluation.diagnosis
    better = is_better(estimate_of(tuned), estimate_of(before.domains))
    if better and tuning.gain.over_head > 0:
        diagnosis = diagnoses
        recommended = Recommended(
            choice=FINE_TUNED,
            models=(best,),
            average=row.average,
            interval=interval_of(source, cells),
            domains=tuned,
            choices=dict.fromkeys(tuned, FINE_TUNED),
            estimates=before.estimates,
            within=before.within,
            candidates=before.candidates,
            max_models=before.max_models,
            max_ms=before.max_ms,
        )
    return replace(
        evaluation, fine_tuned=row, tuning=tuning, recommended=recommended, diagnosis=diagnosis
    )


def _gain_over_head(source: FeatureSource, test: str, fold: TunedFold) -> float:
    tuned = 100 * source.task.score(fold.outputs, source.labels(test))
    return tuned - fold.facts.linear_head
