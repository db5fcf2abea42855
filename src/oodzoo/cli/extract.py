"""`oodzoo extract` and `import`, and the option `--target`: from images or features to a store."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oodzoo.cli.app import FEATURES_KEPT, command
from oodzoo.cli.data import (
    announce_download,
    announce_proposed,
    open_zoo,
    read_images,
    select_zoo,
    show_models,
)
from oodzoo.cli.options import (
    DataOptions,
    ModelCompute,
    PromptOptions,
    RaceOptions,
    TrackingOptions,
    open_data,
)
from oodzoo.cli.terminal import WIDTH, Bars, Meter, Terminal
from oodzoo.core.errors import InputError
from oodzoo.core.events import Events, Listener
from oodzoo.core.limits import ZooLimits
from oodzoo.core.remote.location import is_url, parse_location
from oodzoo.core.text import count

if TYPE_CHECKING:
    from oodzoo.data.sources.folder import UnlabelledImages
    from oodzoo.ranking.racing import Dropped
    from oodzoo.report.record import ExtractionSummary
    from oodzoo.store.feature_store import FeatureStore
    from oodzoo.zoo.listing import ListedModel


@command(
    "extract",
    example="oodzoo extract photos/ --zoo timm/resnet50.a1_in1k --store features/",
    interrupted=FEATURES_KEPT,
)
def extract(
    terminal: Terminal,
    source: str,
    zoo: str,
    store: str,
    limits: ZooLimits,
    options: DataOptions,
    compute: ModelCompute,
    batch_size: str = "auto",
    precision: str = "float32",
    decode: str = "reduced",
    dtype: str = "float32",
    on_error: str = "skip",
    limit: int | None = None,
    seed: int = 0,
    unlabelled: list[str] | None = None,
    *,
    texts: PromptOptions,
    early: RaceOptions,
    shard: str | None = None,
    yes: bool = False,
    dry_run: bool = False,
    tracking: TrackingOptions,
) -> None:
    """Extract features of every image with every model; rerun the command to resume.

    Options
    -------
    store
        Folder or URL of the feature store; created if missing.
    batch_size : N
        Images in one forward pass, or auto.
    on_error : HOW
        If an image is unreadable: skip it, or fail.
    seed
        Random seed of the sample.
    shard : I/N
        Do the I-th of N parts of the work; run all N, anywhere, in any order.
    dry_run
        List the models, what must be downloaded, and the images; then end.
    """
    from oodzoo.extraction.engines import open_engine, parse_part
    from oodzoo.extraction.extract import extract_part, open_unlabelled, run_extraction
    from oodzoo.extraction.outcome import ExtractionConfig
    from oodzoo.ranking.policy import parse_budget
    from oodzoo.ranking.racing import Race, run_race

    seconds = None if early.budget is None else parse_budget(early.budget)
    raced_for = early.race or seconds is not None
    if shard is not None and raced_for:
        raise InputError(
            f"--shard {shard} does a part of the work, but a race compares all models; leave out "
            "one of them"
        )
    part = None if shard is None else parse_part(shard)
    config = ExtractionConfig(
        compute.device,
        _batch_size(batch_size),
        precision,
        dtype,
        on_error,  # type: ignore[arg-type]
        texts.read(),
        decode,  # type: ignore[arg-type]
    )
    others = tracking.listeners()
    specs = open_zoo(zoo, None if dry_run else compute.engine)
    dataset = open_data(source, options)
    announce_proposed(terminal.say, dataset, options.domains)
    if limit is not None:
        dataset = dataset.sample(limit, seed=seed)
    targets = open_unlabelled(unlabelled or [])
    models = select_zoo(terminal, specs, limits)
    if dry_run:
        _show_plan(terminal, models, len(dataset) + sum(map(len, targets)), store)
        return
    announce_download(terminal, models, yes=yes)
    members = [model.spec for model in models]
    read_images(terminal, dataset, dataset.name)
    for target in targets:
        read_images(terminal, target, str(target.location))
    for issue in dataset.leaks(targets):
        terminal.warn(str(issue))
    with (
        open_engine(compute, part) as opened_engine,
        extraction_progress(terminal) as bars,
    ):
        listening = [bars, *others]
        opened: FeatureStore | None
        raced: Race | None = None
        if part is not None:
            opened, done = extract_part(
                dataset, members, store, config, part, listener=listening, unlabelled=targets
            )
        elif raced_for:
            raced = run_race(
                dataset,
                members,
                store,
                config,
                budget=seconds,
                seed=seed,
                listener=listening,
                unlabelled=targets,
                engine=opened_engine,
            )
            opened, done = raced.store, raced.extraction
        else:
            opened, done = run_extraction(
                dataset,
                members,
                store,
                config,
                listener=listening,
                unlabelled=targets,
                engine=opened_engine,
            )
    if isinstance(parse_location(store), Path):
        Events(others).artifact("extraction", done.path)
    skipped = {**({} if opened is None else opened.skipped), **done.unreadable}
    for message in [*skipped_lines(skipped), *done.warnings()]:
        terminal.warn(message)
    if done.shards:
        terminal.say(
            f"{count(done.decoded, 'image')} decoded; {done.running:.1f} s inference, "
            f"{done.waiting:.1f} s waiting for images (bottleneck: {done.bottleneck})"
        )
    elif not (done.failed or done.interrupted or done.embedded):
        terminal.say("Nothing to compute: the features are in the store.")
    if done.embedded:
        terminal.say(f"Class names embedded by {', '.join(done.embedded)}, for zero-shot.")
    if raced is not None:
        show_dropped(terminal, raced.dropped)
    if part is not None:
        terminal.say(f"Shard {part} is done: {count(done.shards, 'file')} of features written.")
    if opened is None:
        terminal.line(f"no finished model yet in {store}; other shards are missing")
    else:
        terminal.line(
            f"{count(len(opened.models), 'model')}, {count(opened.n_images, 'image')}, "
            f"{count(len(opened.domains), 'domain')} in {store}"
            + (f" ({len(opened.unlabelled)} more without labels)" if opened.unlabelled else "")
        )
    terminal.document(
        {
            "store": store,
            "models": [] if opened is None else list(opened.models),
            "failed": done.failed,
            "outdated": done.outdated,
            "embedded": done.embedded,
            "images": 0 if opened is None else opened.n_images,
            "unlabelled": [] if opened is None else list(opened.unlabelled),
            "skipped": skipped,
            "decoded": done.decoded,
            "shards_written": done.shards,
            "bottleneck": done.bottleneck,
            **({} if raced is None else {"race": raced.to_dict()}),
        }
    )


def _show_plan(
    terminal: Terminal, models: Sequence[ListedModel], n_images: int, store: str
) -> None:
    """Write what an extraction would do."""
    from oodzoo.zoo.listing import plan_download

    documents = show_models(terminal, models)
    terminal.line(f"{count(n_images, 'image')}; features go to {store}, which is unchanged")
    terminal.document(
        {
            "models": documents,
            "images": n_images,
            "download": plan_download(models).to_dict(),
            "store": store,
        }
    )


def skipped_lines(images: dict[str, str]) -> list[str]:
    """Format the reasons, by path, for which images were skipped."""
    return [f"skipped {path!r}: {reason}" for path, reason in images.items()]


def show_summary(terminal: Terminal, done: ExtractionSummary) -> None:
    """Warn of images and models that were skipped, and list the models that a race has dropped."""
    failed = [f"model {name!r} is left out: {reason}" for name, reason in done.failed.items()]
    for message in [*skipped_lines(done.skipped), *failed]:
        terminal.warn(message)
    show_dropped(terminal, done.dropped)


def show_dropped(terminal: Terminal, models: dict[str, Dropped]) -> None:
    """List the models that a race has dropped."""
    from oodzoo.tasks.task import MEASURES

    if not models:
        return
    metric = MEASURES[next(iter(models.values())).metric]
    rows = [
        [
            name,
            each.reason,
            each.round,
            f"{each.images:,}",
            each.rank,
            "" if each.rank_interval is None else "{}-{}".format(*each.rank_interval),
            f"{each.expected_accuracy:.1f}",
        ]
        for name, each in sorted(models.items(), key=lambda item: (-item[1].round, item[1].rank))
    ]
    columns = ["dropped", "reason", "round", "images", "rank", "90 %"]
    terminal.table([*columns, f"{metric.short} %"], rows, left=2, least=("images", "90 %"))


@contextmanager
def extraction_progress(terminal: Terminal) -> Iterator[Listener]:
    """Show two bars on stderr: all models together, and the current one."""
    if not terminal.shows_progress:
        with terminal.progress("Extracting") as meter:
            yield _Lines(terminal, meter)
        return
    columns = ["{task.fields[speed]}"] if terminal.messages.width >= WIDTH else []
    with Bars(terminal.messages, *columns) as bars:
        yield _Bars(terminal, bars)


class _Lines(Listener):
    """Shows the start, messages and every failed model as a line."""

    def __init__(self, terminal: Terminal, meter: Meter | None) -> None:
        self._terminal = terminal
        self._meter = meter

    def start(self, stage: str, **facts: Any) -> None:
        models, n_images = facts["models"], facts["images"]
        self._terminal.say(f"{count(len(models), 'model')}, {count(n_images, 'image')}")
        if self._meter is not None:
            self._meter.restart()

    def progress(self, stage: str, done: int, total: int, **facts: Any) -> None:
        if self._meter is not None and total:
            self._meter(done, total, facts.get("share"))
        if "message" in facts:
            self._terminal.say(facts["message"])
        if "failed" in facts:
            # why is a warning at the end, where it is not missed
            self._terminal.say(f"model {facts['model']!r} failed, skipped")


class _Bars(_Lines):
    """Shows progress as bars."""

    def __init__(self, terminal: Terminal, bars: Bars) -> None:
        self._bars = bars
        self._all = bars.add("all models", speed="")
        self._one = bars.add("", speed="", visible=False)
        super().__init__(terminal, self._all)
        self._model = ""
        self._done: Counter[str] = Counter()
        self._computed: Counter[str] = Counter()
        self._seconds: dict[str, float] = defaultdict(float)

    def start(self, stage: str, **facts: Any) -> None:
        super().start(stage, **facts)
        self._n_images = facts["images"]

    def progress(self, stage: str, done: int, total: int, **facts: Any) -> None:
        super().progress(stage, done, total, **facts)
        if "images" not in facts:
            return
        model, seconds = facts["model"], facts["seconds"]
        self._done[model] += facts["images"]
        if seconds:
            self._computed[model] += facts["images"]
            self._seconds[model] += seconds
            speed = self._computed.total() / sum(self._seconds.values())
            self._bars.change(self._all, speed=f"{speed:,.0f} images/s")
            if model != self._model:
                self._model = model
                self._one.restart()
            self._one(self._done[model], self._n_images)
            speed = self._computed[model] / self._seconds[model]
            self._bars.change(
                self._one, description=model, speed=f"{speed:,.0f} images/s", visible=True
            )


def _batch_size(text: str) -> int | None:
    if text == "auto":
        return None
    if not (text.isascii() and text.isdigit()):
        raise InputError(f"--batch-size must be a number or auto, got {text!r}")
    return int(text)


# --- oodzoo import --------------------------------------------------------------------------------


@command(
    "import",
    example="oodzoo import resnet50.npy vit.npy --table rows.csv --store features/",
    interrupted=FEATURES_KEPT,
)
def import_(
    terminal: Terminal,
    files: list[Path],
    store: str,
    table: Path | None = None,
    columns: str | None = None,
    task: str | None = None,
    dtype: str = "float32",
) -> None:
    """Import features computed elsewhere into a feature store.

    Arguments
    ---------
    files : FEATURES
        One .npz, .parquet or .csv file, or .npy files.

    Options
    -------
    store
        Folder or URL of the feature store; created if missing.
    table
        For .npy files: CSV of their rows, domain,label[,group][,path].
    """
    from oodzoo.data.sources.column_roles import parse_columns
    from oodzoo.extraction.importing import import_features

    mapping = None if columns is None else parse_columns(columns)
    made = import_features(files, store, table=table, dtype=dtype, columns=mapping, task=task)
    terminal.line(
        f"{count(len(made.models), 'model')}, {count(made.n_images, 'row')}, "
        f"{count(len(made.domains), 'domain')}, "
        f"{made.task.count_outputs(len(made.classes))}"
    )
    terminal.document(
        {
            "store": store,
            "models": list(made.models),
            "rows": made.n_images,
            "domains": list(made.domains),
            "task": made.task.kind,
            "classes": list(made.classes),
        }
    )


def stored_target(
    terminal: Terminal,
    path: str,
    target: str | None,
    score: str,
    zoo: str | None,
    device: str = "cpu",
) -> str | None:
    """Return the name of the unlabelled domain; a folder is first extracted into the store.

    `score` is what the command ranks by. `device` is its compute device; models run on it, or on
    the fastest one if it is cpu.
    """
    from oodzoo.data.sources.folder import parse_unlabelled
    from oodzoo.extraction.target import require_target_score
    from oodzoo.linear.heads.samples import require_classes_for
    from oodzoo.store.feature_store import FeatureStore

    if target is None:
        return None
    require_target_score(score)
    store = FeatureStore(path)
    require_classes_for(store.task, "--target")
    if target in store.unlabelled:
        _warn_of_other_images(terminal, store, target)
        return target
    if not (_is_folder(target) or "=" in target or is_url(target)):
        return target  # refused by the ranking, with the names of the unlabelled domains
    images = parse_unlabelled(target)
    _add(terminal, store, images, zoo, "auto" if device == "cpu" else device)
    return images.name


def _is_folder(text: str) -> bool:
    return os.path.isdir(text)  # noqa: PTH112 - Path.is_dir raises on a name too long


def _warn_of_other_images(terminal: Terminal, store: FeatureStore, name: str) -> None:
    """Warn if a folder of the same name has other files than the domain of the store."""
    from oodzoo.data.sources.folder import list_images

    if not _is_folder(name):
        return
    listed = None
    with suppress(OSError):
        listed, _ = list_images(Path(name))
    if listed != store.table.domain(name).paths:
        terminal.warn(
            f"the folder {name!r} has other images than the unlabelled domain {name!r} of the "
            f"store, which is used; to extract the folder, give --target .{os.sep}{name}"
        )


def _add(
    terminal: Terminal, store: FeatureStore, images: UnlabelledImages, zoo: str | None, device: str
) -> None:
    from oodzoo.extraction.extract import add_unlabelled
    from oodzoo.zoo import load_zoo

    before = store.images(images.name) if images.name in store.unlabelled else None
    specs = load_zoo(zoo) if zoo is not None else []
    with extraction_progress(terminal) as bars:
        opened, done = add_unlabelled(store, images, zoo=specs, device=device, listener=bars)
    domain, reasons = opened.table.domain(images.name), opened.manifest.skipped
    listed = zip(domain.paths, domain.images, strict=True)
    skipped = {path: reasons[image] for path, image in listed if image in reasons}
    for message in skipped_lines({**skipped, **done.unreadable}):
        terminal.warn(message)
    if before is not None and opened.images(images.name) != before:
        terminal.warn(
            f"the unlabelled domain {images.name!r} of the store had other images; its "
            f"{count(len(before), 'image')} were replaced by those of {str(images.location)!r}"
        )
