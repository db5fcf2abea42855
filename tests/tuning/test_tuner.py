"""Fine-tuning of one model: which runs are done, what is chosen, and what it may depend on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.tuning import small
from tests.zoo.small_onnx import Writer, convolutions, require_converter

from oodzoo.core.errors import InputError
from oodzoo.events import Listener, Stage
from oodzoo.linear.heads.outputs import outputs_of
from oodzoo.tuning.choice import CANDIDATES, Candidate, choose, str_of
from oodzoo.tuning.network import Network
from oodzoo.tuning.problem import Problem
from oodzoo.tuning.settings import TuneSettings
from oodzoo.tuning.tuner import Judged, Tuned, Tuner
from oodzoo.zoo import load_model
from oodzoo.zoo.model import Trainable
from oodzoo.zoo.preprocessing import square
from oodzoo.zoo.sources import load_trainable

torch = pytest.importorskip("torch")

SETTINGS = TuneSettings(steps=4, batch_size=3, learning_rates=(3e-3,))
GOOD = replace(SETTINGS, augment=False, steps=40, learning_rates=(2e-2,))
"""With these, a colour-blind network learns to see colours."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "images").mkdir()
    return tmp_path / "images"


@pytest.fixture
def problem(folder: Path) -> Iterator[Problem]:
    with small.problem(folder) as found:
        yield found


class Recorder(Listener):
    """Keeps progress and metrics."""

    def __init__(self) -> None:
        self.steps: list[tuple[int, int]] = []
        self.messages: list[str] = []
        self.metrics: list[tuple[str, str, float, int | None]] = []

    def progress(self, stage: str, done: int, total: int, **facts: Any) -> None:
        if "message" in facts:
            self.messages.append(facts["message"])
        else:
            self.steps.append((done, total))

    def metric(self, stage: str, name: str, value: float, *, step: int | None = None) -> None:
        self.metrics.append((stage, name, value, step))


def tuner_of(
    problem: Problem,
    settings: TuneSettings = SETTINGS,
    recorder: Recorder | None = None,
    folder: Path | None = None,
    trainable: Trainable | None = None,
) -> Tuner:
    return Tuner(
        lambda: small.trainable() if trainable is None else trainable,
        problem,
        settings,
        device="cpu",
        folder=folder,
        stage=None if recorder is None else Stage(recorder, "tuning"),
    )


def assert_same(found: Judged, expected: Judged) -> None:
    assert found.choice == expected.choice
    for part in ("outputs", "head_outputs", "left_out", "head_left_out"):
        mine, theirs = getattr(found, part), getattr(expected, part)
        assert mine.keys() == theirs.keys()
        for domain, outputs in theirs.items():
            np.testing.assert_array_equal(mine[domain], outputs)


def features_of(trainable: Trainable, problem: Problem, rows: Any) -> Any:
    pixels = trainable.preprocessing.normalise(problem.images.prepared(rows))
    with torch.no_grad():
        return trainable.module(torch.from_numpy(pixels)).numpy()


# --- the runs ------------------------------------------------------------------------------------


def test_runs_of_a_test_domain(problem: Problem) -> None:
    """With each training domain left out as well, then on all training domains."""
    recorder = Recorder()
    tuner = tuner_of(problem, recorder=recorder)
    assert tuner.planned_steps(["art"]) == 12
    judged = tuner.judged(["art"])
    assert recorder.messages == [
        "training without art, photo, learning rate 0.003",
        "training without art, sketch, learning rate 0.003",
        "training without art, learning rate 0.003",
    ]
    assert recorder.steps == [(step + 1, 12) for step in range(12)]
    assert [(stage, name, step) for stage, name, _, step in recorder.metrics[:4]] == [
        ("tuning", "loss", 0),
        ("tuning", "validation_loss", 0),
        ("tuning", "loss", 1),
        ("tuning", "validation_loss", 1),
    ]
    assert len(recorder.metrics) == 2 * 12
    assert {domain: each.shape for domain, each in judged.outputs.items()} == {"art": (10, 3)}
    assert {domain: each.shape for domain, each in judged.left_out.items()} == {
        "photo": (11, 3),
        "sketch": (12, 3),
    }
    assert tuner.planned_steps(["art"]) == 0
    assert tuner.estimated_seconds(["art"]) == 0


# --- the choice ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["classification", "regression", "multilabel"])
def test_the_choice_is_made_on_left_out_domains(folder: Path, kind: Any) -> None:
    with small.problem(folder, kind=kind) as problem:
        tuner = tuner_of(problem, replace(SETTINGS, learning_rates=(1e-3, 1e-2)))
        judged = tuner.judged(["art"])
        left = {
            rate: {v: tuner._runs.get((frozenset(["art", v]), rate)) for v in ("photo", "sketch")}
            for rate in (1e-3, 1e-2)
        }
        truth = {v: problem.labels[problem.rows(v)] for v in ("photo", "sketch")}
        found = {
            rate: {v: run.outputs[v] for v, run in runs.items() if run is not None}
            for rate, runs in left.items()
        }
        expected = choose(found, truth, kind)
        assert judged.choice == expected
        rate, at = expected.learning_rate, CANDIDATES.index(expected.candidate)
        qualities = {
            each: outputs_of(kind).quality(list(outputs.values()), list(truth.values())).mean(0)
            for each, outputs in found.items()
        }
        assert qualities[rate][at] == max(each.max() for each in qualities.values())
        final = tuner._runs.get((frozenset(["art"]), rate))
        assert final is not None
        np.testing.assert_array_equal(judged.outputs["art"], final.outputs["art"][at])
        np.testing.assert_array_equal(judged.head_outputs["art"], final.outputs["art"][0])
        for v in truth:
            np.testing.assert_array_equal(judged.left_out[v], found[rate][v][at])
            np.testing.assert_array_equal(judged.head_left_out[v], found[rate][v][0])


def test_the_choice_on_held_out_images(problem: Problem) -> None:
    recorder = Recorder()
    settings = replace(SETTINGS, choose_by="training-domain", learning_rates=(1e-3, 1e-2))
    tuner = tuner_of(problem, settings, recorder)
    assert tuner.planned_steps(["art"]) == 8
    judged = tuner.judged(["art"])
    assert len(recorder.messages) == 2  # no further run
    runs = {rate: tuner._runs.get((frozenset(["art"]), rate)) for rate in (1e-3, 1e-2)}
    truth = {v: problem.labels[problem.split(v, 0)[1]] for v in ("photo", "sketch")}
    found = {rate: run.held_out for rate, run in runs.items() if run is not None}
    assert judged.choice == choose(found, truth, "classification")
    assert judged.left_out == judged.head_left_out == {}
    assert judged.outputs["art"].shape == (10, 3)
    assert tuner.planned_steps() == 8
    assert isinstance(tuner.tuned(), Tuned)
    assert len(recorder.messages) == 4


def test_training_that_diverges(problem: Problem) -> None:
    """The linear head is taken where training leads nowhere."""
    for rates in ((1e30,), (1e30, 1e-3)):
        judged = tuner_of(problem, replace(SETTINGS, learning_rates=rates)).judged(["art"])
        if len(rates) == 1:
            assert judged.choice.candidate == Candidate("start", 0.0)
        assert np.isfinite(judged.outputs["art"]).all()


def test_the_last_run_diverges(problem: Problem) -> None:
    tuner = tuner_of(problem)
    tuner.judged(["art"])
    key = frozenset(["art"]), 3e-3
    run = tuner._runs.get(key)
    assert run is not None
    lost = {domain: np.full_like(each, np.nan) for domain, each in run.outputs.items()}
    tuner._runs._found[key] = replace(run, outputs=lost)
    with pytest.raises(InputError) as caught:
        tuner.judged(["art"])
    assert str(caught.value).startswith("training with the learning rate 0.003 diverged")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("choose_by", ["leave-one-domain-out", "training-domain"])
def test_nothing_of_the_test_domain_is_used(folder: Path, choose_by: Any) -> None:
    """Other images and labels there: the same choice and the same weights."""
    settings = replace(SETTINGS, choose_by=choose_by, learning_rates=(1e-3, 1e-2))
    found = []
    for changed in (False, True):
        with small.problem(folder) as problem:
            rows = problem.rows("photo")
            if changed:
                rng = np.random.default_rng(9)
                for row in rows.tolist():
                    noise = rng.integers(0, 256, (14, 9, 3), dtype=np.uint8)
                    Image.fromarray(noise).save(folder / f"{row}.png")
                labels = problem.labels.copy()
                labels[rows] = (labels[rows] + 1) % small.CLASSES
                problem = replace(problem, labels=labels)
            tuner = tuner_of(problem, settings)
            judged = tuner.judged(["photo"])
            key = frozenset(["photo"]), judged.choice.learning_rate
            found.append((judged, tuner._runs.ends(key, tuner._events)))
    (first, weights), (second, others) = found
    assert first.choice == second.choice
    torch.testing.assert_close(weights, others, rtol=0, atol=0)
    for domain in first.left_out:
        np.testing.assert_array_equal(first.left_out[domain], second.left_out[domain])
    assert not np.array_equal(first.outputs["photo"], second.outputs["photo"])


# --- the tuned model -----------------------------------------------------------------------------


@pytest.mark.parametrize("lora", [None, 2])
def test_the_tuned_model_has_the_chosen_weights(problem: Problem, lora: int | None) -> None:
    settings = replace(GOOD, lora=lora)
    trainable = small.colour_blind()
    names = [name for name, _ in trainable.module.named_parameters()]
    tuner = tuner_of(problem, settings, trainable=trainable)
    tuned = tuner.tuned()
    assert tuned.trainable is trainable
    assert sorted(name for name, _ in trainable.module.named_parameters()) == sorted(names)
    assert {each.device.type for each in trainable.module.parameters()} == {"cpu"}
    assert all(each.requires_grad for each in trainable.module.parameters())
    choice = tuned.choice
    assert choice.candidate.mixing > 0  # else nothing would be tested below
    ends = tuner._runs.ends((frozenset(), choice.learning_rate), tuner._events)
    share = choice.candidate.mixing
    for name, weight in trainable.module.named_parameters():
        start, end = (
            ends[each][f"features.{name}"] for each in ("start", choice.candidate.weights)
        )
        expected = (1 - share) * start + share * end
        torch.testing.assert_close(weight.detach(), expected, rtol=0, atol=1e-6)
    rows = np.arange(len(problem.labels))
    network = Network(trainable, small.CLASSES, "cpu")
    start, end = (ends[each]["head.weight"] for each in ("start", choice.candidate.weights))
    np.testing.assert_allclose(tuned.head.weights, (1 - share) * start + share * end, atol=1e-6)
    features = features_of(trainable, problem, rows)
    with torch.no_grad():
        batch = network.images(problem.images.prepared(rows))
        np.testing.assert_allclose(features, network.features(batch), rtol=1e-4, atol=1e-5)
    assert tuned.outputs == {}
    assert sorted(tuned.left_out) == sorted(small.DOMAINS)


def test_the_linear_head_may_win(problem: Problem) -> None:
    """With labels at random and a high learning rate, training only loses."""
    labels = np.random.default_rng(5).integers(small.CLASSES, size=len(problem.labels))
    trainable = small.trainable()
    before = {name: each.detach().clone() for name, each in trainable.module.named_parameters()}
    settings = replace(SETTINGS, learning_rates=(1.0,), schedule="constant")
    tuned = tuner_of(replace(problem, labels=labels), settings, trainable=trainable).tuned()
    assert str_of(tuned.choice.candidate) == "linear head"
    torch.testing.assert_close(dict(trainable.module.named_parameters()), before, rtol=0, atol=0)
    for domain, outputs in tuned.head_left_out.items():
        np.testing.assert_array_equal(tuned.left_out[domain], outputs)


@pytest.mark.parametrize("lora", [None, 2])
def test_onnx_file_of_the_tuned_model(folder: Path, tmp_path: Path, lora: int | None) -> None:
    writer = Writer(require_converter())
    convolutions(writer)
    grey = writer.weights["kernel"].mean(axis=1, keepdims=True)
    writer.constant("kernel", np.repeat(grey, 3, axis=1))  # colour-blind until it is trained
    writer.weight("matrix", 6, 5)
    writer.add("MatMul", "flat matrix", "features")
    spec = writer.write(tmp_path / "net.onnx")
    preprocessing = load_model(spec).info.preprocessing
    with small.problem(folder) as problem:
        settings = replace(GOOD, lora=lora)
        tuner = Tuner(lambda: load_trainable(spec, preprocessing), problem, settings, device="cpu")
        tuned = tuner.tuned()
        assert tuned.choice.candidate.mixing > 0
        pixels = problem.images.prepared(np.arange(len(problem.labels)))
        features = features_of(tuned.trainable, problem, np.arange(len(problem.labels)))
    tuned.trainable.write_onnx(tmp_path / "tuned.onnx")
    written = replace(spec, name="tuned", source="onnx/tuned.onnx", features="features")
    found = load_model(written)(pixels).features
    np.testing.assert_allclose(found, features, atol=1e-5 * np.abs(features).max())
    assert np.abs(found - load_model(spec)(pixels).features).max() > 1e-3


def test_estimates_leave_the_weights(problem: Problem) -> None:
    for lora in (None, 2):
        settings = replace(SETTINGS, lora=lora)
        tuner = tuner_of(problem, settings)
        network = tuner._network
        before = network.weights()
        assert tuner.estimated_seconds() > 0
        torch.testing.assert_close(network.weights(), before, rtol=0, atol=0)
        assert_same(tuner.judged(["art"]), tuner_of(problem, settings).judged(["art"]))


# --- folders -------------------------------------------------------------------------------------


def test_a_tuned_model_of_a_folder(problem: Problem, tmp_path: Path) -> None:
    first = tuner_of(problem, GOOD, folder=tmp_path / "runs").tuned()
    recorder = Recorder()
    again = tuner_of(problem, GOOD, recorder, tmp_path / "runs").tuned()
    assert recorder.steps == []
    assert_same(again, first)
    torch.testing.assert_close(
        again.trainable.module.state_dict(), first.trainable.module.state_dict(), rtol=0, atol=0
    )
    np.testing.assert_array_equal(again.head.weights, first.head.weights)


def changed_model() -> Trainable:
    trainable = small.trainable()
    with torch.no_grad():
        trainable.module[0].bias[0] += 1e-3
    return trainable


def other_statistics() -> Trainable:
    trainable = small.trainable()
    trainable.module[1].running_mean[0] += 1e-3
    return trainable


def other_preprocessing() -> Trainable:
    return replace(small.trainable(), preprocessing=square(small.SIZE, small.STD, small.STD))


def other_name() -> Trainable:
    """Layers of one network may have the same weights."""
    return replace(small.trainable(), name="small@2")


@pytest.mark.parametrize(
    ("settings", "model", "fingerprint"),
    [
        (replace(SETTINGS, steps=5), small.trainable, "few images"),
        (replace(SETTINGS, seed=1), small.trainable, "few images"),
        (replace(SETTINGS, learning_rates=(1e-3,)), small.trainable, "few images"),
        (SETTINGS, changed_model, "few images"),
        (SETTINGS, other_statistics, "few images"),
        (SETTINGS, other_preprocessing, "few images"),
        (SETTINGS, other_name, "few images"),
        (SETTINGS, small.trainable, "other images"),
    ],
)
def test_folders_of_other_work(
    problem: Problem, tmp_path: Path, settings: TuneSettings, model: Any, fingerprint: str
) -> None:
    tuner_of(problem, folder=tmp_path / "runs")
    with pytest.raises(InputError) as caught:
        tuner_of(
            replace(problem, fingerprint=fingerprint),
            settings,
            folder=tmp_path / "runs",
            trainable=model(),
        )
    assert str(caught.value) == (
        f"{str(tmp_path / 'runs')!r} has checkpoints of another model, of other images or "
        "settings; remove it, or choose another folder"
    )


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize("left_out", [["art", "photo"], ["art", "photo", "sketch"]])
def test_too_few_training_domains(problem: Problem, left_out: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        tuner_of(problem).judged(left_out)
    message = str(caught.value)
    assert "needs at least two" in message
    assert "\n" not in message


def test_two_domains(folder: Path) -> None:
    """A domain left out leaves one to train on, which is enough to choose weights for both."""
    with small.problem(folder, ("day", "night")) as problem:
        tuned = tuner_of(problem).tuned()
        assert sorted(tuned.left_out) == ["day", "night"]
        with pytest.raises(InputError, match="got 1 domain: night"):
            tuner_of(problem).judged(["day"])
        held_out = replace(SETTINGS, choose_by="training-domain")
        assert tuner_of(problem, held_out).judged(["day"]).outputs["day"].shape == (10, 3)
