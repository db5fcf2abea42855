"""`oodzoo testbed`: several stores, results that are compared, the published values."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.conftest import Run
from tests.testbed.data import store

from oodzoo.ranking.testbed.published import read_table

PUBLISHED = {
    "weighted_tau": "weighted_tau_feature_based",
    "weighted_tau_with_head": "weighted_tau_classifier_based",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return store(tmp_path_factory.mktemp("bed")).path


def test_results_are_compared(run: Run, folder: Path, tmp_path: Path) -> None:
    one, two = tmp_path / "one.json", tmp_path / "two.json"
    printed = run("testbed", folder, "--out", one, "--json").document
    content = json.loads(one.read_text())
    assert content == printed
    content["data"] |= {"name": "other", "protocol": "all"}
    content["scores"] = {"zood": content["scores"]["zood"]}
    two.write_text(json.dumps(content))
    document = run("testbed", "compare", one, two, "--json").document
    assert next(iter(document["means"])) == "zood"
    assert document["means"]["zood"]["beds"] == 2
    taus = document["weighted_tau"]
    assert taus["other"] == {"zood": taus["store"]["zood"]}
    outcome = run("testbed", "compare", one, two, "--plot", tmp_path / "p.svg")
    assert "different protocols: unseen, all" in outcome.err
    assert (tmp_path / "p.svg").read_text().startswith("<svg ")
    copy = tmp_path / "copy.json"
    copy.write_bytes(one.read_bytes())
    document = run("testbed", "compare", one, copy, "--json").document
    assert set(document["results"]) == {"store (one)", "store (copy)"}


def test_values_of_other_scores(run: Run, folder: Path, tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("model,source_accuracy,size\nbest,80,1\ngood,70,2\n\nfair,60,\n")
    scores = run("testbed", folder, "--values", table, "--json").document["scores"]
    assert scores["source_accuracy"]["models"] == 3
    assert scores["size"]["values"]["fair"] is None
    table.write_text("model,top1\nresnet50.a1_in1k,80.2\n")
    document = run("testbed", folder, "--timm-results", table, "--json").document
    assert "source_accuracy" not in document["scores"]  # no model of the store is from timm
    for option, content, complaint in (
        ("--values", "", "must start with the line model,SCORE"),
        ("--values", "model,a\nother,1\n", "no such model: 'other'"),
        ("--values", "model,zood\nbest,1\n", "'zood' is reserved"),
        ("--timm-results", "name\n", "must have the columns model and top1"),
    ):
        table.write_text(content)
        assert complaint in run("testbed", folder, option, table).complaint


def test_the_published_values(run: Run) -> None:
    document = run("testbed", "paper", "--json").document
    for name, table in PUBLISHED.items():
        for row in read_table(table):
            dataset = row.pop("dataset")
            for score, value in row.items():
                assert f"{document[name][dataset][score]:.2f}" == value, (name, dataset, score)
    for name in ("weighted_tau", "tau", "weighted_tau_with_head", "tau_with_head"):
        for dataset, values in document[name].items():
            for score, found in values.items():
                low, high = document["intervals"][name][dataset][score]
                assert -1 <= low <= found <= high <= 1, (name, dataset, score)
    low, high = document["intervals"]["means"]["weighted_tau"]["zood"]
    assert low <= document["means"]["weighted_tau"]["zood"] <= high
    assert ["logme", "zood"] in document["indistinguishable"]["weighted_tau"]["PACS"]
    assert ["h_score", "zood"] not in document["indistinguishable"]["weighted_tau"]["PACS"]
