"""Test beds of stores and arrays: accuracies of heads, scores of all kinds, result files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tests.events.heard import Heard
from tests.testbed.data import NOISE, arrays, source, store

import oodzoo
from oodzoo import scores
from oodzoo.core.errors import InputError
from oodzoo.core.packages import import_torchvision, torchvision_installed
from oodzoo.extraction.columns import Samples
from oodzoo.extraction.features import ArraySource, StoreSource
from oodzoo.extraction.importing import import_features
from oodzoo.linear.heads.linear import fit_head
from oodzoo.ranking.ranker import rank_for_test_domains
from oodzoo.ranking.terms import FOLD_SCORES
from oodzoo.ranking.testbed.runner import (
    PAPER,
    BedMeasurement,
    head_accuracy,
    measure,
    published_accuracies,
    read_timm_results,
    read_values,
)
from oodzoo.testbed import judge, load, run, save


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    """What a test registers is removed."""
    before = scores.names()
    yield
    for name in set(scores.names()) - set(before):
        scores.unregister(name)


@pytest.fixture(scope="module")
def measured() -> BedMeasurement:
    return measure(source())


def test_accuracies_are_those_of_heads_fitted_to_the_other_domains(
    measured: BedMeasurement,
) -> None:
    features, y, domains = arrays()
    for model, X in features.items():
        for domain, accuracies in measured.accuracy.items():
            there = domains == domain
            codes = np.unique(domains[~there], return_inverse=True)[1]
            training = Samples(X[~there].astype(np.float32), y[~there].astype(np.int64), codes)
            C = fit_head(training, 3).C
            head = make_pipeline(StandardScaler(), LogisticRegression(C=C, max_iter=1000))
            expected = head.fit(X[~there], y[~there]).score(X[there], y[there])
            # features are stored in single precision
            tolerance = 100 / there.sum() + 1e-9
            assert accuracies[model] == pytest.approx(100 * expected, abs=tolerance)
    mean = np.mean([measured.accuracy[d]["fair"] for d in measured.accuracy])
    assert measured.mean_accuracy["fair"] == pytest.approx(mean)
    # a head may be tested on another source
    part = np.arange(len(y)) // 3 % 2 == 0
    few = ArraySource({m: X[part] for m, X in features.items()}, y[part], domains[part])
    tested = ArraySource({"best": np.eye(3, 4)[y.astype(int)]}, y, domains)
    assert head_accuracy(few, "best", "d1", tested=tested) == 100.0
    assert head_accuracy(few, "none", "d1", tested=source()) != head_accuracy(few, "none", "d1")
    one_class = ArraySource(features, np.where(domains == "d0", y, "0"), domains)
    with pytest.raises(InputError, match="other than 'd0' have only the class '0'"):
        head_accuracy(one_class, "best", "d0")


def test_scores_are_those_of_rankings_without_the_test_domain(measured: BedMeasurement) -> None:
    features, y, domains = arrays()
    without_a_head = [n for n in scores.names() if scores.get(n).needs == "features"]
    assert set(measured.columns) == {*FOLD_SCORES, PAPER, *without_a_head, "feature_dim"}
    assert set(measured.left_out) == {"leep", "nce", "zero_shot"}
    assert set(measured.left_out["leep"]) == set(NOISE)
    assert all(column.title for column in measured.columns.values())
    forms: dict[str, dict[str, Any]] = {name: {"score": name} for name in FOLD_SCORES}
    forms |= {name: {"score": name} for name in ("logme", "knn", "h_score")}
    forms[PAPER] = {"score": "zood", "stability": "paper"}
    for name, options in forms.items():
        column = measured.columns[name]
        for test, found in rank_for_test_domains(source(), **options).items():
            expected = {row.model: row.score for row in found}
            assert column.by_domain[test] == pytest.approx(expected)
        for model in features:
            mean = np.mean([values[model] for values in column.by_domain.values()])
            assert column.values[model] == pytest.approx(mean)
    assert measured.columns[PAPER].values != measured.columns["zood"].values
    everything = measure(source(), "all")  # the other protocol: of all domains
    assert everything.accuracy == measured.accuracy
    for name in ("zood", "stability", "accuracy", "logme", "knn"):
        ranking = oodzoo.rank(features, y, domains, score=name)
        expected = {row.model: row.score for row in ranking}
        assert everything.columns[name].values == pytest.approx(expected)
        assert everything.columns[name].by_domain == {}


def test_scores_that_some_models_lack_or_that_others_add(tmp_path: Path) -> None:
    @scores.score("closeness", title="Minus the spread within classes", uses_domains=True)
    def closeness(X: Any, y: Any, domains: Any) -> float:
        assert len(np.unique(domains)) == 2
        return -float(np.mean([X[y == c].std(axis=0).mean() for c in np.unique(y)]))

    @scores.score("hopeless")
    def hopeless(X: Any, y: Any) -> float:
        if X.shape[1] > 6:
            raise RuntimeError("too wide")
        return float("nan") if X.shape[1] > 5 else 1.0

    names: dict[str, Any] = {"__name__": None}
    exec("def typed(X, y): return -float(X.std())", names)  # a function without a module
    scores.register(scores.Score("typed", names["typed"]))
    features: Any
    features, y, domains = arrays()
    rng, one_hot = np.random.default_rng(1), np.eye(3)[y.astype(int)]
    heads: Any = {
        f"{name}.logits": one_hot * 2 + NOISE[name] * rng.normal(size=(135, 3))
        for name in ("best", "good", "poor")
    }
    np.savez(tmp_path / "f.npz", labels=y, domains=domains, **features, **heads)
    found = measure(StoreSource(import_features([tmp_path / "f.npz"], tmp_path / "store")))
    values = found.columns["closeness"].values
    assert sorted(values, key=lambda model: -(values[model] or 0)) == list(NOISE)
    assert found.columns["closeness"].title == "Minus the spread within classes"
    assert [found.columns["hopeless"].values[model] for model in NOISE] == [1.0, 1.0, *[None] * 3]
    reasons = found.left_out["hopeless"]
    assert "failed: RuntimeError: too wide" in reasons["poor"]
    assert "must be a finite number, got nan" in reasons["fair"]
    assert found.columns["typed"].values["best"] is not None
    assert [found.columns["leep"].values[m] is None for m in ("best", "fair")] == [False, True]
    assert set(found.left_out["leep"]) == {"fair", "none"}
    assert "head" in found.left_out["leep"]["fair"]


def test_a_store_and_arrays_give_the_same(tmp_path: Path, measured: BedMeasurement) -> None:
    heard = Heard()
    bed = run(source(), resamples=100, name="photos", listener=heard)
    accuracy, columns = measured.mean_accuracy, measured.columns
    options: dict[str, Any] = {"by_domain": measured.accuracy, "left_out": measured.left_out}
    assert bed == judge(bed.data, accuracy, columns, resamples=100, **options)
    assert (bed.name, bed.data["protocol"]) == ("photos", "unseen")
    assert bed.data["domains"] == ["d0", "d1", "d2"]
    [(stage, start)] = heard.of("start")
    assert (stage, start["data"], start["protocol"]) == ("testbed", "photos", "unseen")
    assert start["models"] == list(bed.models)
    expected = {
        f"{score}/{name}": getattr(result, name)
        for score, result in bed.scores.items()
        for name in ("weighted_tau", "tau", "regret")
        if getattr(result, name) is not None
    }
    assert heard.metrics("testbed") == expected
    assert heard.of("end")[0][1]["result"] == bed
    ((total,), done) = {total for _, total in heard.steps()}, [done for done, _ in heard.steps()]
    assert done == list(range(total))
    again = run(*arrays(), groups=[None] * 135, resamples=100)
    assert again.accuracy == bed.accuracy
    assert again["zood"].values == bed["zood"].values
    opened = store(tmp_path)
    one = run(opened, resamples=100)
    for name in bed:
        if name != "parc":  # which samples at random
            assert one[name].weighted_tau == pytest.approx(bed[name].weighted_tau)
    files = sorted((opened.path / "cache" / "head-accuracy").iterdir())
    assert len(files) == 3 * len(NOISE)
    assert run(opened, resamples=100) == one
    assert sorted((opened.path / "cache" / "head-accuracy").iterdir()) == files
    assert (one.data["fingerprint"], one.name) == (opened.fingerprint, "store")
    save(one, tmp_path / "deep" / "result.json")
    assert load(tmp_path / "deep" / "result.json") == one
    json.dumps(one.to_dict(), allow_nan=False)


def test_published_accuracies(tmp_path: Path) -> None:
    """In a table of timm's; or those of torchvision, where it is installed."""
    results, opened = tmp_path / "results-imagenet.csv", store(tmp_path)
    results.write_text(
        "model,top1,top1_err,top5,top5_err,param_count,img_size,crop_pct,interpolation\n"
        'eva.large,90.052,9.948,99.0,1.0,"1,014.45",448,1.000,bicubic\n'
        "resnet50.a1_in1k,80.2,19.8,95,5,25,224,0.95,bicubic\n"
        "resnet50.ram_in1k,79.9,20.1,95,5,25,224,0.95,bicubic\n"
    )
    table, record = read_timm_results(results), opened.model("best")

    def published(origin: str, **changes: Any) -> Any:
        """The accuracy, or why there is none."""
        changed = msgspec.structs.replace(record, source=origin, **changes)
        opened.manifest.models["best"] = changed
        values, reasons = published_accuracies(opened, ["best"], table)
        return values["best"] or reasons["best"]

    assert published("timm/resnet50.a1_in1k") == 80.2
    assert published("timm/hf-hub:timm/resnet50.ram_in1k") == 79.9
    assert published("timm/eva") == 90.052  # the only weights of this architecture
    assert "several weights of 'resnet50'" in published("timm/resnet50")
    assert "do not contain 'resnet50.new'" in published("timm/resnet50.new")
    untrained = published("timm/resnet50.a1_in1k", spec={"pretrained": False})
    assert untrained == "its weights are random"
    if torchvision_installed():
        torchvision = import_torchvision(extra="torchvision", purpose="this test")
        weights = torchvision.models.ResNet50_Weights
        each = weights.IMAGENET1K_V1, weights.DEFAULT
        first, newest = (one.meta["_metrics"]["ImageNet-1K"]["acc@1"] for one in each)
        assert published("torchvision/resnet50.IMAGENET1K_V1") == first
        assert published("torchvision/resnet50", pretraining="IMAGENET1K_V1") == first
        assert published("torchvision/resnet50") == newest
        assert "no accuracy on ImageNet for 'no_such'" in published("torchvision/no_such")
        assert isinstance(published("torchvision/resnet50.NO_SUCH_WEIGHTS"), str)
    opened.manifest.models["best"] = record
    for name, origin in (("best", "a1_in1k"), ("good", "ram_in1k"), ("fair", "new")):
        changed = msgspec.structs.replace(opened.model(name), source=f"timm/resnet50.{origin}")
        opened.manifest.models[name] = changed
    bed = run(opened, timm_results=results, resamples=50)
    row = bed["source_accuracy"]
    assert (row.models, row.values["good"]) == (2, 79.9)
    assert row.title == "Published accuracy on ImageNet"
    assert set(bed.left_out["source_accuracy"]) == {"fair", "poor", "none"}
    columns = tmp_path / "t.csv"  # of other scores; an empty cell is missing
    columns.write_text("model,source_accuracy,size\nbest,80,1\ngood,70,2\n\nfair,60,\n")
    own = read_values(columns)
    assert own == {
        "source_accuracy": {"best": 80.0, "good": 70.0, "fair": 60.0},
        "size": {"best": 1.0, "good": 2.0, "fair": None},
    }
    given = run(opened, timm_results=results, values=own, resamples=50)
    assert given["source_accuracy"].values["best"] == 80.0
    assert "source_accuracy" not in given.left_out
