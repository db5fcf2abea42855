"""The extraction as tasks and parts; its options, progress and times.

Tasks are run without an engine, whose processes no coverage and no patch would reach.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.events.heard import Heard
from tests.features.data import Extract, Zoo

from oodzoo.core.errors import InputError
from oodzoo.data.dataset import ImageDomains
from oodzoo.extraction import distributed as features_work
from oodzoo.extraction.distributed import (
    MODELS_PER_TASK,
    Done,
    ExtractionJob,
    ModelShards,
    cut_tasks,
    describe_job,
    missing_here,
    run_task,
)
from oodzoo.extraction.engines import Work, Worker, WorkPart
from oodzoo.extraction.extractor import planned_part
from oodzoo.extraction.models import LoadedModel
from oodzoo.extraction.outcome import Extraction, ExtractionConfig, ExtractionProgress, Timings
from oodzoo.extraction.timing import PassTime, Timing
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.format import read_local
from oodzoo.store.table import ImageIndex, SampleTable
from oodzoo.store.writer import PlannedShard, update_local, writing
from oodzoo.zoo import ModelSpec

WORKER = Worker(device="cpu", cores=1)


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


@pytest.fixture
def job(digits: Path, zoo: Zoo, tmp_path: Path) -> Work:
    """The extraction of the digits into a new store, whose index exists."""
    return describe(digits, zoo(), tmp_path / "s")


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


def test_models_are_loaded_once_for_tasks_that_follow_each_other(
    job: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[str] = []
    load = ExtractionConfig.load

    def count(self: ExtractionConfig, members: Sequence[ModelSpec]) -> object:
        loaded.extend(member.name for member in members)
        return load(self, members)

    monkeypatch.setattr(ExtractionConfig, "load", count)
    monkeypatch.setattr(features_work._Memory, "last", None)
    one, two = "mlp_glyphs_augmented", "separable_shapes"
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


@st.composite
def indexes(draw: st.DrawFn) -> ImageIndex:
    """An index of shards with different numbers of images."""
    sizes = draw(st.lists(st.integers(1, 9), min_size=1, max_size=12))
    names = [f"00000-{number:05d}" for number in range(len(sizes))]
    return ImageIndex(
        {}, {n: [f"{n} {at}" for at in range(size)] for n, size in zip(names, sizes, strict=True)}
    )


def pairs(planned: list[PlannedShard]) -> list[tuple[str, str]]:
    return [(shard.name, model) for shard in planned for model in shard.models]


models = st.lists(st.sampled_from("abcdefgh"), min_size=1, unique=True)


@given(indexes(), models, st.integers(1, 20))
def test_parts_are_disjoint_cover_everything_and_are_balanced(
    index: ImageIndex, models: list[str], of: int
) -> None:
    images = index.images()
    everything = [PlannedShard(s, those, models) for s, those in index.shards.items()]
    parts = [
        pairs(planned_part(everything, index, images, models, WorkPart(number + 1, of)))
        for number in range(of)
    ]
    together = [pair for part in parts for pair in part]
    assert together == pairs(everything)  # in this order: shard by shard
    sizes = [sum(len(index.shards[shard]) for shard, _ in part) for part in parts]
    share = sum(sizes) / of
    largest = max(map(len, index.shards.values()))
    assert all(abs(size - share) <= largest for size in sizes)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"dtype": "float64"}, "unknown dtype 'float64'; expected one of float32, float16"),
        ({"precision": "int8"}, "unknown precision 'int8'; expected one of "),
        ({"on_error": "ignore"}, "unknown on_error 'ignore'; expected one of skip, fail"),
        ({"batch_size": 0}, "batch_size must be an integer of at least 1, got 0"),
        ({"device": "cuda:0,tpu"}, "unknown device 'tpu'"),
        ({"device": "cpu,"}, "unknown device ''"),
    ],
)
def test_unknown_options(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        ExtractionConfig(**options)


def timings(path: Path, heard: Heard | None = None) -> tuple[Timings, dict[str, Timing]]:
    """The timings of an extraction into a store, and what it has measured."""
    extraction = Extraction(path)
    return Timings(path, extraction, ExtractionProgress(heard)), extraction.timings


def test_what_is_new_is_added_once(tmp_path: Path, zoo: Zoo) -> None:
    (spec,) = zoo("separable_shapes")
    heard = Heard()
    timing, measured = timings(tmp_path, heard)
    measured[spec.name] = Timing(images=10, seconds=2.0)
    for _ in range(2):
        timing.save(spec.name, spec)
        assert timing.known(spec.name) == Timing(10, 2.0)
    measured[spec.name].images, measured[spec.name].seconds = 20, 3.0
    timing._extraction.add_pass_time(spec.name, PassTime(5.0, "here"))
    timing.save(spec.name, spec)
    assert timing.known(spec.name) == Timing(20, 3.0)
    assert read_local(tmp_path, spec.name) == {
        "source": spec.source,
        "folder": str(spec.folder.resolve()),
        "seconds": 3.0,
        "images": 20,
        "milliseconds_per_image": 5.0,
        "measured": "here",
    }
    assert heard.metrics("extraction") == {f"{spec.name}/milliseconds_per_image": 5.0}
    # the least time is kept, but not that of another machine
    for least, kept in (((6.0, "here"), 5.0), ((4.0, "here"), 4.0), ((6.0, "there"), 6.0)):
        timing, _ = timings(tmp_path)
        timing._extraction.add_pass_time(spec.name, PassTime(*least))
        timing.save(spec.name, spec)
        facts = read_local(tmp_path, spec.name)
        assert (facts["milliseconds_per_image"], facts["measured"]) == (kept, least[1])


def test_a_store_that_lacks_times_gets_them_when_nothing_else_is_missing(
    zoo: Zoo, extract: Extract, digits: Path, tmp_path: Path
) -> None:
    (spec,) = zoo("separable_shapes")
    store = tmp_path / "s"
    extract(digits, [spec], store)
    known = read_local(store, spec.name)
    update_local(store, spec.name, {"milliseconds_per_image": 1e6, "measured": "elsewhere"})
    extract(digits, [spec], store)
    facts = read_local(store, spec.name)
    assert facts["milliseconds_per_image"] < 1e6
    assert {**facts, "milliseconds_per_image": 0} == {**known, "milliseconds_per_image": 0}
