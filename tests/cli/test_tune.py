"""`oodzoo tune`."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.killing import Job, children, needs_fork
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
    assert "chosen by the likelihood of the labels on left-out domains; the accuracy" in done.out
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
    assert "the linear head on 'tiny' as it was is best on left-out domains: the pred" in done.out
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
    "--learning-rate 1e-3,1e-3": "learning rates must differ, got [0.001, 0.001]",
    "--steps 0": "steps must be 1 or more, got 0",
    "--schedule linear": "schedule must be one of cosine, constant, got 'linear'",
    "--lora 0": "the rank of LoRA adapters must be 1 or more, got 0",
    "--choose-by luck": "choose_by must be one of leave-one-domain-out, training-dom",
    "--protocol erm": "protocol must be one of lp-ft, domainbed, got 'erm'",
    "--protocol domainbed --lora 4": "lora is only used with the protocol 'lp-ft'",
    "--draws 3": "draws is only used with the protocol 'domainbed' (--protocol dom",
    "--max-hours -1": "max_hours must be positive, got -1.0",
    "--max-hours 1e-8 --device cpu": " on cpu: 2,100 steps; use a GPU",
    "--device tpu": "unknown device 'tpu'",
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


@needs_fork
def test_a_killed_command_is_resumed(single: Path, data: Path, tmp_path: Path) -> None:
    def arguments(out: str) -> tuple[Any, ...]:
        short = (*OPTIONS[:3], "8", *OPTIONS[4:], "--device", "cpu")
        return (single, data, "--out", tmp_path / out, *short)

    tune = "tests.cli.killed_tuning:tune"
    with children("tests.cli.killed_tuning") as processes:
        processes.succeed(Job(tune, (0, *arguments("whole"))))
        for kill_after in (3, 21):  # within the first run, and within the last one, on all domains
            (killed,) = processes.run(Job(tune, (kill_after, *arguments("killed"))))
            assert killed.code == -signal.SIGKILL
            assert not (tmp_path / "killed").exists()
            assert (tmp_path / "killed.tuning" / "runs").is_dir()
        processes.succeed(Job(tune, (0, *arguments("killed"))))
    assert not (tmp_path / "killed.tuning").exists()
    for file in ("models/tiny-tuned.onnx", "head.safetensors"):
        contents = [(tmp_path / out / file).read_bytes() for out in ("whole", "killed")]
        assert contents[0] == contents[1]


def test_checkpoints_of_another_command(run: Run, single: Path, data: Path, tmp_path: Path) -> None:
    """They are not mixed; the line says what to do."""
    kept = tmp_path / "kept"
    oodzoo.tune(single, data, folder=kept, steps=2, batch_size=2, device="cpu")
    options = ("--checkpoints", kept, "--out", tmp_path / "tuned", "--steps", "3")
    complaint = run("tune", single, data, *options).complaint
    assert "has checkpoints of another model, of other images or settings; remove it" in complaint
    assert kept.is_dir()
    same = ("--checkpoints", kept, "--out", tmp_path / "tuned", "--steps", "2", "--batch-size", "2")
    assert run("tune", single, data, *same, "--device", "cpu").code == 0
    assert not kept.exists()
