"""What a search has found: counts, order, problems in words, JSON."""

from __future__ import annotations

import json

import pytest

from oodzoo.leaks.pairs import MOST, NearDuplicates, Pair, Pairs


def pair(similarity: float, correlation: float | None = None, **changed: object) -> Pair:
    fields = {
        "paths": ("a.png", "b.png"),
        "domains": ("ink", "oil"),
        "labels": ("cat", "cat"),
        "similarity": similarity,
        "correlation": correlation,
    }
    return Pair(**(fields | changed))  # type: ignore[arg-type]


def result(across: list[Pair], within: list[Pair], scope: str = "all") -> NearDuplicates:
    return NearDuplicates(Pairs.of(across), Pairs.of(within), 1000, ("m", "n"), scope, 0.125, 0.35)


def test_evidence() -> None:
    assert pair(0.5).evidence == "probable"
    assert pair(0.5, 0.9).evidence == "probable"
    assert pair(0.3, 0.99).evidence == "same pixels"
    assert pair(1.0, identical=True).evidence == "identical"


def test_labels_differ_only_if_both_are_known() -> None:
    assert pair(0.5, labels=("cat", "dog")).labels_differ
    assert not pair(0.5, labels=("cat", None)).labels_differ
    assert not pair(0.5).labels_differ


def test_keys_tell_equal_paths_apart() -> None:
    assert pair(0.5, paths=("a.png", "a.png")).keys == ("ink: a.png", "oil: a.png")


def test_pairs_are_sorted_by_evidence_and_similarity() -> None:
    given = [pair(0.9), pair(0.3, 0.99), pair(0.95), pair(1.0, identical=True), pair(0.6, 1.0)]
    pairs = Pairs.of(given, not_listed=7)
    assert [p.similarity for p in pairs.worst] == [1.0, 0.6, 0.3, 0.95, 0.9]
    assert pairs.counts == {"identical": 1, "same pixels": 2, "probable": 9}
    assert len(pairs) == 12
    evidence = "1 identical, 2 with nearly the same pixels, 9 probable"
    assert str(pairs) == f"12 pairs of near-duplicate images ({evidence})"


def test_only_the_worst_are_listed() -> None:
    pairs = Pairs.of([pair(at / 1000) for at in range(MOST + 50)])
    assert len(pairs.worst) == MOST
    assert len(pairs) == MOST + 50


def test_each_problem_says_what_to_do() -> None:
    found = result([pair(0.9), pair(0.8, labels=("cat", "dog"))], [pair(0.7)])
    leak, within, labels = found.problems
    assert "leak between domains: 2 pairs" in leak
    assert "remove one image of each pair" in leak
    assert "1 pair of near-duplicate images" in within
    assert "the same group" in within
    assert "1 pair of near-duplicate images with different labels" in labels
    assert not result([], []).problems


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        ("all", "All pairs of 1,000 images were compared by features of 2 models."),
        ("class", "Only pairs with the same label (12.5% of all pairs of 1,000 images)"),
        ("part", "Only a sample of the pairs with the same label (0.12 of all"),
    ],
)
def test_what_was_compared(scope: str, expected: str) -> None:
    assert result([], [], scope).extent.startswith(expected)


def test_json_and_back() -> None:
    found = result([pair(0.9, 0.98, labels=("cat", None))], [pair(0.7)])
    document = json.loads(json.dumps(found.to_dict()))
    assert document["across"]["worst"][0]["evidence"] == "same pixels"
    assert NearDuplicates.from_dict(document) == found
    assert found.metrics == {"pairs_across_domains": 1, "pairs_within_domains": 1}
    assert repr(found).startswith("NearDuplicates(1 pair across domains, 1 within; ")
