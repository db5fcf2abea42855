"""Folds computed once for several rankings."""

from __future__ import annotations

import numpy as np
import pytest
from tests.testbed.data import arrays, source

from oodzoo.features.source import ArraySource, FeatureSource
from oodzoo.ranking.ranker import rank, rank_for_test_domains
from oodzoo.testbed.measurement import MemoisedSource


class Counting(ArraySource):
    """Counts how often features are read."""

    reads = 0

    def shards(self, model: str, domain: str):  # type: ignore[no-untyped-def]
        self.reads += 1
        return super().shards(model, domain)


def test_several_scores_share_the_folds() -> None:
    counting = Counting(*arrays())
    remembering = MemoisedSource(counting)
    rank(remembering, score="zood")
    once = counting.reads
    assert rank(remembering, score="accuracy") == rank(source(), score="accuracy")
    assert counting.reads == once
    rank(remembering, score="zood", stability="paper")
    assert counting.reads > once


def test_rankings_of_both_kinds_are_kept_apart() -> None:
    remembering = MemoisedSource(source())
    assert rank(remembering) == rank(source())
    assert rank_for_test_domains(remembering) == rank_for_test_domains(source())


def test_a_warning_is_given_once() -> None:
    features, y, domains = arrays()
    far = ArraySource({"far": features["best"] + 1e6}, y, domains)
    remembering = MemoisedSource(far)
    with pytest.warns(UserWarning, match="times their spread"):
        rank(remembering, score="zood")
    rank(remembering, score="accuracy")  # a second warning would be an error


def test_the_rest_is_that_of_the_source() -> None:
    one, two = source(), MemoisedSource(source())
    assert isinstance(two, FeatureSource)
    assert (two.models, two.domains, two.classes) == (one.models, one.domains, one.classes)
    assert (two.labels("d1") == one.labels("d1")).all()
    assert two.groups("d1") is None
    assert two.logits("best", "d1") is None
    assert two.facts("best") == one.facts("best")
    assert two.provenance == one.provenance
    assert two.only(["d0", "d1"]).domains == ("d0", "d1")
    (block,) = two.shards("best", "d0")
    assert np.array_equal(block[0], next(iter(one.shards("best", "d0")))[0])


def test_the_task_is_that_of_the_source() -> None:
    features, _, domains = arrays()
    numbers = np.random.default_rng(0).normal(size=len(domains))
    assert MemoisedSource(ArraySource(features, numbers, domains)).task.kind == "regression"
