"""The choice of one fine-tuned model, of which `tune` shows the result alone."""

from __future__ import annotations

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
from oodzoo.tasks import CLASSIFICATION, task_of
from oodzoo.tuning.problem import TuneSettings, TuningData
from oodzoo.tuning.tuner import CANDIDATES, Tuned, Tuner, choose_weights
from oodzoo.zoo import load_model
from oodzoo.zoo.model import Trainable
from oodzoo.zoo.preprocessing import square
from oodzoo.zoo.sources import load_trainable

torch = pytest.importorskip("torch")

SETTINGS = TuneSettings(steps=4, batch_size=3, learning_rates=(3e-3,))
GOOD = replace(SETTINGS, augment=False, steps=40, learning_rates=(2e-2,))
"""With these, a colour-blind network learns to see colours."""


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
    problem: TuningData,
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


def assert_same(found: Tuned, expected: Tuned) -> None:
    assert (found.choice, found.metrics) == (expected.choice, expected.metrics)
    assert found.left_out.keys() == expected.left_out.keys()
    for domain, outputs in expected.left_out.items():
        np.testing.assert_array_equal(found.left_out[domain], outputs)


def test_runs_of_a_test_domain(problem: TuningData) -> None:
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
    names = ("loss", "validation_loss")
    expected = [("tuning", name, step) for _ in range(3) for step in range(4) for name in names]
    assert [(stage, name, step) for stage, name, _, step in recorder.metrics] == expected
    assert {domain: each.shape for domain, each in judged.outputs.items()} == {"art": (10, 3)}
    shapes = {domain: each.shape for domain, each in judged.left_out.items()}
    assert shapes == {"photo": (11, 3), "sketch": (12, 3)}
    assert tuner.planned_steps(["art"]) == tuner.estimated_seconds(["art"]) == 0
    run = tuner.runs.get((frozenset(["art"]), 3e-3))
    assert run is not None
    lost = {domain: np.full_like(each, np.nan) for domain, each in run.outputs.items()}
    tuner.runs._found[frozenset(["art"]), 3e-3] = replace(run, outputs=lost)
    with pytest.raises(InputError, match=r"^training with the learning rate 0\.003 diverged"):
        tuner.judged(["art"])


@pytest.mark.parametrize("kind", ["classification", "regression", "multilabel"])
def test_the_choice_is_made_on_left_out_domains(folder: Path, kind: Any) -> None:
    with small.problem(folder, kind=kind) as problem:
        tuner = tuner_of(problem, replace(SETTINGS, learning_rates=(1e-3, 1e-2)))
        judged = tuner.judged(["art"])
        truth = {v: problem.labels[problem.rows(v)] for v in ("photo", "sketch")}
        found: dict[float, dict[str, Any]] = {rate: {} for rate in (1e-3, 1e-2)}
        for rate, outputs in found.items():
            for v in truth:
                run = tuner.runs.get((frozenset(["art", v]), rate))
                assert run is not None
                outputs[v] = run.outputs[v]
        qualities = {
            each: task_of(kind).quality(list(outputs.values()), list(truth.values())).mean(0)
            for each, outputs in found.items()
        }
        rate, at = judged.learning_rate, CANDIDATES.index(judged.candidate)
        assert qualities[rate][at] == max(each.max() for each in qualities.values())
        final = tuner.runs.get((frozenset(["art"]), rate))
        assert final is not None
        np.testing.assert_array_equal(judged.outputs["art"], final.outputs["art"][at])
        np.testing.assert_array_equal(judged.head_outputs["art"], final.outputs["art"][0])
        for v in truth:
            np.testing.assert_array_equal(judged.left_out[v], found[rate][v][at])


def test_the_choice_on_held_out_images(problem: TuningData) -> None:
    recorder = Recorder()
    settings = replace(SETTINGS, choose_by="training-domain", learning_rates=(1e-3, 1e-2))
    tuner = tuner_of(problem, settings, recorder)
    assert tuner.planned_steps(["art"]) == 8
    judged = tuner.judged(["art"])
    assert len(recorder.messages) == 2  # no further run
    runs = {rate: tuner.runs.get((frozenset(["art"]), rate)) for rate in (1e-3, 1e-2)}
    truth = {v: problem.labels[problem.split(v, 0)[1]] for v in ("photo", "sketch")}
    found = {rate: run.held_out for rate, run in runs.items() if run is not None}
    choice = judged.learning_rate, judged.candidate, judged.metrics
    assert choice == choose_weights(found, truth, CLASSIFICATION)
    assert judged.left_out == {}
    assert judged.outputs["art"].shape == (10, 3)
    assert tuner.planned_steps() == 8
    assert isinstance(tuner.tuned(), Tuned)
    assert len(recorder.messages) == 4


def test_nothing_of_the_test_domain_is_used(folder: Path) -> None:
    """Other images and labels there: the same choice and the same weights."""
    settings, found = replace(SETTINGS, learning_rates=(1e-3, 1e-2)), []
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
            key = frozenset(["photo"]), judged.learning_rate
            found.append((judged, tuner.weights(key)))
    (first, weights), (second, others) = found
    assert (first.candidate, first.metrics) == (second.candidate, second.metrics)
    assert first.learning_rate == second.learning_rate
    torch.testing.assert_close(weights, others, rtol=0, atol=0)
    for domain in first.left_out:
        np.testing.assert_array_equal(first.left_out[domain], second.left_out[domain])
    assert not np.array_equal(first.outputs["photo"], second.outputs["photo"])


@pytest.mark.parametrize("lora", [None, 2])
def test_the_tuned_model_has_the_chosen_weights(
    problem: TuningData, tmp_path: Path, lora: int | None
) -> None:
    """Also when it is read from a folder, where nothing is computed again."""
    settings, trainable = replace(GOOD, lora=lora), small.colour_blind()
    names = {name for name, _ in trainable.module.named_parameters()}
    tuner = tuner_of(problem, settings, folder=tmp_path / "runs", trainable=trainable)
    before = tuner.network.weights()
    assert tuner.estimated_seconds() > 0
    torch.testing.assert_close(tuner.network.weights(), before, rtol=0, atol=0)
    tuned = tuner.tuned()
    assert tuned.trainable is trainable
    assert {name for name, _ in trainable.module.named_parameters()} == names
    assert all(each.requires_grad for each in trainable.module.parameters())
    choice, share = tuned.choice, tuned.choice["mixing"]
    assert share > 0  # else nothing would be tested below
    ends = tuner.weights((frozenset(), choice["learning_rate"]))

    def mixed(name: str) -> Any:
        return (1 - share) * ends["start"][name] + share * ends[choice["weights"]][name]

    for name, weight in trainable.module.named_parameters():
        expected = mixed(f"features.{name}")
        torch.testing.assert_close(weight.detach(), expected, rtol=0, atol=1e-6)
    np.testing.assert_allclose(tuned.head.weights, mixed("head.weight"), atol=1e-6)
    np.testing.assert_allclose(tuned.head.bias, mixed("head.bias"), atol=1e-6)
    assert sorted(tuned.left_out) == sorted(small.DOMAINS)
    recorder, other = Recorder(), small.colour_blind()
    again = tuner_of(problem, settings, recorder, tmp_path / "runs", other).tuned()
    assert recorder.steps == []
    assert_same(again, tuned)
    states = (each.module.state_dict() for each in (other, trainable))
    torch.testing.assert_close(*states, rtol=0, atol=0)
    np.testing.assert_array_equal(again.head.weights, tuned.head.weights)


def test_onnx_file_of_the_tuned_model(folder: Path, tmp_path: Path) -> None:
    writer = Writer(require_converter())
    convolutions(writer)
    grey = writer.weights["kernel"].mean(axis=1, keepdims=True)
    writer.constant("kernel", np.repeat(grey, 3, axis=1))  # colour-blind until it is trained
    writer.weight("matrix", 6, 5)
    writer.add("MatMul", "flat matrix", "features")
    spec = writer.write(tmp_path / "net.onnx")
    preprocessing = load_model(spec).info.preprocessing
    with small.problem(folder) as problem:
        settings = replace(GOOD, lora=2)
        tuner = Tuner(lambda: load_trainable(spec, preprocessing), problem, settings, device="cpu")
        tuned = tuner.tuned()
        assert tuned.choice["mixing"] > 0
        pixels = problem.images.prepared(np.arange(len(problem.labels)))
    with torch.no_grad():
        images = torch.from_numpy(preprocessing.normalise(pixels))
        features = tuned.trainable.module(images).numpy()
    tuned.trainable.write_onnx(tmp_path / "tuned.onnx")
    written = replace(spec, name="tuned", source="onnx/tuned.onnx", features="features")
    found = load_model(written)(pixels).features
    np.testing.assert_allclose(found, features, atol=1e-5 * np.abs(features).max())
    assert np.abs(found - load_model(spec)(pixels).features).max() > 1e-3


def changed(what: str) -> Trainable:
    """The small network, but for one thing."""
    trainable = small.trainable()
    with torch.no_grad():
        if what == "weights":
            trainable.module[0].bias[0] += 1e-3
        if what == "statistics":
            trainable.module[1].running_mean[0] += 1e-3
    if what == "preprocessing":
        return replace(trainable, preprocessing=square(small.SIZE, small.STD, small.STD))
    # layers of one network may have the same weights
    return replace(trainable, name="small@2") if what == "name" else trainable


def test_folders_of_other_work(problem: TuningData, tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    tuner_of(problem, folder=folder)
    others: list[tuple[TuningData, dict[str, Any], str]] = [
        (problem, {"steps": 5}, ""),
        (problem, {"seed": 1}, ""),
        (problem, {"learning_rates": (1e-3,)}, ""),
        *((problem, {}, what) for what in ("weights", "statistics", "preprocessing", "name")),
        (replace(problem, fingerprint="other images"), {}, ""),
    ]
    for images, settings, what in others:
        with pytest.raises(InputError, match="has checkpoints of another model, of other images"):
            tuner_of(images, replace(SETTINGS, **settings), folder=folder, trainable=changed(what))


def test_few_domains(folder: Path, problem: TuningData) -> None:
    """A domain left out leaves one to train on, which is enough to choose weights for both."""
    for left_out in (["art", "photo"], ["art", "photo", "sketch"]):
        with pytest.raises(InputError, match="needs at least two"):
            tuner_of(problem).judged(left_out)
    with small.problem(folder, ("day", "night")) as two:
        assert sorted(tuner_of(two).tuned().left_out) == ["day", "night"]
        with pytest.raises(InputError, match="got 1 domain: night"):
            tuner_of(two).judged(["day"])
        held_out = replace(SETTINGS, choose_by="training-domain")
        assert tuner_of(two, held_out).judged(["day"]).outputs["day"].shape == (10, 3)
