"""`oodzoo testbed`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.testbed.data import store

from oodzoo.ranking.testbed.published import read_table

Run = Callable[..., Any]

PUBLISHED = {
    "weighted_tau": "weighted_tau_feature_based",
    "weighted_tau_with_head": "weighted_tau_classifier_based",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return store(tmp_path_factory.mktemp("bed")).path


def test_a_store(run: Run, folder: Path, tmp_path: Path) -> None:
    out, picture = tmp_path / "result.json", tmp_path / "picture.svg"
    outcome = run("testbed", folder, "--out", out, "--plot", picture)
    assert outcome.code == 0
    lines = outcome.out.splitlines()
    assert max(map(len, lines)) <= 80
    shown = [line.split()[0] for line in lines if line and line[0].isalpha()]
    assert {"unseen", "zood", "zood_paper", "logme", "feature_dim"} <= set(shown)
    (header,) = [line.split() for line in lines if line.startswith("score  ") and "90" in line]
    assert header[:4] == ["score", "regret", "w.", "tau"]
    assert "protocol unseen" in outcome.out
    assert any(line.split() == ["score", "d0", "d1", "d2"] for line in lines)
    assert "leep: not available for 5 models: best, fair, good, … (leep needs" in outcome.err
    document = run("testbed", folder, "--json").document
    assert json.loads(out.read_text()) == document
    assert picture.read_text().startswith("<svg ")


def test_several_stores(run: Run, folder: Path, tmp_path: Path) -> None:
    other = store(tmp_path, 4).path.rename(tmp_path / "other")
    document = run("testbed", folder, other, "--json").document
    assert set(document["results"]) == {"store", "other"}
    for score, mean in document["means"].items():
        taus = [document["weighted_tau"][name][score] for name in ("store", "other")]
        assert mean["weighted_tau"] == pytest.approx(sum(taus) / 2)
        assert mean["worst_weighted_tau"] == min(taus)
        regrets = [document["regret"][name][score] for name in ("store", "other")]
        assert mean["regret"] == pytest.approx(sum(regrets) / 2)
        assert mean["worst_regret"] == max(regrets)
    outcome = run("testbed", folder, other, "--plot", tmp_path / "p.svg")
    assert "Mean and worst over 2 data sets" in outcome.out
    assert max(map(len, outcome.out.splitlines())) <= 80
    assert (tmp_path / "p.svg").exists()
    refused = run("testbed", folder, other, "--out", tmp_path / "r.json").complaint
    assert "--out takes one store, got 2" in refused


def test_the_other_protocol(run: Run, folder: Path) -> None:
    document = run("testbed", folder, "--protocol", "all", "--json").document
    assert document["data"]["protocol"] == "all"
    assert document["scores"]["logme"]["values_by_domain"] == {}


def test_published_accuracies(run: Run, folder: Path, tmp_path: Path) -> None:
    table = tmp_path / "results-imagenet.csv"
    table.write_text("model,top1\nresnet50.a1_in1k,80.2\n")
    document = run("testbed", folder, "--timm-results", table, "--json").document
    assert "source_accuracy" not in document["scores"]  # no model of the store is from timm
    table.write_text("name\n")
    refused = run("testbed", folder, "--timm-results", table).complaint
    assert "must have the columns model and top1" in refused


def test_results_are_compared(run: Run, folder: Path, tmp_path: Path) -> None:
    one, two = tmp_path / "one.json", tmp_path / "two.json"
    run("testbed", folder, "--out", one)
    content = json.loads(one.read_text())
    content["data"]["name"] = "other"
    content["data"]["protocol"] = "all"
    content["scores"] = {"zood": content["scores"]["zood"]}
    two.write_text(json.dumps(content))
    document = run("testbed", "compare", one, two, "--json").document
    assert next(iter(document["means"])) == "zood"
    assert document["means"]["zood"]["beds"] == 2
    assert document["weighted_tau"]["other"] == {
        "zood": document["weighted_tau"]["store"]["zood"],
    }
    outcome = run("testbed", "compare", one, two, "--plot", tmp_path / "p.svg")
    assert outcome.code == 0
    (header,) = [line.split() for line in outcome.out.splitlines() if "other" in line]
    assert header == ["score", "store", "other"]
    assert "different protocols: unseen, all" in outcome.err
    assert (tmp_path / "p.svg").read_text().startswith("<svg ")


def test_many_results_are_shown_in_several_tables(run: Run, folder: Path, tmp_path: Path) -> None:
    run("testbed", folder, "--out", tmp_path / "r.json")
    content = json.loads((tmp_path / "r.json").read_text()) | {"resamples": 10}
    files = []
    for number in range(9):
        content["data"]["name"] = f"a data set, number {number}"
        files.append(tmp_path / f"{number}.json")
        files[-1].write_text(json.dumps(content))
    outcome = run("testbed", "compare", *files)
    assert max(map(len, outcome.out.splitlines())) <= 80
    for number in range(9):
        assert outcome.out.count(f"number {number}") == 1


def test_results_of_the_same_data_are_labelled_by_their_files(
    run: Run, folder: Path, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        run("testbed", folder, "--out", tmp_path / f"{name}.json")
    files = (tmp_path / "one.json", tmp_path / "two.json")
    document = run("testbed", "compare", *files, "--json").document
    assert set(document["results"]) == {"store (one)", "store (two)"}
    complaint = run("testbed", "compare", files[0], files[0]).complaint
    assert "two results are named 'store (one)'" in complaint


def test_external_scores(run: Run, folder: Path, tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("model,source_accuracy,size\nbest,80,1\ngood,70,2\n\nfair,60,\n")
    document = run("testbed", folder, "--values", table, "--json").document
    assert document["scores"]["source_accuracy"]["models"] == 3
    assert document["scores"]["size"]["values"]["fair"] is None
    for content, complaint in (
        ("", "must start with the line model,SCORE"),
        ("model,a\nother,1\n", "no such model: 'other'"),
        ("model,zood\nbest,1\n", "'zood' is reserved"),
    ):
        table.write_text(content)
        assert complaint in run("testbed", folder, "--values", table).complaint
    assert "cannot read" in run("testbed", folder, "--values", tmp_path / "no.csv").complaint


def test_the_published_values(run: Run) -> None:
    document = run("testbed", "paper", "--json").document
    for name, table in PUBLISHED.items():
        for row in read_table(table):
            dataset = row.pop("dataset")
            for score, value in row.items():
                assert f"{document[name][dataset][score]:.2f}" == value, (name, dataset, score)


def test_intervals_are_separate_and_contain_the_value(run: Run) -> None:
    document = run("testbed", "paper", "--json").document
    for name in ("weighted_tau", "tau", "weighted_tau_with_head", "tau_with_head"):
        for dataset, values in document[name].items():
            for score, value in values.items():
                low, high = document["intervals"][name][dataset][score]
                assert -1 <= low <= value <= high <= 1, (name, dataset, score)
    low, high = document["intervals"]["means"]["weighted_tau"]["zood"]
    assert low <= document["means"]["weighted_tau"]["zood"] <= high
    assert ["logme", "zood"] in document["indistinguishable"]["weighted_tau"]["PACS"]
    assert ["h_score", "zood"] not in document["indistinguishable"]["weighted_tau"]["PACS"]
