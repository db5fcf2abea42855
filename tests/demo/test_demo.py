"""The embedded digits and zoo: complete, deterministic, correctly described, diverse."""

from __future__ import annotations

import hashlib
import shutil
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from PIL import Image
from sklearn.datasets import load_digits
from tools.demo_zoo.probe import Digits, Probed, model_features, probe, probe_raw, read_digits

from oodzoo.demo import write_digits, zoo_file

KEYS = (
    "name source input_size mean std features feature_dim parameters sha256 pretraining "
    "architecture licence origin"
)
FOLDER = zoo_file().parent
MODELS: list[dict[str, Any]] = tomllib.loads(zoo_file().read_text(encoding="utf-8"))["model"]
CARD = (FOLDER / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_digits(tmp_path_factory.mktemp("digits"))


@pytest.fixture(scope="module")
def digits(folder: Path) -> Digits:
    return read_digits(folder)


@pytest.fixture(scope="module")
def probed(digits: Digits) -> dict[str, Probed]:
    return {row.name: row for row in probe(zoo_file(), digits)}


def images(folder: Path) -> list[Path]:
    return sorted(folder.glob("*/*/*.png"))


def file_of(model: dict[str, Any]) -> Path:
    return FOLDER / str(model["source"]).removeprefix("onnx/")


def stated_accuracies(name: str) -> list[float]:
    """What the card states for a model: on each domain, and on average."""
    (line,) = [line for line in CARD.splitlines() if line.startswith(f"| {name} |")]
    return [float(cell) for cell in line.strip("| ").split("|")[1:]]


# --- digits ---------------------------------------------------------------------------------------


def test_every_digit_is_a_small_colour_png_under_its_class(folder: Path) -> None:
    targets = load_digits().target
    indices = [int(path.stem.removeprefix("digit-")) for path in images(folder)]
    assert sorted(indices) == list(range(len(targets))) == list(range(1797))
    for path, index in zip(images(folder), indices, strict=True):
        assert path.parent.name == str(targets[index])
        with Image.open(path) as picture:
            assert (picture.format, picture.mode, picture.size) == ("PNG", "RGB", (32, 32))


def test_a_part_has_as_many_of_each_class_and_domain(folder: Path, tmp_path: Path) -> None:
    part = write_digits(tmp_path / "part", per_class=2)
    classes = [each for domain in part.iterdir() for each in domain.iterdir()]
    assert len(classes) == 60
    assert {len(list(each.iterdir())) for each in classes} == {2}
    for path in part.rglob("*.png"):
        assert path.read_bytes() == (folder / path.relative_to(part)).read_bytes()


def test_two_calls_give_the_same_bytes_and_leave_other_files_alone(
    folder: Path, tmp_path: Path
) -> None:
    names = [path.relative_to(folder) for path in images(folder)]
    (tmp_path / names[0]).parent.mkdir(parents=True)
    (tmp_path / names[0]).write_text("left over from a broken run")
    (tmp_path / "notes.txt").write_text("mine")
    assert write_digits(str(tmp_path)) == tmp_path
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert names == [path.relative_to(tmp_path) for path in images(tmp_path)]
    for name in names:
        assert (folder / name).read_bytes() == (tmp_path / name).read_bytes(), name


# --- zoo ------------------------------------------------------------------------------------------


def test_the_zoo_is_small_and_complete() -> None:
    assert len(MODELS) >= 12
    assert len({model["name"] for model in MODELS}) == len(MODELS)
    assert sorted(map(file_of, MODELS)) == sorted(FOLDER.glob("*.onnx"))
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) <= 2_000_000
    for model in MODELS:
        assert set(model) - {"logits"} == set(KEYS.split())
        assert model["sha256"] == hashlib.sha256(file_of(model).read_bytes()).hexdigest()
        assert (model["input_size"], len(model["mean"]), len(model["std"])) == (32, 3, 3)
        assert f"`{model['name']}`" in CARD
        assert f"{model['parameters']:,}" in CARD


@pytest.mark.parametrize("model", MODELS, ids=lambda model: str(model["name"]))
def test_each_model_has_the_stated_outputs_at_any_batch_size(
    model: dict[str, Any], digits: Digits
) -> None:
    session = onnxruntime.InferenceSession(file_of(model), providers=["CPUExecutionProvider"])
    assert [put.name for put in session.get_inputs()] == ["input"]
    assert [put.name for put in session.get_outputs()] == [
        name for name in ("features", "logits") if name in model
    ]
    assert 32 <= model["feature_dim"] <= 128
    for batch in (1, 5):
        images = np.random.default_rng(batch).standard_normal((batch, 3, 32, 32))
        features, *logits = session.run(None, {"input": images.astype(np.float32)})
        assert features.shape == (batch, model["feature_dim"])
        for output in (features, *logits):
            assert (output.dtype, len(output)) == (np.float32, batch)
            assert np.isfinite(output).all()
    together = model_features(model, FOLDER, digits.pixels[:7])
    alone = model_features(model, FOLDER, digits.pixels[3:4])
    np.testing.assert_allclose(together[3:4], alone, rtol=1e-3, atol=1e-4)


def test_the_card_states_the_measured_accuracies(digits: Digits, probed: dict[str, Probed]) -> None:
    for row in probed.values():
        # solvers and runtimes differ in the last digits: a digit or two per domain
        measured = [*row.domains.values(), row.mean]
        np.testing.assert_allclose(stated_accuracies(row.name), measured, atol=1.0)
    # raw pixels on one domain: all take longer than all models together
    stated = dict(zip(np.unique(digits.domains), stated_accuracies("raw pixels"), strict=False))
    paper = probe_raw(digits, ["paper"]).domains["paper"]
    assert paper == pytest.approx(stated["paper"], abs=1.0)


def test_zoo_file_and_card_agree_with_their_generator(
    probed: dict[str, Probed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("torch", "onnx"):
        pytest.importorskip(package, reason='needs pip install -e ".[tools]"')
    from tools.demo_zoo import card, export

    for file in FOLDER.glob("*.onnx"):
        shutil.copy(file, tmp_path)
    monkeypatch.setattr(card, "probe_embedded", lambda _: list(probed.values()))
    export.write_listing(tmp_path)
    card.write_card(tmp_path)
    assert (tmp_path / "zoo.toml").read_bytes() == zoo_file().read_bytes()

    def without_accuracies(folder: Path) -> list[str]:
        lines = (folder / "README.md").read_text(encoding="utf-8").splitlines()
        names = {"raw pixels", *probed}
        return [line for line in lines if line.removeprefix("| ").split(" |")[0] not in names]

    assert without_accuracies(tmp_path) == without_accuracies(FOLDER)
