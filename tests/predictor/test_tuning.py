"""Fine-tuning of a model of a predictor."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.striped import require_tuning, striped_predictor, tiny_network, write_stripes

import oodzoo
from oodzoo.core.errors import InputError
from oodzoo.core.io import temporary_name
from oodzoo.events import Listener
from oodzoo.predictor.tuning import remove_checkpoints, tune_settings
from oodzoo.tuning.settings import TuneSettings
from oodzoo.zoo import ModelSpec

require_tuning()

SETTINGS: dict[str, Any] = {
    "device": "cpu",
    "learning_rates": 3e-2,
    "steps": 20,
    "batch_size": 4,
    "augment": False,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("striped")


@pytest.fixture(scope="module")
def data(folder: Path) -> Path:
    return write_stripes(folder / "data")


@pytest.fixture(scope="module")
def predictor(folder: Path, data: Path) -> oodzoo.Predictor:
    return striped_predictor(folder, data, {"tiny": 2})


class Seen(Listener):
    """Notes the events of tuning."""

    def __init__(self) -> None:
        self.steps: list[tuple[int, int]] = []
        self.metrics: dict[str, list[float]] = {}
        self.started: dict[str, Any] = {}
        self.ended: dict[str, Any] = {}

    def start(self, stage: str, **facts: Any) -> None:
        if stage == "tuning":
            self.started = facts

    def progress(self, stage: str, done: int, total: int, **facts: Any) -> None:
        if stage == "tuning":
            self.steps.append((done, total))

    def metric(self, stage: str, name: str, value: float, *, step: int | None = None) -> None:
        if stage == "tuning":
            self.metrics.setdefault(name, []).append(value)

    def end(self, stage: str, **facts: Any) -> None:
        if stage == "tuning":
            self.ended = facts


@pytest.fixture(scope="module")
def seen() -> Seen:
    return Seen()


@pytest.fixture(scope="module")
def kept(folder: Path) -> Path:
    return folder / "kept"


@pytest.fixture(scope="module")
def tuned(predictor: oodzoo.Predictor, data: Path, seen: Seen, kept: Path) -> oodzoo.Predictor:
    return oodzoo.tune(predictor, data, folder=kept, listener=seen, **SETTINGS)


def record(predictor: oodzoo.Predictor) -> dict[str, Any]:
    assert predictor.provenance.tuning is not None
    return predictor.provenance.tuning


def test_a_model_that_gains(tuned: oodzoo.Predictor, data: Path) -> None:
    done = record(tuned)
    chosen, head = (done["left_out"][name] for name in (done["choice"]["name"], "linear head"))
    assert sorted(chosen) == ["blue", "green", "red"]
    assert np.mean(list(chosen.values())) > 90 > np.mean(list(head.values()))
    files = sorted(data.rglob("*.png"))
    assert tuned.score(files, [file.parent.name for file in files]) > 0.9


def test_what_is_recorded(tuned: oodzoo.Predictor, predictor: oodzoo.Predictor) -> None:
    provenance, done = tuned.provenance, record(tuned)
    assert [model.name for model in tuned.models] == ["tiny-tuned"]
    assert (provenance.choice, provenance.accuracy, provenance.pool) == ("tuned", None, {})
    assert provenance.domains == ("blue", "green", "red")
    assert (provenance.n_images, provenance.data) == (48, predictor.provenance.data)
    assert (done["model"], done["tuned"], done["weight"]) == ("tiny", "tiny-tuned", 1.0)
    assert done["choice"]["learning_rate"] == 3e-2
    assert done["settings"]["steps"] == 20
    assert (done["device"], done["seconds"] > 0) == ("cpu", True)
    assert tuned.models[0].spec.pretraining == "random, fine-tuned on blue, green, red"  # type: ignore[union-attr]
    assert predictor.provenance.tuning is None


def test_events(tuned: oodzoo.Predictor, seen: Seen) -> None:
    assert (seen.started["models"], seen.started["images"]) == (["tiny"], 48)
    assert (seen.started["domains"], seen.started["steps"]) == (["blue", "green", "red"], 20)
    assert seen.steps[-1] == (80, 80)  # three runs that leave a domain out, and one on all
    assert len(seen.metrics["loss"]) == len(seen.metrics["validation_loss"]) == 80
    assert seen.metrics["accuracy_of_tuned"][0] > seen.metrics["accuracy_of_linear_head"][0]
    assert (seen.ended["status"], seen.ended["result"]) == ("done", tuned)


def test_saved_and_loaded_without_torch(
    tuned: oodzoo.Predictor, data: Path, tmp_path: Path
) -> None:
    tuned.save(tmp_path / "model")
    files = sorted(data.rglob("*.png"))[::5]
    program = """
import json, sys
import oodzoo
predictor = oodzoo.load(sys.argv[1], device="cpu")
assert predictor.provenance.tuning["tuned"] == "tiny-tuned"
print(json.dumps(predictor.predict_proba(sys.argv[2:]).tolist()))
assert "torch" not in sys.modules
"""
    command = [sys.executable, "-c", program, str(tmp_path / "model"), *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    np.testing.assert_allclose(json.loads(done.stdout), tuned.predict_proba(files))


def test_a_pickle_refers_to_a_temporary_file(
    tuned: oodzoo.Predictor, data: Path, tmp_path: Path
) -> None:
    files = sorted(data.rglob("*.png"))[::5]
    with pytest.warns(UserWarning, match="'tiny-tuned' is temporary: this pickle cannot be used"):
        here = pickle.loads(pickle.dumps(tuned))
    np.testing.assert_array_equal(here.predict_proba(files), tuned.predict_proba(files))
    loaded = oodzoo.load(tuned.save(tmp_path / "model"))
    again = pickle.loads(pickle.dumps(loaded))  # no warning
    np.testing.assert_array_equal(again.predict_proba(files), tuned.predict_proba(files))


def test_training_images_are_in_domain(tuned: oodzoo.Predictor, data: Path) -> None:
    files = sorted(data.rglob("*.png"))
    assert np.mean(tuned.domain_distance(files) > 1) < 0.1
    noise = np.random.default_rng(0).integers(0, 256, (8, 16, 16, 3), np.uint8)
    assert np.mean(tuned.domain_distance(list(noise)) > 1) > 0.5


def test_the_same_folder_continues(
    tuned: oodzoo.Predictor, predictor: oodzoo.Predictor, data: Path, kept: Path
) -> None:
    seen = Seen()
    again = oodzoo.tune(predictor, data, folder=kept, listener=seen, **SETTINGS)
    assert "loss" not in seen.metrics
    assert again.models[0].fingerprint == tuned.models[0].fingerprint
    with pytest.raises(InputError, match="checkpoints of another model, of other images or sett"):
        oodzoo.tune(predictor, data, folder=kept, **SETTINGS | {"seed": 1})


def test_a_file_that_a_killed_process_left(
    predictor: oodzoo.Predictor, data: Path, tmp_path: Path
) -> None:
    """Killed while it wrote the first file: the folder is still ours."""
    (tmp_path / "kept" / "runs").mkdir(parents=True)
    (tmp_path / "kept" / "runs" / temporary_name()).write_bytes(b"")
    oodzoo.tune(predictor, data, folder=tmp_path / "kept", **SETTINGS | {"steps": 2})


def test_a_folder_in_use(predictor: oodzoo.Predictor, data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "kept"

    class Second(Seen):
        def start(self, stage: str, **facts: Any) -> None:
            with pytest.raises(InputError, match="is being written by another process"):
                oodzoo.tune(predictor, data, folder=folder, **SETTINGS)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        oodzoo.tune(predictor, data, folder=folder, listener=Second(), **SETTINGS)
    assert not folder.exists()


@pytest.mark.parametrize("per_cell", [8, 9])
def test_tuned_on_a_domain_before(tuned: oodzoo.Predictor, per_cell: int, tmp_path: Path) -> None:
    """The model has seen the domain, in these images or others: leaving it out shows nothing."""
    domains = ("amber", "blue", "red")
    with pytest.raises(InputError) as caught:
        oodzoo.tune(tuned, write_stripes(tmp_path / "again", domains, per_cell), **SETTINGS)
    assert str(caught.value) == (
        "model 'tiny-tuned' of the predictor was fine-tuned on the domain 'blue', so that leaving "
        "it out says nothing about the model; tune the predictor from before instead, with other "
        "settings"
    )


def test_tuned_on_other_domains_before(tuned: oodzoo.Predictor, tmp_path: Path) -> None:
    other = write_stripes(tmp_path / "other", ("amber", "cyan", "violet"), per_cell=9)
    with pytest.warns(UserWarning, match="is not the data that the predictor was trained on"):
        again = oodzoo.tune(tuned, other, **SETTINGS | {"steps": 2})
    assert record(again)["model"] == "tiny-tuned"


def test_a_folder_of_others(predictor: oodzoo.Predictor, data: Path, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("mine")
    with pytest.raises(InputError, match="exists and is not a folder of checkpoints; choose"):
        oodzoo.tune(predictor, data, folder=tmp_path, **SETTINGS)
    (tmp_path / "runs").mkdir()
    remove_checkpoints(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["note.txt"]
    (tmp_path / "note.txt").unlink()
    remove_checkpoints(tmp_path)
    assert not tmp_path.exists()


def test_nothing_is_made_worse(predictor: oodzoo.Predictor, data: Path) -> None:
    """A learning rate that ruins the network: the linear head is best, and the predictor stays."""
    bad = SETTINGS | {"learning_rates": 1e4, "steps": 2, "schedule": "constant"}
    after = oodzoo.tune(predictor, data, **bad)
    assert record(after)["choice"]["name"] == "linear head"
    assert record(after)["tuned"] is None
    assert after.models == predictor.models
    assert after.provenance.choice == "single"
    files = sorted(data.rglob("*.png"))
    np.testing.assert_array_equal(after.predict_proba(files), predictor.predict_proba(files))


def test_two_domains(predictor: oodzoo.Predictor, tmp_path: Path) -> None:
    two = write_stripes(tmp_path / "two", ("blue", "green"))
    with (
        pytest.warns(UserWarning, match="runs that choose the weights train on one domain each"),
        pytest.warns(UserWarning, match="not the data that the predictor was trained on"),
    ):
        after = oodzoo.tune(predictor, two, **SETTINGS)
    assert after.provenance.domains == ("blue", "green")


def test_one_of_several_learning_rates(predictor: oodzoo.Predictor, data: Path) -> None:
    several = SETTINGS | {"learning_rates": [1e-7, 3e-2], "steps": 10}
    assert record(oodzoo.tune(predictor, data, **several))["choice"]["learning_rate"] == 3e-2


def test_adapters(predictor: oodzoo.Predictor, data: Path) -> None:
    after = oodzoo.tune(predictor, data, **SETTINGS | {"lora": 2})
    done = record(after)
    assert done["settings"]["lora"] == 2
    assert done["tuned"] == "tiny-tuned"
    files = sorted(data.rglob("*.png"))
    assert after.score(files, [file.parent.name for file in files]) > 0.8


def test_the_choice_on_held_out_images(predictor: oodzoo.Predictor, data: Path) -> None:
    after = oodzoo.tune(predictor, data, **SETTINGS | {"choose_by": "training-domain"})
    assert record(after)["settings"]["choose_by"] == "training-domain"
    assert sorted(record(after)["left_out"]["linear head"]) == ["blue", "green", "red"]


@pytest.mark.parametrize("task", ["regression", "multilabel"])
def test_other_tasks(task: str, data: Path, tmp_path: Path) -> None:
    files = sorted(data.rglob("*.png"))
    domains = [file.parts[-3] for file in files]
    across = np.array([file.parent.name == "across" for file in files], float)
    labels: Any = 100 + 10 * across
    if task == "multilabel":
        labels = [["across"] if each else ["down"] for each in across]
    images = oodzoo.ImageDomains(files, labels=labels, domains=domains, task=task)
    store = oodzoo.extract(images, [tiny_network(tmp_path, seed=2)], tmp_path / "store")
    before = oodzoo.fit(store, choose="single")
    after = oodzoo.tune(before, images, **SETTINGS | {"steps": 40})
    done = record(after)
    chosen, head = (done["left_out"][name] for name in (done["choice"]["name"], "linear head"))
    assert after.task.kind == task
    assert np.mean(list(chosen.values())) > np.mean(list(head.values()))
    (name,) = [model.name for model in after.models]
    assert name == "tiny-tuned"
    if task == "regression":
        errors = np.abs(after.predict(files) - labels)
        assert errors.mean() < 0.8 * np.abs(labels - np.mean(labels)).mean()


def test_what_would_take_too_long(predictor: oodzoo.Predictor, data: Path) -> None:
    with pytest.raises(InputError) as error:
        oodzoo.tune(predictor, data, max_hours=1e-7, **SETTINGS)
    assert str(error.value).startswith("fine-tuning 'tiny' would take about ")
    assert " on cpu: 80 steps; use a GPU (--device cuda), train adapters only" in str(error.value)
    assert str(error.value).endswith(", take fewer --steps, or allow it with --max-hours 1")
    with pytest.raises(InputError, match="max_hours must be positive, got 0"):
        oodzoo.tune(predictor, data, max_hours=0, **SETTINGS)


def test_the_limit_on_the_cpu(
    predictor: oodzoo.Predictor, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oodzoo.predictor.tuning.CPU_HOURS", 1e-7)
    with pytest.raises(InputError, match="allow it with --max-hours"):
        oodzoo.tune(predictor, data, **SETTINGS)


def test_settings() -> None:
    assert tune_settings(learning_rates=1e-3) == TuneSettings((1e-3,))
    assert tune_settings(learning_rates=[1, 2]) == TuneSettings((1.0, 2.0))
    assert tune_settings("domainbed", draws=3).steps == 5001
    for settings, words in (
        ({"step": 3}, "unknown setting 'step' of the protocol 'lp-ft'; did you mean steps"),
        ({"zzz": 3}, "unknown setting 'zzz' of the protocol 'lp-ft'; expected one of learning_"),
        ({"protocol": "domainbed", "lora": 3}, "lora is only used with the protocol 'lp-ft' "),
        ({"draws": 3}, "draws is only used with the protocol 'domainbed' "),
        ({"protocol": "erm"}, "protocol must be one of lp-ft, domainbed, got 'erm'"),
        ({"steps": 0}, "steps must be 1 or more, got 0"),
    ):
        with pytest.raises(InputError, match=words):
            tune_settings(**settings)


def test_a_model_that_cannot_be_trained(predictor: oodzoo.Predictor, data: Path) -> None:
    (model,) = predictor.loadable_models
    other = replace(model, spec=replace(model.spec, source="sentence-transformers/tiny"))
    parts = vars(predictor._parts()) | {"models": (other,)}
    with pytest.raises(InputError, match="'tiny': a model of the kind sentence-transformers cann"):
        oodzoo.tune(oodzoo.Predictor(**parts), data, **SETTINGS)


def test_a_path(predictor: oodzoo.Predictor, data: Path, tmp_path: Path) -> None:
    predictor.save(tmp_path / "model")
    after = oodzoo.tune(tmp_path / "model", data, **SETTINGS | {"steps": 2})
    assert record(after)["model"] == "tiny"


def test_without_torch(predictor: oodzoo.Predictor, data: Path, monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(InputError, match=r"fine-tuning needs the package torch.*\[tune\]"):
        oodzoo.tune(predictor, data, **SETTINGS)


def test_the_protocol_of_domainbed(predictor: oodzoo.Predictor, data: Path, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"device": "cpu", "draws": 2, "steps": 3}
    after = oodzoo.tune(predictor, data, protocol="domainbed", folder=tmp_path / "kept", **settings)
    done = record(after)
    assert (done["protocol"], done["choice"]["name"]) == ("domainbed", "erm")
    assert done["tuned"] == "tiny-tuned"
    assert sorted(done["left_out"]["erm"]) == ["blue", "green", "red"]
    assert done["choice"]["draw"] in (0, 1)
    after.save(tmp_path / "model")
    files = sorted(data.rglob("*.png"))
    loaded = oodzoo.load(tmp_path / "model").predict_proba(files)
    np.testing.assert_array_equal(loaded, after.predict_proba(files))
    again = oodzoo.tune(predictor, data, protocol="domainbed", folder=tmp_path / "kept", **settings)
    assert again.models[0].fingerprint == after.models[0].fingerprint
    with pytest.raises(InputError, match="checkpoints of another model, of other images or sett"):
        oodzoo.tune(predictor, data, folder=tmp_path / "kept", **SETTINGS)


def test_a_model_of_timm(
    timm_spec: Callable[..., ModelSpec], folder: Path, data: Path, tmp_path: Path
) -> None:
    """It becomes an ONNX file that is resized and cropped as before."""
    store = oodzoo.extract(
        data, [timm_spec("test_resnet.r160_in1k", input_size=32)], tmp_path / "store"
    )
    before = oodzoo.fit(store, choose="single")
    settings = SETTINGS | {"learning_rates": 1e-3, "steps": 30, "batch_size": 2}
    after = oodzoo.tune(before, data, **settings)
    assert record(after)["tuned"] == "tiny-tuned"
    (model,) = after.loadable_models
    assert model.spec.kind == "onnx"
    assert model.preprocessing == before.loadable_models[0].preprocessing
    after.save(tmp_path / "model")
    files = sorted(data.rglob("*.png"))
    loaded = oodzoo.load(tmp_path / "model").predict_proba(files)
    np.testing.assert_allclose(loaded, after.predict_proba(files), rtol=1e-5)
