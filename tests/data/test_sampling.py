"""A sample is stratified, exact, the same for the same seed, and grows by adding."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oodzoo.core.errors import InputError
from oodzoo.data.listing import Sample, apportion, stratified_sample
from oodzoo.tasks import task_of

SIZES = st.dictionaries(
    st.tuples(st.sampled_from("abc"), st.sampled_from("xyz")), st.integers(1, 20), min_size=1
)


def images(sizes: dict[tuple[str, str], int], per_group: int = 0) -> list[Sample]:
    """Images of each domain and class; with groups, some of which cross classes."""
    samples = [
        Sample(f"{domain}/{label}/{number}", domain, label)
        for (domain, label), size in sizes.items()
        for number in range(size)
    ]
    if not per_group:
        return samples
    return [s._replace(group=f"g{at // per_group}") for at, s in enumerate(samples)]


@given(
    SIZES, st.integers(0, 50), st.integers(0, 50), st.integers(0, 4), st.integers(0, 3),
    st.randoms(use_true_random=False),
)  # fmt: skip
def test_samples(
    sizes: dict[tuple[str, str], int],
    extra: int,
    more: int,
    per_group: int,
    seed: int,
    shuffle: object,
) -> None:
    samples = images(sizes, per_group)
    n = len(sizes) + extra
    chosen = stratified_sample(samples, n, seed)
    assert chosen == sorted(set(chosen))
    assert len(chosen) >= min(n, len(samples))
    if not per_group:
        found = Counter((samples[at].domain, samples[at].label) for at in chosen)
        assert found == apportion(sizes, n)
    # groups stay whole: one that a person spread over domains is one in each of them
    taken = {(samples[at].domain, samples[at].group or at) for at in chosen}
    left = [(s.domain, s.group or at) for at, s in enumerate(samples) if at not in chosen]
    assert not taken.intersection(left)
    assert set(chosen) <= set(stratified_sample(samples, n + more, seed))
    mixed = list(samples)
    shuffle.shuffle(mixed)  # type: ignore[attr-defined]
    again = {mixed[at] for at in stratified_sample(mixed, n, seed)}
    assert again == {samples[at] for at in chosen}


NUMBERS = task_of("regression", ("age", "height"))
SEVERAL = task_of("multilabel", ("a", "b", "c"))


def test_a_sample_of_rare_labels_has_them() -> None:
    labels = [["a"]] * 90 + [["a", "b"]] * 9 + [["a", "b", "c"]]
    samples = [
        Sample(f"{at}", "day" if at % 2 else "night", SEVERAL.encode(some))
        for at, some in enumerate(labels)
    ]
    chosen = stratified_sample(samples, 10, task=SEVERAL)
    found = Counter(name for at in chosen for name in labels[at])
    assert len(chosen) == 10
    assert found["c"] == 1
    assert found["b"] >= 2
    assert set(chosen) <= set(stratified_sample(samples, 30, task=SEVERAL))


def test_a_sample_of_numbers_has_their_distribution() -> None:
    samples = [
        Sample(f"{at}", "day" if at % 2 else "night", NUMBERS.encode([at / 3, 1.5]))
        for at in range(500)
    ]
    chosen = stratified_sample(samples, 50, task=NUMBERS)
    assert len(chosen) == 50
    assert Counter(at // 100 for at in chosen) == dict.fromkeys(range(5), 10)
    with pytest.raises(InputError, match="10 combinations of domain and range of numbers"):
        stratified_sample(samples, 9, task=NUMBERS)
