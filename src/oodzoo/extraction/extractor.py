"""Extraction in steps: some models on some images, as often as wanted; which shards they lack."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from oodzoo.core.backend import resolve_device
from oodzoo.core.errors import InputError
from oodzoo.core.events import Events, Listeners, or_notebook
from oodzoo.core.io import shown
from oodzoo.core.options import parse_devices
from oodzoo.core.packages import require_extras
from oodzoo.core.text import count
from oodzoo.data.dataset import ImageDomains
from oodzoo.data.files import ImageFile, ObjectImage
from oodzoo.data.listing import inspect
from oodzoo.data.sources.folder import UnlabelledImages
from oodzoo.extraction.distributed import (
    SHARDS_PER_GPU_TASK,
    SHARDS_PER_TASK,
    Done,
    ModelShards,
    cut_tasks,
    describe_job,
)
from oodzoo.extraction.engines import Engine, Work, WorkPart
from oodzoo.extraction.features import StoreSource
from oodzoo.extraction.loop import ExtractionLoop
from oodzoo.extraction.models import Zoo, member_name, network_of_member, resolve_zoo
from oodzoo.extraction.outcome import Extraction, ExtractionConfig, ExtractionProgress, Timings
from oodzoo.extraction.target import require_usable
from oodzoo.store.class_embeddings import ClassEmbeddings, write_class_embeddings
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.format import read_local
from oodzoo.store.mirror import store_folder
from oodzoo.store.table import ImageIndex, SampleTable
from oodzoo.store.writer import PlannedShard, StoreWriter, writing
from oodzoo.zoo import Model, ModelSpec
from oodzoo.zoo.prompts import PROMPTS, Prompts, default_text, embed_classes, texts_of
from oodzoo.zoo.sources import extras_of, get_source
from oodzoo.zoo.spec import by_network


def plan_missing(
    writer: StoreWriter,
    models: Sequence[str],
    files: Mapping[str, ImageFile],
    progress: ExtractionProgress,
    *,
    again: bool = True,
    only: bool = False,
    part: WorkPart | None = None,
) -> list[PlannedShard]:
    """List the shards that models lack, and count the images that need not be computed.

    Parameters
    ----------
    writer : StoreWriter
    models : sequence of str
    files : dict of str to ImageFile
        The images to have features of, by their SHA-256.
    progress : ExtractionProgress
    again : bool
        Whether to look for images that were unreadable in an earlier extraction and are not now.
    only : bool
        Whether the shards may have no other images.
    part : WorkPart, optional
        Only what this part has to do.
    """
    readable = _readable_again(writer, models, files) if again else []
    planned = writer.plan(models, files.keys(), readable, only=only)
    if part is not None:
        planned = planned_part(planned, writer.index, files, models, part)
    todo = Counter[str]()
    for shard in planned:
        n_images = sum(image in files for image in shard.images)
        todo.update(dict.fromkeys(shard.models, n_images))
    for name in models:
        progress.has(name, len(files) - todo[name])
    return planned


def _readable_again(
    writer: StoreWriter, models: Sequence[str], files: Mapping[str, ImageFile]
) -> list[str]:
    unreadable = {image for name in models for image in writer.coverage(name).unreadable}
    known = {image: files[image] for image in sorted(unreadable) if image in files}
    return [image for image, found in inspect(known).items() if not found.problem]


def planned_part(
    planned: Sequence[PlannedShard],
    index: ImageIndex,
    images: Collection[str],
    models: Sequence[str],
    part: WorkPart,
) -> list[PlannedShard]:
    """Return what one of several processes does of the planned shards.

    All shards of the index with one of `images` and all models are put in a row, shard by shard,
    and the row is cut into parts with as many images each. The parts thus depend on the index and
    the models only, not on what other processes have already done, and most images are decoded by
    one process.
    """
    shards = {
        name: len(members)
        for name, members in index.shards.items()
        if any(image in images for image in members)
    }
    total = sum(shards.values()) * len(models)
    mine: dict[str, list[str]] = {}
    before = 0
    for name, size in shards.items():
        for model in models:
            # by the middle of its images, so that each part has its share
            number = (2 * before + size) * part.of // (2 * total)
            if number == part.number - 1:
                mine.setdefault(name, []).append(model)
            before += size
    result = []
    for shard in planned:
        names = [model for model in shard.models if model in mine.get(shard.name, ())]
        if names:
            result.append(shard._replace(models=names))
    return result


class Extractor:
    """Extracts features into a store; used as a context manager, which writes the manifest.

    Parameters
    ----------
    dataset : ImageDomains
    zoo : str, path or sequence
        See :func:`oodzoo.extract`.
    path : path or URL
        Folder of the store.
    config : ExtractionConfig
    listener : Listener or sequence of Listener, optional
    unlabelled : sequence of UnlabelledImages
    engine : Engine, optional
        Where models run; by default in this process.
    part : WorkPart, optional
        The part of the work that is done here; by default all of it.

    Attributes
    ----------
    models : list of str
        The models of the zoo.
    extraction : Extraction
        What has been done so far.
    """

    def __init__(
        self,
        dataset: ImageDomains,
        zoo: Zoo,
        path: str | Path,
        config: ExtractionConfig,
        *,
        listener: Listeners | None = None,
        unlabelled: Sequence[UnlabelledImages] = (),
        engine: Engine | None = None,
        part: WorkPart | None = None,
    ) -> None:
        self._members = {member_name(member): member for member in resolve_zoo(zoo)}
        self.models = list(self._members)
        if engine is None or engine.name != "ray":  # the machines of a cluster have their own
            specs = [each for each in self._members.values() if isinstance(each, ModelSpec)]
            require_extras(extras_of(specs), "the zoo")
        self._networks = {name: network_of_member(each) for name, each in self._members.items()}
        self.path = store_folder(path)
        self._config = config
        self._engine = engine
        self._part = part
        self._listener = Events(or_notebook(listener))
        self._sampled = False
        self._is_finished = False
        self._warned: set[str] = set()
        self.extraction = Extraction(self.path)
        self.extraction.unreadable = {
            name: reason
            for some in (dataset, *unlabelled)
            for name, reason in some.unreadable.items()
        }
        for images in unlabelled:
            require_usable(images, {})
        self.files = _files(dataset, unlabelled)
        self._table = SampleTable.of(dataset, unlabelled)
        self._require_prompts(dataset)
        self._require_images()
        if engine is not None:
            for name, member in self._members.items():
                if not isinstance(member, ModelSpec):
                    raise InputError(
                        f"model {name!r} is a Python object, which the engine {engine.name} cannot "
                        "send to other processes; give its spec, or extract in this process"
                    )
            if any(isinstance(file, ObjectImage) for file in self.files.values()):
                raise InputError(
                    f"the images of {dataset.name!r} are Python objects, which the engine "
                    f"{engine.name} cannot send to other processes; save them as files, or extract "
                    "in this process"
                )

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._writer = stack.enter_context(writing(self.path))
            self._before = set(self._writer.manifest.models)
            self.progress = stack.enter_context(
                ExtractionProgress(
                    self._listener, self.models, len(self.files), self._expected_costs()
                )
            )
            self._timings = Timings(self.path, self.extraction, self.progress)
            self._writer.require_all_images(self._table, self.extraction.unreadable)
            self._writer.require_task(self._table)
            self._writer.set_table(self._table)
            stack.push(self._finish_if_done)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, traceback)

    def _finish_if_done(self, _: object, error: BaseException | None, __: object) -> None:
        if error is None and not self._is_finished:
            self.finish()

    @property
    def failed(self) -> dict[str, str]:
        """Why each model that failed is left out."""
        return self.extraction.failed

    @property
    def seconds_per_image(self) -> dict[str, float]:
        """Time of a forward pass of each model, as far as it is known."""
        known = {name: self._timings.known(name) for name in self.models}
        return {name: each.seconds / each.images for name, each in known.items() if each.images}

    def extract(
        self, models: Sequence[str] | None = None, images: Collection[str] | None = None
    ) -> None:
        """Compute the features that models lack.

        Parameters
        ----------
        models : sequence of str, optional
            By default all.
        images : collection of str, optional
            SHA-256 of some images; by default all. The shards of a sample have no other images, so
            a later sample should include it.
        """
        self._is_finished = False
        names = self.models if models is None else models
        names = [name for name in names if name not in self.extraction.failed]
        if self._engine is not None:
            self._extract_by_tasks(names, images)
        else:
            self._extract_here(names, images)
        if images is not None:
            self._save_timings()

    def finish(self) -> None:
        """Write the manifest of all models that have features of all images."""
        self._writer.adopt(self._save_timings())
        self._writer.finish()
        lost = self._before - self._writer.manifest.models.keys() - self._members.keys()
        self.extraction.outdated = sorted(lost)
        self._is_finished = True

    def _save_timings(self) -> list[str]:
        """Write the timings of the models in the store; return their names."""
        names = [name for name in self.models if name not in self.extraction.failed]
        registered = [name for name in names if self._writer.is_registered(name)]
        for name in registered:
            self._timings.save(name, self._members[name])
        return registered

    def add_class_embeddings(self, store: FeatureStore) -> None:
        """Embed the classes with the text towers of the models."""
        config = self._config
        extraction = self.extraction
        extraction.embedded, extraction.without_texts = add_class_embeddings(
            store, list(self._members.values()), config.prompts, device=config.device
        )

    def view(self, models: Sequence[str], images: Collection[str]) -> StoreSource:
        """Return the features of some models for some images with labels."""
        writer = self._writer
        lists = {name: list(writer.records(name).values()) for name in models}
        stored = {
            name: writer.record(name).stored(name, "", writer.coverage(name).unreadable)
            for name in models
        }
        table = writer.table.only(set(images))
        return StoreSource(FeatureStore.partial(self.path, stored, table, writer.index, lists))

    # --- in this process -------------------------------------------------------------------------

    def _extract_here(self, names: Sequence[str], images: Collection[str] | None) -> None:
        if images is None:
            self._writer.add_images()
        of_part = None
        if self._part is not None:
            of_part = self._plan(names, None)
            used = {name for shard in of_part for name in shard.models}
            names = [name for name in names if name in used]
        loop = ExtractionLoop(
            self.files, self._writer, self._config, self.progress, self.extraction
        )
        for group in loop.load_groups([self._members[name] for name in names]):
            planned = of_part or self._plan([loaded.name for loaded in group], images)
            loop.extract(group, planned)
            group.clear()  # frees the memory for the next group
            if images is None and of_part is None:
                self.finish()  # the models of this group can already be used

    def _expected_costs(self) -> dict[str, float]:
        """Milliseconds per image of models that were timed, or the sizes of all."""
        key = "milliseconds_per_image"
        timed = {name: read_local(self.path, name).get(key) for name in self._members}
        sizes = {
            name: member.parameters
            for name, member in self._members.items()
            if isinstance(member, ModelSpec)
        }
        known = timed if any(timed.values()) else sizes
        return {name: float(cost) for name, cost in known.items() if cost}

    # --- elsewhere -------------------------------------------------------------------------------

    def _extract_by_tasks(self, names: Sequence[str], images: Collection[str] | None) -> None:
        assert self._engine is not None
        if images is None:
            self._writer.add_images()
        planned = self._plan(names, images)
        domains = {image: place[0] for image, place in self._writer.table.places().items()}
        longest = SHARDS_PER_GPU_TASK if self._engine.uses_gpu else SHARDS_PER_TASK
        tasks = list(cut_tasks(planned, domains, self._engine.slots, longest, self._networks))
        used = {name for task in tasks for name in task.models}
        # A model without missing features is loaded, too: it could be another one by now.
        unused = [name for name in names if name not in used]
        tasks += [ModelShards(together) for together in self._by_network(unused)]
        members = [member for member in self._members.values() if isinstance(member, ModelSpec)]
        work = describe_job(self._writer, self.files, members, self._config)
        workers = f"{count(self._engine.slots, 'worker')} ({self._engine.name})"
        self.progress.say(f"{count(len(tasks), 'task')} on {workers}")
        while tasks:
            tasks = self._run_groups(work, tasks)
        self._require_seen()

    def _run_groups(self, work: Work, tasks: Sequence[ModelShards]) -> list[ModelShards]:
        """Run tasks of several models each; return those that are left for later.

        If a task ends its process, each of its networks is tried on its own, and tasks with these
        models that have not started wait until it is known which one it was.
        """
        suspects: set[str] = set()
        alone: list[ModelShards] = []
        later: list[ModelShards] = []

        def ready() -> Iterator[ModelShards]:
            for task in tasks:
                if suspects.isdisjoint(task.models):
                    yield task
                else:
                    later.append(task)

        for task, reason in self._run(work, ready()):
            networks = self._by_network(task.models)
            if len(networks) == 1:
                self._fail_all(task.models, reason)
            else:
                suspects.update(task.models)
                alone += [ModelShards(names, task.domain, task.shards) for names in networks]
        for task, reason in self._run(work, alone) if alone else ():
            self._fail_all(task.models, reason)
        return later

    def _by_network(self, names: Sequence[str]) -> list[list[str]]:
        return by_network(names, lambda name: self._networks[name])

    def _run(self, work: Work, tasks: Iterable[ModelShards]) -> Iterator[tuple[ModelShards, str]]:
        """Run tasks; yield those that failed as a whole, with the reason."""
        assert self._engine is not None
        started: list[ModelShards] = []
        timed = set(self.extraction.pass_times)

        def encoded() -> Iterator[bytes]:
            for task in tasks:
                models = [name for name in task.models if name not in self.extraction.failed]
                if models:
                    new = [name for name in models if name not in timed]
                    timed.update(new)
                    started.append(ModelShards(models, task.domain, task.shards, new))
                    yield msgspec.json.encode(started[-1])

        sizes = {name: len(images) for name, images in self._writer.index.shards.items()}

        def report(number: int, share: float) -> None:
            n_images = share * sum(sizes[shard] for shard in started[number].shards)
            self.progress.runs(number, dict.fromkeys(started[number].models, n_images))

        for number, reply in self._engine.run(work, encoded(), report):
            self.progress.runs(number, {})
            if reply.result is not None:
                done = msgspec.json.decode(reply.result, type=Done)
                done.add_to(self.extraction)
                for message in done.warnings:
                    self._warn(message)
                for name, reason in done.failed.items():
                    self._fail(name, reason)
                for name, shards in done.written.items():
                    n_images = sum(sizes[shard] for shard in shards)
                    self.progress.advance(name, n_images, done.timings[name][1])
            elif reply.fatal:
                raise InputError(str(reply.error))
            else:
                yield started[number], str(reply.error)

    def _fail(self, name: str, reason: str) -> None:
        if name not in self.extraction.failed:
            reason = reason.removeprefix(f"model {name!r}: ")
            self.extraction.failed[name] = reason
            self.progress.fail(name, reason)

    def _fail_all(self, names: Sequence[str], reason: str) -> None:
        for name in names:
            self._fail(name, reason)

    def _warn(self, message: str) -> None:
        """Repeat a warning of a worker, once."""
        if message not in self._warned:
            self._warned.add(message)
            warnings.warn(message, stacklevel=2)

    def _require_seen(self) -> None:
        """Check that what workers have written is here, with the checksums they returned."""
        self._writer.refresh()
        for name, shards in self.extraction.written.items():
            records = self._writer.records(name)
            for shard, checksum in shards.items():
                found = records.get(shard)
                if found is None or found.features.sha256 != checksum:
                    raise InputError(
                        f"a worker has written the shard {shard!r} of model {name!r}, but the "
                        f"store {shown(self.path)!r} does not have it here; put the store on a "
                        "disk that all machines share, or at a URL"
                    )

    # --- planning --------------------------------------------------------------------------------

    def _plan(self, names: Sequence[str], images: Collection[str] | None) -> list[PlannedShard]:
        files = self.files
        if images is not None:
            self._sampled = True  # the rest of the images, too, gets shards of its own
            wanted = set(images)
            files = {image: file for image, file in files.items() if image in wanted}
        return plan_missing(
            self._writer,
            names,
            files,
            self.progress,
            again=images is None and self._part is None,
            only=self._sampled,
            part=self._part,
        )

    def _require_prompts(self, dataset: ImageDomains) -> None:
        """Reject class names that are not those of the data, before anything is computed."""
        prompts, task = self._config.prompts, self._table.task
        if not task.one_class and not prompts.is_default:
            raise InputError(
                f"class names and prompts are for classification, and the task is {task.kind}; "
                "leave them out"
            )
        prompts.require_classes(sorted({sample.label for sample in dataset.samples}))

    def _require_images(self) -> None:
        unreadable = self.extraction.unreadable
        if unreadable and self._config.on_error == "fail":
            name, reason = next(iter(unreadable.items()))
            raise InputError(f"cannot read {name!r}: {reason}")
        if not self.files:
            name, reason = next(iter(unreadable.items()))
            raise InputError(f"none of the images can be read; first error: {name!r}: {reason}")


def _files(dataset: ImageDomains, unlabelled: Sequence[UnlabelledImages]) -> dict[str, ImageFile]:
    """Return a file of each image, by its SHA-256."""
    pairs = list(zip(dataset.digests, dataset.files, strict=True))
    for part in unlabelled:
        pairs += zip(part.digests, part.files.values(), strict=True)
    return {digest: file for digest, file in reversed(pairs) if digest is not None}


def add_class_embeddings(
    store: FeatureStore,
    members: Sequence[ModelSpec | Model],
    prompts: Prompts,
    *,
    device: str = "auto",
) -> tuple[list[str], dict[str, str]]:
    """Embed the classes with each model that has a text tower, unless the store has the result.

    What was not asked for is as it was the last time, and at first the default. A store of another
    task than classification has no classes to embed.

    Returns
    -------
    list of str
        The models that embedded them now.
    dict of str to str
        Why models with a text tower have no embeddings.
    """
    done: list[str] = []
    problems: dict[str, str] = {}
    if not store.task.one_class:
        return done, problems
    for member in members:
        if isinstance(member, Model) or member.name not in store.models:
            continue
        if member.layer is not None:  # its features are not in the space of the texts
            continue
        try:
            if _embed(store, member, prompts, device):
                done.append(member.name)
        except InputError as error:
            problems[member.name] = str(error)
    return done, problems


def _embed(store: FeatureStore, spec: ModelSpec, prompts: Prompts, device: str) -> bool:
    """Embed the classes with a model; False if there is nothing to do."""
    stored = store.model(spec.name)
    try:
        earlier = store.class_embeddings(spec.name)
    except InputError:  # damaged: made again
        earlier = None
    names, templates = _class_texts(store.classes, prompts, earlier)
    if earlier is not None and (earlier.classes, earlier.names, earlier.prompts) == (
        store.classes,
        names,
        templates,
    ):
        return False
    where = resolve_device(parse_devices(device)[0], spec.kind)
    tower = get_source(spec.kind).text_tower(spec, device=where)
    if tower is None:
        return False
    embeddings = embed_classes(tower, names, templates)
    if embeddings.shape[1] != stored.feature_dim:
        raise InputError(
            f"its text embeddings have {embeddings.shape[1]} numbers, its image features "
            f"{stored.feature_dim}"
        )
    found = ClassEmbeddings(store.classes, names, templates, embeddings, tower.scale, tower.bias)
    with writing(store.path):
        write_class_embeddings(store.path, spec.name, stored.identity, found)
    return True


def _class_texts(
    classes: Sequence[str], prompts: Prompts, earlier: ClassEmbeddings | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The name of each class, and the templates."""
    templates = prompts.templates or (PROMPTS if earlier is None else earlier.prompts)
    if prompts.class_names is not None or earlier is None:
        return texts_of(classes, prompts.class_names), templates
    known = dict(zip(earlier.classes, earlier.names, strict=True))
    names = {label: known.get(label, default_text(label)) for label in classes}
    return texts_of(classes, names), templates
