"""`oodzoo tune`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.striped import require_tuning, striped_predictor, write_stripes

import oodzoo

require_tuning()

Run = Callable[..., Any]

OPTIONS = ("--learning-rate", "3e-2", "--steps", "20", "--batch-size", "4", "--no-augment")
CPU = ("--device", "cpu")
QUICK = ("--learning-rate", "3e-2", "--steps", "2", "--batch-size", "2", *CPU)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_stripes(tmp_path_factory.mktemp("striped") / "data")


@pytest.fixture(scope="module")
def single(data: Path) -> Path:
    return striped_predictor(data.parent / "one", data, {"tiny": 2}).save(data.parent / "single")


@pytest.fixture(scope="module")
def ensemble(data: Path) -> Path:
    models = {"one": 1, "two": 2}
    fitted = striped_predictor(data.parent / "two", data, models, "ensemble")
    return fitted.save(data.parent / "ensemble")


def test_tune(run: Run, single: Path, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "tuned"
    log = tmp_path / "log.jsonl"
    done = run("tune", single, data, "--out", out, *OPTIONS, "--log-file", log)
    assert done.code == 0, done.err
    head, last, average = (line.split() for line in done.out.splitlines()[3:6])
    assert (head[:2], last[:2], average[0]) == (["linear", "head"], ["last", "weights"], "average")
    assert float(last[-1] if last[-1] != "chosen" else last[-2]) > float(head[-1])
    assert "tiny-tuned: " in done.out
    assert "chosen by the likelihood of the labels on held-out domains; the accuracy" in done.out
    assert "2 classes, trained on 48 images of 3 domains; fine-tuning took " in done.out
    loaded = oodzoo.load(out)
    assert [model.name for model in loaded.models] == ["tiny-tuned"]
    assert loaded.provenance.choice == "tuned"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.jsonl", "tuned"]
    again = run("tune", single, data, "--out", tmp_path / "again", *OPTIONS, *CPU, "--json")
    document = again.document
    assert (document["model"], document["tuned"]) == (str(tmp_path / "again"), "tiny-tuned")
    assert (document["original"], document["weight"]) == ("tiny", 1.0)
    assert sorted(document["left_out"]) == ["blue", "green", "red"]
    chosen = document["candidates"][document["choice"]["name"]]
    assert {d: each["tuned"] for d, each in document["left_out"].items()} == chosen
    assert document["left_out"]["red"]["head"] == document["candidates"]["linear head"]["red"]
    assert (document["device"], document["settings"]["steps"]) == ("cpu", 20)
    assert document["seconds"] > 0
    events = [json.loads(line) for line in log.read_text().splitlines()]
    assert {each["stage"] for each in events} >= {"tuning"}


def test_a_model_of_several(run: Run, ensemble: Path, data: Path, tmp_path: Path) -> None:
    done = run("tune", ensemble, data, "--model", "two", "--out", tmp_path / "tuned", *OPTIONS)
    assert done.code == 0, done.err
    assert "two-tuned: " in done.out
    pool = oodzoo.load(tmp_path / "tuned").provenance.pool
    assert pool["two-tuned"] > 0
    by_weight = sorted(pool.items(), key=lambda each: -each[1])
    assert "pool: " + ", ".join(f"{name} {weight:.2f}" for name, weight in by_weight) in done.out


def test_an_unchanged_predictor(run: Run, single: Path, data: Path, tmp_path: Path) -> None:
    ruin = ("--learning-rate", "1e4", "--steps", "2", "--batch-size", "4", "--schedule", "constant")
    done = run("tune", single, data, "--out", tmp_path / "tuned", *ruin)
    assert "the linear head on 'tiny' as it was is best on held-out domains: the pred" in done.out
    assert [model.name for model in oodzoo.load(tmp_path / "tuned").models] == ["tiny"]


def test_the_protocol_of_domainbed(run: Run, single: Path, data: Path, tmp_path: Path) -> None:
    options = ("--protocol", "domainbed", "--draws", "1", "--steps", "2", "--seed", "1")
    done = run("tune", single, data, "--out", tmp_path / "tuned", *options, "--json")
    assert done.code == 0, done.err
    assert done.document["protocol"] == "domainbed"
    assert done.document["left_out"]["red"]["head"] is None
    assert done.document["settings"]["seed"] == 1
    shown = run("tune", single, data, "--out", tmp_path / "tuned", *options)
    chosen = "tiny-tuned: empirical risk minimisation, learning rate 5e-05, chosen by the accuracy"
    assert chosen in shown.out


WRONG = {
    "--model tny": "the predictor has no model 'tny'; did you mean tiny?",
    "--learning-rate fast": "--learning-rate must be one or more numbers, such as 1e-",
    "--draws 3": "draws is only used with the protocol 'domainbed' (--protocol dom",
    "--max-hours 1e-8 --device cpu": " on cpu: 2,100 steps; use a GPU",
}


def test_wrong_options(run: Run, single: Path, data: Path, tmp_path: Path) -> None:
    for options, words in WRONG.items():
        given = ("tune", single, data, "--out", tmp_path / "tuned", *options.split())
        assert words in run(*given).complaint
    assert not list(tmp_path.iterdir())


def test_wrong_places(run: Run, single: Path, data: Path, tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "file").write_text("mine")
    complaint = run("tune", single, data, "--out", taken, *QUICK).complaint
    assert "exists and is not a predictor; choose another folder" in complaint
    options = ("--checkpoints", taken, "--out", tmp_path / "tuned", *QUICK)
    complaint = run("tune", single, data, *options).complaint
    assert "exists and is not a folder of checkpoints; choose another folder" in complaint
    assert (taken / "file").read_text() == "mine"
    complaint = run("tune", tmp_path / "none", data, "--out", tmp_path / "tuned").complaint
    assert "no such predictor" in complaint
    complaint = run("tune", single, data, "--out", f"{single}/../{single.name}").complaint
    assert "is the predictor to tune, which it would replace; choose another folder" in complaint


def test_wrong_data(run: Run, single: Path, data: Path, tmp_path: Path) -> None:
    one = tmp_path / "one"
    shutil.copytree(data / "red", one / "red")
    out = ("--out", tmp_path / "tuned")
    assert "has one domain, 'red'; at least two are" in run("tune", single, one, *out).complaint
    shutil.copytree(data / "blue", one / "blue")
    shutil.copytree(data / "blue" / "down", one / "blue" / "dots")
    assert "has the class 'dots', which the pred" in run("tune", single, one, *out).complaint
    shutil.rmtree(one / "blue" / "dots")
    for image in sorted((one / "blue").rglob("*.png"))[2:-2]:
        image.unlink()
    complaint = run("tune", single, one, *out).complaint
    assert "the domain 'blue' has too few images to hold out a fifth of them: 4" in complaint


# --- kill -9 -------------------------------------------------------------------------------------
