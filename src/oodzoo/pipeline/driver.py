"""The stages of a run: extract, rank, select, evaluate, fit, report; and its example images."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from oodzoo.combining.evaluation import evaluate
from oodzoo.combining.evaluation.result import Evaluation
from oodzoo.combining.selection import SelectionSummary, select_features
from oodzoo.core.errors import InputError
from oodzoo.core.events import Events, Listener, Listeners, Stage, extent, or_notebook
from oodzoo.core.io import file_digest, is_temporary, locked
from oodzoo.core.limits import ModelLimits
from oodzoo.core.text import without_folders
from oodzoo.data import pixels
from oodzoo.data.dataset import ImageDomains
from oodzoo.data.files import (
    EmbeddedFile,
    ImageFile,
    ObjectImage,
    StoredFile,
    UnreadableImageError,
    absolute,
)
from oodzoo.data.sources.folder import UnlabelledImages, parse_unlabelled
from oodzoo.extraction.engines import Engine, open_engine
from oodzoo.extraction.extract import run_extraction
from oodzoo.extraction.features import FeatureSource, as_source
from oodzoo.extraction.outcome import Extraction
from oodzoo.extraction.target import (
    Target,
    as_target,
    require_target_score,
    require_usable,
)
from oodzoo.linear.heads.adaptive import MIN_IMAGES
from oodzoo.pipeline.config import CONFIG_FILE, RunConfig
from oodzoo.pipeline.stages import Recorder, Stages
from oodzoo.predictor import Predictor, fit
from oodzoo.predictor.card import CARD
from oodzoo.ranking import scores, testbed
from oodzoo.ranking.constraints import restricted
from oodzoo.ranking.policy import parse_budget
from oodzoo.ranking.proposing import use_domains
from oodzoo.ranking.racing import Dropped, run_race
from oodzoo.ranking.ranker import rank
from oodzoo.report import write_report
from oodzoo.report.data import shown_pairs
from oodzoo.report.diagnosis import shown_mistakes
from oodzoo.report.record import (
    DataSummary,
    DomainLabels,
    Example,
    ExtractionSummary,
    PredictorSummary,
    Run,
    is_run,
    write_local,
)
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.leaks.similar import NearDuplicates, similar_images
from oodzoo.zoo import ModelSpec, load_zoo
from oodzoo.zoo.listing import select_models
from oodzoo.zoo.sources import local_path

EXAMPLES = 12
"""Images of each domain that the record names; the report shows some of them."""

_SIDE = 144
"""Largest side in pixels of an image that is embedded."""


def choose_examples(dataset: ImageDomains) -> dict[str, tuple[Example, ...]]:
    """Choose some images of each domain, one of each class, or other stratum, in turn."""
    return {domain: _examples(dataset, domain) for domain in dataset.domains}


def _examples(dataset: ImageDomains, domain: str) -> tuple[Example, ...]:
    samples = [sample for sample in dataset.samples if sample.domain == domain]
    strata = dataset.task.strata_of([sample.label for sample in samples])
    by_stratum: dict[str, list[Example]] = {stratum: [] for stratum in sorted(set(strata))}
    for sample, stratum in zip(samples, strata, strict=True):
        label = dataset.task.shown(sample.label)
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
        image = pixels.read(file)
    except UnreadableImageError:
        return None
    image.thumbnail((_SIDE, _SIDE))
    content = io.BytesIO()
    image.save(content, "PNG")
    return EmbeddedFile(content.getvalue())


def run(
    data: Any,
    zoo: str | Path | Sequence[ModelSpec],
    out: str | Path,
    *,
    target: str | Path | UnlabelledImages | None = None,
    config: RunConfig | None = None,
    listener: Listeners | None = None,
    command: str | None = None,
) -> Run:
    """Run the whole pipeline: extract, rank, select, evaluate, fit a predictor, report.

    Writes `store/`, `model/`, `report.html`, `run.json` and `local.json` in a folder; the report
    as soon as there is a ranking, and again after each stage. A stage is skipped if its inputs have
    not changed since an earlier run in the folder, so a stopped run is resumed. `report.html` and
    `run.json` name files and folders without the folders above them; `local.json` has the folder of
    the images, and is not meant to be shared.

    Parameters
    ----------
    data : ImageDomains, path, URL or object
        What :class:`oodzoo.ImageDomains` takes. With two domains the evaluation is skipped.
    zoo : str, path or sequence of ModelSpec
        What :func:`oodzoo.load_zoo` takes or returns.
    out : path
    target : path or UnlabelledImages, optional
        A folder of unlabelled images of the target domain, or "NAME=FOLDER": the models are ranked
        for it, see :func:`oodzoo.rank`, and the predictor adapts to it. The evaluation says what
        unlabelled images of each held-out domain are worth; the test bed does not use the target.
    config : RunConfig, optional
    listener : Listener or sequence of Listener, optional
        Receives the events of the stage "run" and of the stages within it, see
        :mod:`oodzoo.core.events`.
    command : str, optional
        The command line, for the record and the report; without paths that others should not see.

    Returns
    -------
    Run
        As in `run.json`.
    """
    dataset = data if isinstance(data, ImageDomains) else ImageDomains(data)
    folder, config = Path(out), config or RunConfig()
    specs = load_zoo(zoo) if isinstance(zoo, str | Path) else list(zoo)
    allowed = select_models(
        specs, licence=config.limits.licence, max_parameters=config.limits.max_parameters
    )
    specs = [model.spec for model in allowed]
    images = None if target is None else parse_unlabelled(target)
    settings = {
        "data": dataset.short_name,
        "images": len(dataset),
        "task": dataset.task.kind,
        "zoo": [spec.name for spec in specs],
        **({} if images is None else {"target": images.name, "target_images": len(images)}),
        **config.settings,
    }
    _require_usable(folder, dataset)
    config.require_possible(dataset.task, target=images is not None)
    if images is not None:
        require_target_score(config.score)
        require_usable(images, _digests(dataset))
    opened = open_engine(config.compute)
    with opened as engine, locked(folder):
        call = f"oodzoo.run(…, {folder.resolve().name!r})"
        recorder = Recorder(folder, command or call, settings)
        with Stage([recorder, Events(or_notebook(listener))], "run", **settings) as whole:
            stages = Stages(recorder.earlier, whole.events)
            _compute(stages, recorder, dataset, images, specs, folder, config, engine)
            result = recorder.finish()
            whole.events.artifact("run", recorder.path)
            whole.events.artifact("run", write_report(folder, run=result))
            whole.finish(result, {})
    return result


def _compute(
    stages: Stages,
    recorder: Recorder,
    dataset: ImageDomains,
    images: UnlabelledImages | None,
    specs: list[ModelSpec],
    folder: Path,
    config: RunConfig,
    engine: Engine | None,
) -> None:
    """Compute the results of all stages, or reuse them."""
    device = config.compute_device
    store, models = _extract(stages, dataset, images, specs, folder / "store", config, engine)
    summary = _summary(dataset, store)
    recorder.add("data", summary)
    every = as_source(store, models=models)
    source = restricted(every, ModelLimits(max_ms=config.limits.max_ms))
    content = [store.fingerprint, list(source.models)]
    ranked_for = None if images is None else as_target(source, images.name)
    image_files = dataset.files_by_digest | ({} if images is None else images.files_by_digest)
    leaks = stages.stage(
        "leaks",
        [store.fingerprint, list(every.models), *_identities(every, ranked_for)],
        lambda listener: _find_leaks(every, store, image_files, listener),
    )
    shown = example_files(dataset, summary.examples) | leak_files(leaks, store, image_files)
    write_local(folder, shown)
    stages.stage(
        "ranking",
        [content, config.score, config.limits.max_ms, *_identities(source, ranked_for)],
        lambda listener: rank(
            every,  # the ranking says what was left out
            score=config.score,
            max_ms=config.limits.max_ms,
            target=ranked_for,
            device=device,
            listener=listener,
        ),
    )
    stages.stage("selection", [content], lambda listener: _select(source, device, listener))
    evaluation = None
    if len(source.domains) > 2:
        options = {
            name: getattr(config, name)
            for name in ("top_k", "protocol", "score", "baselines", "seed", "published")
        }
        options |= {"max_models": config.limits.max_models, "max_ms": config.limits.max_ms}
        sizes = [len(source.labels(domain)) for domain in source.domains]
        options["with_target"] = images is not None and min(sizes) >= MIN_IMAGES
        evaluation = stages.stage(
            "evaluation",
            [content, options],
            lambda listener: evaluate(
                source,
                **options,
                device=config.evaluation_device,
                engine=config.compute.engine,
                address=config.compute.address,
                listener=listener,
            ),
        )
        write_local(folder, shown | mistake_files(evaluation, store, image_files))
    else:
        stages.skip(
            "evaluation", "it needs at least three domains, two to rank on and one to test on"
        )
    recommended = None if evaluation is None else evaluation.recommended
    fit_options: dict[str, Any] = {
        "score": config.score,
        "max_models": config.limits.max_models,
        "max_ms": config.limits.max_ms,
    }
    stages.stage(
        "predictor",
        [
            content,
            fit_options,
            None if recommended is None else recommended.to_dict(),
            *_identities(source, ranked_for),
        ],
        lambda listener: _fit(
            fit(
                store,
                choose="auto",
                models=source.models,
                target=None if ranked_for is None else ranked_for.name,
                recommended=recommended,
                zoo=specs,
                device=device,
                listener=listener,
                **fit_options,
            ),
            folder / "model",
            dataset.short_name,
        ),
        valid=lambda made: _is_unchanged(folder / made.folder, made.digest),
        artifact=folder / "model",
    )
    if config.testbed and not source.task.one_class:
        stages.skip("testbed", f"it compares accuracies, and the task is {source.task.kind}")
    elif config.testbed and len(source.models) > 2:
        bed_options: dict[str, Any] = {
            "protocol": "unseen" if len(source.domains) > 2 else "all",
            "name": PurePosixPath(dataset.short_name).stem,
            "seed": config.seed,
        }
        stages.stage(
            "testbed",
            [content, list(scores.names()), bed_options],
            lambda listener: testbed.run(source, **bed_options, device=device, listener=listener),
        )
    elif config.testbed:
        stages.skip("testbed", "it needs at least three models")


def _find_leaks(
    source: FeatureSource,
    store: FeatureStore,
    files: Mapping[str, ImageFile],
    listener: Listener,
) -> NearDuplicates:
    with Stage(listener, "leaks", **extent(source)) as stage:
        found = similar_images(store, files=files, progress=stage.progress)
        stage.finish(found, found.metrics)
    return found


def _select(source: FeatureSource, device: str | None, listener: Listener) -> SelectionSummary:
    with Stage(listener, "selection", **extent(source)) as stage:
        with stage.whole.between(0.0, 1.0):
            found = select_features(source, device=device, progress=stage.progress)
        summary = found.summary()
        stage.finish(summary, {})
    return summary


def _require_usable(folder: Path, dataset: ImageDomains) -> None:
    """Reject a folder inside the data, or with files that no run has written."""
    data = Path(dataset.name).resolve()
    if dataset.root is not None and data.is_dir() and folder.resolve().is_relative_to(data):
        raise InputError(f"{str(folder)!r} is inside the data {str(data)!r}; choose another folder")
    if not folder.is_dir() or is_run(folder):
        return
    # A run that was killed early has no record yet; the demo writes its data first.
    names = {entry.name for entry in folder.iterdir() if not is_temporary(entry.name)}
    if foreign := sorted(names - {".lock", "store", "data", CONFIG_FILE}):
        raise InputError(
            f"{str(folder)!r} is neither empty nor a run (it contains {foreign[0]!r}); choose "
            "another folder"
        )


def _digests(dataset: ImageDomains) -> dict[str, list[str]]:
    """The digests of the readable images of each domain."""
    found: dict[str, list[str]] = {domain: [] for domain in dataset.domains}
    for sample, digest in zip(dataset.samples, dataset.digests, strict=True):
        if digest is not None:
            found[sample.domain].append(digest)
    return found


def _extract(
    stages: Stages,
    dataset: ImageDomains,
    target: UnlabelledImages | None,
    zoo: list[ModelSpec],
    path: Path,
    config: RunConfig,
    engine: Engine | None,
) -> tuple[FeatureStore, tuple[str, ...]]:
    """Extract missing features; return the store and the models of this zoo in it."""
    options = config.extraction
    unlabelled = [] if target is None else [target]
    opened: list[FeatureStore] = []

    def compute(listener: Listener) -> ExtractionSummary:
        where: dict[str, Any] = {"listener": listener, "unlabelled": unlabelled, "engine": engine}
        dropped: dict[str, Dropped] = {}
        if config.is_race:
            budget = None if config.budget is None else parse_budget(config.budget)
            race = run_race(dataset, zoo, path, options, budget=budget, seed=config.seed, **where)
            store, done, dropped = race.store, race.extraction, race.dropped
        else:
            store, done = run_extraction(dataset, zoo, path, options, **where)
        if len(store.domains) == 1:
            store = use_domains(path, "clusters", seed=config.seed)
        opened.append(store)
        wanted = {spec.name for spec in zoo} - set(done.failed)
        return ExtractionSummary(
            models=tuple(name for name in store.models if name in wanted),
            failed={spec.name: _reason(spec, done) for spec in zoo if spec.name in done.failed},
            outdated=tuple(done.outdated),
            images=store.n_images,
            skipped={**store.skipped, **done.unreadable},
            store=store.fingerprint,
            dropped=dropped,
        )

    def valid(summary: ExtractionSummary) -> bool:
        try:
            opened.append(FeatureStore(path))
        except InputError:
            return False
        same = opened[-1].fingerprint == summary.store and not summary.failed
        return (
            same
            and opened[-1].is_complete()
            and all(_has_images(opened[-1], summary.models, part) for part in unlabelled)
        )

    inputs = [
        dataset.fingerprint,
        [_identity(spec) for spec in zoo],
        {key: getattr(options, key) for key in ("precision", "dtype", "on_error", "decode")},
        *([part.name, part.paths, part.digests] for part in unlabelled),
        *([] if options.prompts.is_default else [dataclasses.asdict(options.prompts)]),
        *([["race", config.budget, config.seed]] if config.is_race else []),
    ]
    summary = stages.stage("extraction", inputs, compute, valid=valid, artifact=path)
    return opened[-1], summary.models


def _has_images(store: FeatureStore, models: Sequence[str], images: UnlabelledImages) -> bool:
    """Whether models have features of these images under their name."""
    if images.name not in store.unlabelled:
        return False
    known = store.table.domain(images.name).images == [d for d in images.digests if d is not None]
    return known and all(store.has_features(model, images.name) for model in models)


def _identities(source: FeatureSource, target: Target | None) -> list[str]:
    """Identify the target for the inputs of a stage; empty without one."""
    if target is None:
        return []
    return [target.name, *(target.digest(model) for model in source.models)]


def _reason(spec: ModelSpec, done: Extraction) -> str:
    """Why a model failed; files without the folders above them."""
    reason, local = done.failed[spec.name], local_path(spec)
    return without_folders(reason if local is None else reason.replace(str(local), local.name))


def _fit(predictor: Predictor, folder: Path, data: str) -> PredictorSummary:
    predictor.provenance = dataclasses.replace(predictor.provenance, name=data)
    predictor.save(folder)
    used = tuple(model.name for model in predictor.models)
    return PredictorSummary(folder.name, used, _folder_digest(folder), predictor.provenance.choice)


def _summary(dataset: ImageDomains, store: FeatureStore) -> DataSummary:
    """Summarise the images, by the domains of the store: it may have proposed ones."""
    places = {p: domain.name for domain in store.table.labelled for p in domain.paths}
    data = dataset.with_domains(places, store.domains_proposed)
    return DataSummary(
        path=dataset.short_name,
        fingerprint=dataset.fingerprint,
        images=len(dataset),
        classes=tuple(dataset.classes),
        domains=data.counts(),
        skipped=len(store.skipped),
        examples=choose_examples(data),
        domains_proposed=store.domains_proposed,
        task=data.task.kind,
        labels=_labels(data),
    )


def _labels(data: ImageDomains) -> dict[str, DomainLabels]:
    """Summarise the labels of each domain; empty for classes, which are counted."""
    if data.task.one_class:
        return {}
    return {
        row.domain: DomainLabels(row.images, row.without_label, row.numbers or {})
        for row in data.summary(quick=True).domains
    }


def _identity(spec: ModelSpec) -> list[Any]:
    """Everything that determines a model's features: its specification and its file."""
    stated = {key: value for key, value in dataclasses.asdict(spec).items() if key != "folder"}
    is_file = spec.kind == "onnx" and spec.file.is_file()
    return [stated, file_digest(spec.file) if is_file else None]


def _is_unchanged(folder: Path, digest: str) -> bool:
    return folder.is_dir() and _folder_digest(folder) == digest


def _folder_digest(folder: Path) -> str:
    """SHA-256 of the names and contents of the files in the folder of a predictor, but its card."""
    total = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path != folder / CARD:
            total.update(f"{path.relative_to(folder).as_posix()} {file_digest(path)}\n".encode())
    return total.hexdigest()
