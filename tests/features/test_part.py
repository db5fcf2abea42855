"""The parts of an array job."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from oodzoo.engine.choice import Part
from oodzoo.features.planning import planned_part
from oodzoo.store.index import ImageIndex
from oodzoo.store.writer import PlannedShard

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


def test_most_images_are_decoded_by_one_process() -> None:
    index = ImageIndex({}, {f"00000-{n:05d}": [f"{n} {at}" for at in range(4)] for n in range(16)})
    models = list("abc")
    everything = plan(index, models, set())
    parts = [
        {shard for shard, _ in pairs(planned_part(everything, index, index.images(), models, part))}
        for part in (Part(number, 8) for number in range(1, 9))
    ]
    assert [len(shards) for shards in parts] == [2] * 8
    assert all(a.isdisjoint(b) for a, b in pairwise(parts))
