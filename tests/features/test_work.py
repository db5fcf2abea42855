"""The extraction as tasks and parts."""

from __future__ import annotations

import gc
import os
import shutil
import weakref
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.features.data import Tree, Zoo

from oodzoo.data.dataset import ImageDomains
from oodzoo.data.files import LocalFile
from oodzoo.extraction import work as features_work
from oodzoo.extraction.config import Extraction, ExtractionConfig
from oodzoo.extraction.engines.choice import Part
from oodzoo.extraction.engines.task import Work, Worker
from oodzoo.extraction.members import LoadedModel
from oodzoo.extraction.planning import planned_part
from oodzoo.extraction.work import (
    MODELS_PER_TASK,
    TASKS_PER_SLOT,
    Done,
    ExtractionJob,
    ModelShards,
    cut_tasks,
    describe_job,
    missing_here,
    run_task,
)
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.index import ImageIndex
from oodzoo.store.table import SampleTable
from oodzoo.store.writer import PlannedShard, writing
from oodzoo.zoo import ModelSpec, load_zoo

# --- work --------------------------------------------------------------------------------------


WORKER = Worker(device="cpu", cores=1)


# --- cutting ----------------------------------------------------------------------------------


@st.composite
def plans(draw: st.DrawFn) -> tuple[list[PlannedShard], dict[str, str]]:
    """Shards of some domains that some models lack, and the domain of each image."""
    models = [f"model{number}" for number in range(draw(st.integers(1, 20)))]
    planned: list[PlannedShard] = []
    domains: dict[str, str] = {}
    for domain in range(draw(st.integers(1, 3))):
        for _ in range(draw(st.integers(1, 30))):
            image = f"image{len(planned)}"
            domains[image] = f"domain{domain}"
            lacking = draw(st.sampled_from([models, models[:1], models[-2:]]))
            planned.append(PlannedShard(f"00000-{len(planned):05d}", [image], lacking))
    return planned, domains


@given(plans(), st.integers(1, 40), st.integers(1, 9))
def test_tasks_are_disjoint_and_cover_the_plan(
    plan: tuple[list[PlannedShard], dict[str, str]], slots: int, longest: int
) -> None:
    planned, domains = plan
    tasks = list(cut_tasks(planned, domains, slots, longest))
    pairs = [(shard, model) for task in tasks for shard in task.shards for model in task.models]
    assert len(pairs) == len(set(pairs))
    assert set(pairs) == {(shard.name, model) for shard in planned for model in shard.models}
    by_name = {shard.name: shard for shard in planned}
    for task in tasks:
        assert 1 <= len(task.models) <= MODELS_PER_TASK
        assert 1 <= len(task.shards) <= longest
        assert {domains[by_name[name].images[0]] for name in task.shards} == {task.domain}


@pytest.mark.parametrize(("models", "shards", "slots"), [(300, 2000, 32), (1, 64, 8), (20, 3, 8)])
def test_there_are_tasks_for_every_slot(models: int, shards: int, slots: int) -> None:
    names = [f"model{number}" for number in range(models)]
    planned = [PlannedShard(f"00000-{n:05d}", [f"image{n}"], names) for n in range(shards)]
    tasks = list(cut_tasks(planned, {f"image{n}": "d" for n in range(shards)}, slots))
    assert len(tasks) >= min(models * shards, TASKS_PER_SLOT * slots)
    # A worker keeps the models that it has loaded: they change as rarely as possible.
    groups = [task.models for task in tasks]
    assert sum(a != b for a, b in pairwise(groups)) == (len({tuple(group) for group in groups}) - 1)


# --- running ----------------------------------------------------------------------------------


@pytest.fixture
def zoo_of_two(zoo: Zoo) -> list[ModelSpec]:
    return zoo()


@pytest.fixture
def job(digits: Path, zoo_of_two: list[ModelSpec], tmp_path: Path) -> Work:
    """The extraction of the digits into a new store, whose index exists."""
    return describe(digits, zoo_of_two, tmp_path / "s")


def describe(digits: Path, zoo: list[ModelSpec], store: Path) -> Work:
    dataset = ImageDomains(digits)
    pairs = zip(dataset.files, dataset.digests, strict=True)
    files = {str(digest): file for file, digest in pairs}
    with writing(store) as writer:
        writer.set_table(SampleTable.of(dataset))
        writer.add_images()
        return describe_job(writer, files, zoo, ExtractionConfig(device="cpu"))


def run(job: Work, task: ModelShards) -> Done:
    return msgspec.json.decode(run_task(job.shared, msgspec.json.encode(task), WORKER), type=Done)


def test_a_task_writes_shards_and_returns_their_checksums(
    job: Work, zoo_of_two: list[ModelSpec], made: Path, tree: Tree, tmp_path: Path
) -> None:
    names = [spec.name for spec in zoo_of_two]
    task = ModelShards(names, "marker", ["00000-00001", "00000-00002"])
    done = run(job, task)
    assert done.decoded == 30
    assert done.failed == done.interrupted == {}
    assert done.warnings == []
    expected = tree(made)
    for name in names:
        assert done.written[name].keys() == set(task.shards)
        assert set(done.written[name].values()) <= set(expected.values())
        assert done.timings[name][0] == 30
    written = {key: digest for key, digest in tree(tmp_path / "s").items() if key[:6] == "models"}
    assert expected.items() >= written.items()
    # a second attempt at the same task finds everything done
    again = run(job, task)
    assert (again.written, again.decoded) == ({}, 0)
    # as the extraction counts them
    extraction = Extraction(tmp_path / "s")
    done.add_to(extraction)
    run(job, ModelShards(names, "chalk", ["00000-00000"])).add_to(extraction)
    assert extraction.shards == 6
    assert extraction.decoded == 45
    assert {timing.images for timing in extraction.timings.values()} == {45}


def test_the_job_is_the_same_from_any_folder(
    digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of models and images are found wherever the worker runs."""
    source = {spec.name: spec for spec in load_zoo("demo")}["separable_shapes"]
    shutil.copy(source.file, tmp_path / "net.onnx")
    (tmp_path / "zoo.toml").write_text(
        f'[[model]]\nname = "net"\nsource = "onnx/net.onnx"\ninput_size = 32\n'
        f"mean = {list(source.mean or ())}\nstd = {list(source.std or ())}\n"
        f'features = "{source.features}"\n'
    )
    monkeypatch.chdir(tmp_path)
    work = describe(Path(os.path.relpath(digits)), load_zoo("zoo.toml"), Path("s"))
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    done = run(work, ModelShards(["net"], "chalk", ["00000-00000"]))
    assert (done.failed, list(done.written)) == ({}, ["net"])


def test_a_failure_names_the_machine(digits: Path, tmp_path: Path) -> None:
    missing = ModelSpec(name="net", source="onnx/net.onnx", folder=tmp_path)
    work = describe(digits, [missing], tmp_path / "s")
    task = msgspec.json.encode(ModelShards(["net"], "chalk", ["00000-00000"]))
    worker = Worker("node7", "cpu", 1)
    done = msgspec.json.decode(run_task(work.shared, task, worker), type=Done)
    assert done.failed["net"].endswith(" (on the machine node7)")
    assert str(tmp_path / "net.onnx") in done.failed["net"]


def test_models_are_loaded_once_for_tasks_that_follow_each_other(
    job: Work, zoo_of_two: list[ModelSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[str] = []
    load = ExtractionConfig.load

    def count(self: ExtractionConfig, members: Sequence[ModelSpec]) -> object:
        loaded.extend(member.name for member in members)
        return load(self, members)

    monkeypatch.setattr(ExtractionConfig, "load", count)
    monkeypatch.setattr(features_work._Memory, "last", None)
    one, two = (spec.name for spec in zoo_of_two)
    for shard in range(2):
        run(job, ModelShards([one, two], "", [f"00000-{shard:05d}"]))
    assert loaded == [one, two]
    run(job, ModelShards([two], "", ["00000-00002"]))
    run(job, ModelShards([one], "", ["00000-00002"]))  # it was forgotten
    assert loaded == [one, two, one]


def test_models_that_do_not_fit_into_memory_are_forgotten(
    digits: Path, zoo: Zoo, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    names = ["mlp_glyphs_augmented", "separable_random", "separable_shapes"]
    job = describe(digits, zoo(*names), tmp_path / "s")
    loaded: list[weakref.ref[LoadedModel]] = []
    present: list[int] = []
    load = ExtractionConfig.load

    def watch(self: ExtractionConfig, members: Sequence[ModelSpec]) -> object:
        gc.collect()
        present.append(sum(reference() is not None for reference in loaded))
        found = load(self, members)
        loaded.extend(weakref.ref(model) for model in found if isinstance(model, LoadedModel))
        return found

    monkeypatch.setattr(ExtractionConfig, "load", watch)
    monkeypatch.setattr("oodzoo.extraction.loop.available_memory", lambda: 0)
    done = run(job, ModelShards(names, "", ["00000-00000", "00000-00001", "00000-00002"]))
    assert done.written.keys() == set(names)
    assert present == [0, 1, 1]  # one that is used next, and not all before it


# --- what a machine lacks ---------------------------------------------------------------------


def changed(job: Work, **changes: object) -> bytes:
    old = msgspec.json.decode(job.shared, type=ExtractionJob)
    return msgspec.json.encode(msgspec.structs.replace(old, **changes))


def test_a_machine_without_the_store(job: Work, made: Path, tmp_path: Path) -> None:
    assert missing_here(job.shared) == []
    (problem,) = missing_here(changed(job, store=str(tmp_path / "nowhere")))
    assert problem.startswith(f"cannot see the store {str(tmp_path / 'nowhere')!r}; put it on")
    (tmp_path / "s/images/00000.json").write_text("{}")
    (problem,) = missing_here(job.shared)
    assert problem.startswith(f"has another store at {str(tmp_path / 's')!r}; put the store on")
    assert FeatureStore(made).models  # nothing was written elsewhere


def test_a_machine_without_the_images(job: Work, tmp_path: Path) -> None:
    (problem,) = missing_here(changed(job, files={"x": LocalFile(str(tmp_path / "x.png"))}))
    assert problem == (
        f"cannot read the image {str(tmp_path / 'x.png')!r} (No such file or directory); put the "
        "data on a disk that all share"
    )


# --- part --------------------------------------------------------------------------------------


Pair = tuple[str, str]


@st.composite
def indexes(draw: st.DrawFn) -> ImageIndex:
    """An index of shards with different numbers of images."""
    sizes = draw(st.lists(st.integers(1, 9), min_size=1, max_size=12))
    names = [f"00000-{number:05d}" for number in range(len(sizes))]
    return ImageIndex(
        {}, {n: [f"{n} {at}" for at in range(size)] for n, size in zip(names, sizes, strict=True)}
    )


def plan(index: ImageIndex, models: list[str], done: set[Pair]) -> list[PlannedShard]:
    """What is left to do."""
    lacking = {s: [m for m in models if (s, m) not in done] for s in index.shards}
    return [PlannedShard(s, index.shards[s], names) for s, names in lacking.items() if names]


def pairs(planned: list[PlannedShard]) -> list[Pair]:
    return [(shard.name, model) for shard in planned for model in shard.models]


models = st.lists(st.sampled_from("abcdefgh"), min_size=1, unique=True)


@given(indexes(), models, st.integers(1, 20))
def test_parts_are_disjoint_cover_everything_and_are_balanced(
    index: ImageIndex, models: list[str], of: int
) -> None:
    images = index.images()
    everything = plan(index, models, set())
    parts = [
        pairs(planned_part(everything, index, images, models, Part(number + 1, of)))
        for number in range(of)
    ]
    together = [pair for part in parts for pair in part]
    assert together == pairs(everything)  # in this order: shard by shard
    sizes = [sum(len(index.shards[shard]) for shard, _ in part) for part in parts]
    share = sum(sizes) / of
    largest = max(map(len, index.shards.values()))
    assert all(abs(size - share) <= largest for size in sizes)


@given(indexes(), models, st.integers(1, 9), st.data())
def test_parts_do_not_depend_on_what_is_done(
    index: ImageIndex, models: list[str], of: int, data: st.DataObject
) -> None:
    images = index.images()
    everything = plan(index, models, set())
    done = data.draw(st.sets(st.sampled_from(pairs(everything))))
    for number in range(of):
        part = Part(number + 1, of)
        all_of_it = pairs(planned_part(everything, index, images, models, part))
        rest = pairs(planned_part(plan(index, models, done), index, images, models, part))
        assert rest == [pair for pair in all_of_it if pair not in done]
