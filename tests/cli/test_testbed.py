"""`oodzoo testbed`, as a person and as a script meet it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.testbed.data import store

Run = Callable[..., Any]


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
    assert {"zood", "logme", "feature_dim"} <= set(shown)
    assert "leep: 5 models do not have it" in outcome.err
    document = run("testbed", folder, "--json").document
    assert json.loads(out.read_text()) == document
    assert picture.read_text().startswith("<?xml")


def test_results_side_by_side(run: Run, folder: Path, tmp_path: Path) -> None:
    one, two = tmp_path / "one.json", tmp_path / "two.json"
    run("testbed", folder, "--out", one)
    content = json.loads(one.read_text())
    content["data"]["name"] = "other"
    content["data"]["protocol"] = "unseen"
    content["scores"] = {"zood": content["scores"]["zood"]}
    two.write_text(json.dumps(content))
    document = run("testbed", "compare", one, two, "--json").document
    assert next(iter(document["means"])) == "zood"
    assert document["means"]["zood"]["beds"] == 2
    assert document["weighted_tau"]["other"] == {
        "zood": document["weighted_tau"]["store"]["zood"],
    }
    outcome = run("testbed", "compare", one, two, "--plot", tmp_path / "p.png")
    assert outcome.code == 0
    (header,) = [line.split() for line in outcome.out.splitlines() if "other" in line]
    assert header == ["score", "mean", "90", "%", "regret", "store", "other"]
    assert "different protocols: all, unseen" in outcome.err
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


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


def test_results_of_the_same_data_are_told_apart_by_their_files(
    run: Run, folder: Path, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        run("testbed", folder, "--out", tmp_path / f"{name}.json")
    files = (tmp_path / "one.json", tmp_path / "two.json")
    document = run("testbed", "compare", *files, "--json").document
    assert set(document["results"]) == {"store (one)", "store (two)"}
    complaint = run("testbed", "compare", files[0], files[0]).complaint
    assert "two results are called 'store (one)'" in complaint


def test_scores_from_a_table(run: Run, folder: Path, tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("model,source_accuracy,size\nbest,80,1\ngood,70,2\n\nfair,60,\n")
    document = run("testbed", folder, "--values", table, "--json").document
    assert document["scores"]["source_accuracy"]["models"] == 3
    assert document["scores"]["size"]["values"]["fair"] is None
    for content, complaint in (
        ("", "must begin with the line model,SCORE"),
        ("name,a\nbest,1\n", "and not 'name,a'"),
        ("model,a,a\nbest,1,2\n", "names a score twice"),
        ("model,a\nbest,1,2\n", "row 2: 3 cells, not 2"),
        ("model,a\nbest,x\n", "row 2: 'x' is no number"),
        ("model,a\nbest,1\nbest,1\n", "row 3: the model 'best' comes twice"),
        ("model,a\nother,1\n", "no model 'other'"),
        ("model,zood\nbest,1\n", "'zood' is computed already"),
    ):
        table.write_text(content)
        assert complaint in run("testbed", folder, "--values", table).complaint
    assert "cannot read" in run("testbed", folder, "--values", tmp_path / "no.csv").complaint


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["paper", "x.json"], "testbed paper takes no RESULT, and got x.json"),
        (["paper", "--out", "x.json"], "testbed paper takes no --out, and got x.json"),
        (["paper", "--protocol", "unseen"], "takes no --protocol, and got unseen"),
        (["compare"], "testbed compare needs results"),
        (["compare", "absent.json"], "cannot read the result 'absent.json'"),
        (["compare", "a", "--values", "b"], "testbed compare takes no --values"),
        (["absent"], "there is no feature store 'absent'"),
        (["absent", "x.json"], "testbed absent takes no RESULT"),
        (["paper", "--plot", "x.gif"], "must end in .png, .svg or .pdf"),
    ],
)
def test_wrong_use(run: Run, arguments: list[str], complaint: str) -> None:
    assert complaint in run("testbed", *arguments).complaint


def test_unknown_protocol(run: Run, folder: Path) -> None:
    assert "known are all, unseen" in run("testbed", folder, "--protocol", "x").complaint


def test_a_picture_of_a_ranking(run: Run, folder: Path, tmp_path: Path) -> None:
    for score in ("zood", "logme"):
        assert run("rank", folder, "--score", score, "--plot", tmp_path / "r.pdf").code == 0
        assert (tmp_path / "r.pdf").read_bytes().startswith(b"%PDF")


def test_help_names_the_registered_scores(run: Run) -> None:
    from oodzoo.scores import names

    shown = run("rank", "--help").out
    assert all(name in shown for name in ("discriminability", *names()))
