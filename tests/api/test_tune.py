"""`oodzoo.tune`: fine-tuning of a model of a predictor."""

from __future__ import annotations

import pickle
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.events.heard import Heard
from tests.predictor import conftest as fixtures
from tests.predictor.data import changed
from tests.striped import require_tuning, striped_predictor, write_stripes

import oodzoo
from oodzoo import InputError
from oodzoo.core.io import temporary_name
from oodzoo.events import Listener
from oodzoo.predictor.tuning import remove_checkpoints, tune_settings
from oodzoo.tuning.problem import TuneSettings

require_tuning()

timm, timm_spec = fixtures.timm, fixtures.timm_spec

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
def files(data: Path) -> list[Path]:
    return sorted(data.rglob("*.png"))


@pytest.fixture(scope="module")
def predictor(folder: Path, data: Path) -> oodzoo.Predictor:
    return striped_predictor(folder, data, {"tiny": 2})


@pytest.fixture(scope="module")
def heard() -> Heard:
    return Heard()


@pytest.fixture(scope="module")
def kept(folder: Path) -> Path:
    return folder / "kept"


@pytest.fixture(scope="module")
def tuned(predictor: oodzoo.Predictor, data: Path, heard: Heard, kept: Path) -> oodzoo.Predictor:
    return oodzoo.tune(predictor, data, folder=kept, listener=heard, **SETTINGS)


def record(predictor: oodzoo.Predictor) -> dict[str, Any]:
    assert predictor.provenance.tuning is not None
    return predictor.provenance.tuning


def right(predictor: oodzoo.Predictor, files: list[Path]) -> float:
    return predictor.score(files, [file.parent.name for file in files])


def means(predictor: oodzoo.Predictor) -> tuple[float, float]:
    """On held-out domains: of what was chosen, and of the linear head."""
    done = record(predictor)
    names = (done["choice"]["name"], "linear head")
    chosen, head = (np.mean(list(done["left_out"][name].values())) for name in names)
    return float(chosen), float(head)


# --- a model that gains --------------------------------------------------------------------------


def test_a_model_that_gains(
    tuned: oodzoo.Predictor, predictor: oodzoo.Predictor, files: list[Path], heard: Heard
) -> None:
    chosen, head = means(tuned)
    assert chosen > 90 > head
    assert right(tuned, files) > 0.9
    provenance, done = tuned.provenance, record(tuned)
    assert sorted(done["left_out"]["linear head"]) == ["blue", "green", "red"]
    assert [model.name for model in tuned.models] == ["tiny-tuned"]
    assert (provenance.choice, provenance.accuracy, provenance.pool) == ("tuned", None, {})
    assert provenance.domains == ("blue", "green", "red")
    assert (provenance.n_images, provenance.data) == (48, predictor.provenance.data)
    assert (done["model"], done["tuned"], done["weight"]) == ("tiny", "tiny-tuned", 1.0)
    assert done["choice"]["learning_rate"] == 3e-2
    assert (done["settings"]["steps"], done["device"], done["seconds"] > 0) == (20, "cpu", True)
    assert tuned.loadable_models[0].spec.pretraining == "random, fine-tuned on blue, green, red"
    assert predictor.provenance.tuning is None
    (started,) = (facts for stage, facts in heard.of("start") if stage == "tuning")
    assert (started["models"], started["images"]) == (["tiny"], 48)
    assert (started["domains"], started["steps"]) == (["blue", "green", "red"], 20)
    (ended,) = (facts for stage, facts in heard.of("end") if stage == "tuning")
    assert (ended["status"], ended["result"]) == ("done", tuned)
    steps = [facts for stage, facts in heard.of("progress") if stage == "tuning"]
    # three runs leave a domain out, one does not
    assert (steps[-1]["done"], steps[-1]["total"]) == (80, 80)
    shares = [facts["share"] for facts in steps if "share" in facts]
    assert shares == sorted(shares)
    metrics = [facts["name"] for stage, facts in heard.of("metric") if stage == "tuning"]
    assert metrics.count("loss") == metrics.count("validation_loss") == 80
    assert heard.metrics("tuning")["accuracy_of_tuned"] == pytest.approx(chosen)
    assert heard.metrics("tuning")["accuracy_of_linear_head"] == pytest.approx(head)
    assert np.mean(tuned.domain_distance(files) > 1) < 0.1
    noise = np.random.default_rng(0).integers(0, 256, (8, 16, 16, 3), np.uint8)
    assert np.mean(tuned.domain_distance(list(noise)) > 1) > 0.5


def test_saved_and_pickled(tuned: oodzoo.Predictor, files: list[Path], tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="'tiny-tuned' is temporary: this pickle cannot be used"):
        here = pickle.loads(pickle.dumps(tuned))
    loaded = oodzoo.load(tuned.save(tmp_path / "model"), device="cpu")
    again = pickle.loads(pickle.dumps(loaded))  # no warning
    for each in (here, loaded, again):
        np.testing.assert_array_equal(each.predict_proba(files), tuned.predict_proba(files))
    assert record(loaded) == record(tuned)


def test_the_same_folder_continues(
    tuned: oodzoo.Predictor, predictor: oodzoo.Predictor, data: Path, kept: Path, tmp_path: Path
) -> None:
    heard = Heard()
    again = oodzoo.tune(predictor, data, folder=kept, listener=heard, **SETTINGS)
    assert "loss" not in heard.metrics("tuning")
    assert again.models[0].fingerprint == tuned.models[0].fingerprint
    with pytest.raises(InputError, match="checkpoints of another model, of other images or sett"):
        oodzoo.tune(predictor, data, folder=kept, **SETTINGS | {"seed": 1})
    # killed while it wrote the first file: the folder is still ours; and a path of a predictor
    (tmp_path / "kept" / "runs").mkdir(parents=True)
    (tmp_path / "kept" / "runs" / temporary_name()).write_bytes(b"")
    path = predictor.save(tmp_path / "model")
    few = oodzoo.tune(path, data, folder=tmp_path / "kept", **SETTINGS | {"steps": 2})
    assert record(few)["model"] == "tiny"


# --- folders -------------------------------------------------------------------------------------


def test_a_folder_in_use_or_of_others(
    predictor: oodzoo.Predictor, data: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "kept"

    class Second(Listener):
        def start(self, stage: str, **facts: Any) -> None:
            with pytest.raises(InputError, match="is being written by another process"):
                oodzoo.tune(predictor, data, folder=folder, **SETTINGS)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        oodzoo.tune(predictor, data, folder=folder, listener=Second(), **SETTINGS)
    assert not folder.exists()
    folder.mkdir()
    (folder / "note.txt").write_text("mine")
    with pytest.raises(InputError, match="exists and is not a folder of checkpoints; choose"):
        oodzoo.tune(predictor, data, folder=folder, **SETTINGS)
    (folder / "runs").mkdir()
    remove_checkpoints(folder)
    assert [file.name for file in folder.iterdir()] == ["note.txt"]
    (folder / "note.txt").unlink()
    remove_checkpoints(folder)
    assert not folder.exists()


# --- other data ----------------------------------------------------------------------------------


def test_tuned_before(tuned: oodzoo.Predictor, tmp_path: Path) -> None:
    """The model has seen the domain, in these images or others: leaving it out shows nothing."""
    for per_cell in (8, 9):
        again = write_stripes(tmp_path / f"{per_cell}", ("amber", "blue", "red"), per_cell)
        with pytest.raises(InputError) as caught:
            oodzoo.tune(tuned, again, **SETTINGS)
        assert str(caught.value) == (
            "model 'tiny-tuned' of the predictor was fine-tuned on the domain 'blue', so that "
            "leaving it out says nothing about the model; tune the predictor from before instead, "
            "with other settings"
        )
    other = write_stripes(tmp_path / "other", ("amber", "cyan"), per_cell=9)
    with (
        pytest.warns(UserWarning, match="runs that choose the weights train on one domain each"),
        pytest.warns(UserWarning, match="is not the data that the predictor was trained on"),
    ):
        after = oodzoo.tune(tuned, other, **SETTINGS | {"steps": 2})
    assert record(after)["model"] == "tiny-tuned"
    assert after.provenance.domains == ("amber", "cyan")


# --- settings ------------------------------------------------------------------------------------


def test_nothing_is_made_worse(predictor: oodzoo.Predictor, data: Path, files: list[Path]) -> None:
    """A learning rate that ruins the network: the linear head is best, and the predictor stays."""
    bad = SETTINGS | {"learning_rates": 1e4, "steps": 2, "schedule": "constant"}
    after = oodzoo.tune(predictor, data, **bad)
    assert (record(after)["choice"]["name"], record(after)["tuned"]) == ("linear head", None)
    assert after.models == predictor.models
    assert after.provenance.choice == "single"
    np.testing.assert_array_equal(after.predict_proba(files), predictor.predict_proba(files))


def test_the_protocol_of_domainbed(
    predictor: oodzoo.Predictor, data: Path, files: list[Path], tmp_path: Path
) -> None:
    options: dict[str, Any] = {"device": "cpu", "draws": 2, "steps": 3, "protocol": "domainbed"}
    after, again = (
        oodzoo.tune(predictor, data, folder=tmp_path / "kept", **options) for _ in range(2)
    )
    done = record(after)
    assert (done["protocol"], done["choice"]["name"]) == ("domainbed", "erm")
    assert done["tuned"] == "tiny-tuned"
    assert sorted(done["left_out"]["erm"]) == ["blue", "green", "red"]
    assert done["choice"]["draw"] in (0, 1)
    loaded = oodzoo.load(after.save(tmp_path / "model")).predict_proba(files)
    np.testing.assert_array_equal(loaded, after.predict_proba(files))
    assert again.models[0].fingerprint == after.models[0].fingerprint
    with pytest.raises(InputError, match="checkpoints of another model, of other images or sett"):
        oodzoo.tune(predictor, data, folder=tmp_path / "kept", **SETTINGS)


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


def test_what_cannot_be_tuned(
    predictor: oodzoo.Predictor, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(says: str, tuned: oodzoo.Predictor = predictor, **more: Any) -> None:
        with pytest.raises(InputError, match=says):
            oodzoo.tune(tuned, data, **SETTINGS | more)

    allow = "use a GPU .*, train adapters only.*, take fewer --steps, or allow it with --max-hours"
    refused(f"^fine-tuning 'tiny' would take about .* on cpu: 80 steps; {allow} 1$", max_hours=1e-7)
    refused("max_hours must be positive, got 0", max_hours=0)
    (model,) = predictor.loadable_models
    other = replace(model, spec=replace(model.spec, source="sentence-transformers/tiny"))
    words = "'tiny': a model of the kind sentence-transformers cann"
    refused(words, changed(predictor, models=(other,)))
    monkeypatch.setattr("oodzoo.tuning.tuner.CPU_HOURS", 1e-7)
    refused("allow it with --max-hours")
    monkeypatch.setitem(sys.modules, "torch", None)
    refused(r"fine-tuning needs the package torch.*\[tune\]")
