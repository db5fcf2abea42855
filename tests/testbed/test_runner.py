"""A test bed run on features."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.events.heard import Heard
from tests.testbed.data import arrays, source, store

import oodzoo
from oodzoo.errors import InputError
from oodzoo.features.source import ArraySource
from oodzoo.testbed import judge, load, run, save
from oodzoo.testbed.measurement import measure


@pytest.fixture(scope="module")
def bed() -> Any:
    return run(source(), resamples=100)


def test_a_test_bed_is_what_is_measured_and_judged(bed: Any) -> None:
    measured = measure(source())
    expected = judge(
        bed.data,
        measured.mean_accuracy,
        measured.columns,
        by_domain=measured.accuracy,
        left_out=measured.left_out,
        resamples=100,
    )
    assert bed == expected
    assert bed.data["protocol"] == "unseen"
    assert bed.data["domains"] == ["d0", "d1", "d2"]


def test_a_store_gives_the_same_and_caches_it(tmp_path: Path, bed: Any) -> None:
    opened = store(tmp_path)
    one = run(opened, resamples=100)
    for name in bed.scores:
        if name != "parc":  # which samples at random
            assert one.scores[name].weighted_tau == pytest.approx(bed.scores[name].weighted_tau)
    assert run(opened, resamples=100) == one
    assert one.data["fingerprint"] == opened.fingerprint
    assert one.data["name"] == "store"
    save(one, tmp_path / "result.json")
    assert load(tmp_path / "result.json") == one


def test_external_scores_are_judged_too() -> None:
    external = {"source_accuracy": {"best": 80.0, "good": 70.0, "fair": 60.0, "poor": None}}
    bed = run(source(), values=external, resamples=20)
    assert bed.scores["source_accuracy"].models == 3
    assert bed.scores["source_accuracy"].tau == pytest.approx(1)
    for name in ("zood", "zood_paper", "logme", "feature_dim"):
        with pytest.raises(InputError, match=f"'{name}' is reserved"):
            run(source(), values={name: {"best": 1.0}})


def test_too_few_models_or_domains() -> None:
    features, y, domains = arrays()
    with pytest.raises(InputError, match="at least 3 models, got 2"):
        run(ArraySource(dict(itertools.islice(features.items(), 2)), y, domains))
    with pytest.raises(InputError, match="'unseen' needs at least 3 domains, got 2; with 2, use"):
        run(source(2))
    with pytest.raises(InputError, match="'all' needs at least 2 domains, got 1"):
        run(source(1), protocol="all")
    with pytest.raises(InputError, match="unknown protocol 'both'; expected one of unseen, all"):
        run(source(), protocol="both")  # type: ignore[arg-type]


def test_two_domains_suffice_for_the_other_protocol() -> None:
    bed = run(source(2), protocol="all", resamples=20)
    assert bed.data["protocol"] == "all"
    assert set(bed.accuracy_by_domain) == {"d0", "d1"}
    assert bed.scores["logme"].values_by_domain == {}


def test_arrays_give_the_same(bed: Any) -> None:
    again = run(*arrays(), groups=[None] * 135, resamples=100, name="mine")
    assert again.accuracy == bed.accuracy
    assert again.scores["zood"].values == bed.scores["zood"].values
    assert again.name == "mine"


def test_one_class_only() -> None:
    rng = np.random.default_rng(0)
    features = {name: rng.normal(size=(30, 4)) for name in "abc"}
    with pytest.raises(oodzoo.InputError, match=r"one class, 'cat' \(30 samples\)"):
        run(features, ["cat"] * 30, ["x", "y", "z"] * 10)


def test_progress_counts_to_the_end() -> None:
    heard = Heard()
    run(source(), resamples=20, listener=heard)
    seen = heard.steps()
    totals = {total for _, total in seen}
    assert len(totals) == 1
    assert [done for done, _ in seen] == list(range(totals.pop()))


def test_the_events_of_a_test_bed() -> None:
    heard = Heard()
    bed = run(source(), resamples=20, name="photos", listener=heard)
    [(stage, start)] = heard.of("start")
    assert (stage, start["data"], start["protocol"]) == ("testbed", "photos", "unseen")
    assert start["models"] == list(bed.models)
    found = heard.metrics("testbed")
    for score, result in bed.scores.items():
        for name in ("weighted_tau", "tau", "regret"):
            value = getattr(result, name)
            assert found.pop(f"{score}/{name}", None) == value
    assert found == {}
    assert heard.of("end")[0][1]["result"] == bed


def test_only_classes_have_an_accuracy() -> None:
    features, _, domains = arrays()
    numbers = np.random.default_rng(0).normal(size=len(domains))
    with pytest.raises(InputError, match="compares accuracies, but the task is 'regression'"):
        run(features, numbers, domains)
