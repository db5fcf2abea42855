"""Fine-tuned networks as models of a predictor."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.striped import SIZE, striped_predictor, tiny_network, write_stripes

import oodzoo
from oodzoo.errors import InputError
from oodzoo.predictor.models import PredictorModel
from oodzoo.predictor.tuned import tuned_model, tuned_name
from oodzoo.zoo import load_model
from oodzoo.zoo.preprocessing import Geometry, Preprocessing

MEAN, STD = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)


@pytest.fixture(scope="module")
def predictor(tmp_path_factory: pytest.TempPathFactory) -> oodzoo.Predictor:
    folder = tmp_path_factory.mktemp("striped")
    return striped_predictor(folder, write_stripes(folder / "data"), {"tiny": 0})


@pytest.fixture
def original(predictor: oodzoo.Predictor) -> PredictorModel:
    return predictor.loadable_models[0]


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    """A file as fine-tuning writes it: the same graph with other weights."""
    return tiny_network(tmp_path / "trained", seed=7).file


def write(trained: Path, file: Path) -> None:
    shutil.copyfile(trained, file)


def test_it_is_described_as_the_original(original: PredictorModel, trained: Path) -> None:
    model = tuned_model(original, "tiny-tuned", lambda file: write(trained, file), ["a", "b"])
    assert model.name == "tiny-tuned"
    assert model.spec.pretraining == "random, fine-tuned on a, b"
    assert (model.spec.licence, model.feature_dim) == ("MIT", 2)
    assert (model.preprocessing, model.parameters) == (original.preprocessing, original.parameters)
    assert model.fingerprint != original.fingerprint
    info = model.load("cpu").info  # verifies the file, the features and the preprocessing
    assert info.fingerprint == model.fingerprint


def test_it_computes_the_features_of_the_file(original: PredictorModel, trained: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (3, SIZE, SIZE, 3), np.uint8)
    model = tuned_model(original, "tuned", lambda file: write(trained, file), ["a"])
    expected = load_model(replace(original.spec, source=f"onnx/{trained}", sha256=None))(pixels)
    np.testing.assert_array_equal(model.load("cpu")(pixels).features, expected.features)


def test_another_geometry_is_kept(original: PredictorModel, trained: Path, tmp_path: Path) -> None:
    cover = Geometry((20, 20), (SIZE, SIZE), "cover", "bicubic")
    cropped = replace(original, preprocessing=Preprocessing(cover, MEAN, STD))
    model = tuned_model(cropped, "tuned", lambda file: write(trained, file), ["a"], tmp_path)
    assert model.load("cpu").info.preprocessing.geometry == cover


def test_it_is_saved_with_a_predictor(
    predictor: oodzoo.Predictor, original: PredictorModel, trained: Path, tmp_path: Path
) -> None:
    cover = Geometry((20, 20), (SIZE, SIZE), "cover")
    cropped = replace(original, preprocessing=Preprocessing(cover, MEAN, STD))
    model = tuned_model(cropped, "tiny", lambda file: write(trained, file), ["a"], tmp_path)
    parts = vars(predictor._parts()) | {"models": (model,)}
    oodzoo.Predictor(**parts).save(tmp_path / "model")
    (loaded,) = oodzoo.load(tmp_path / "model").loadable_models
    assert loaded == replace(model, spec=replace(model.spec, source=loaded.spec.source))
    image = np.random.default_rng(0).integers(0, 256, (24, 40, 3), np.uint8)
    expected = oodzoo.Predictor(**parts).predict_proba([image])
    np.testing.assert_array_equal(oodzoo.load(tmp_path / "model").predict_proba([image]), expected)


def test_a_changed_file_is_refused(original: PredictorModel, trained: Path, tmp_path: Path) -> None:
    model = tuned_model(original, "tuned", lambda file: write(trained, file), ["a"], tmp_path)
    write(original.spec.file, model.spec.file)
    with pytest.raises(InputError, match="sha256"):
        model.load("cpu")


def test_two_files_of_one_name(original: PredictorModel, trained: Path) -> None:
    """A second call does not replace the file that a predictor of the first one uses."""
    first = tuned_model(original, "tuned", lambda file: write(trained, file), ["a"])
    second = tuned_model(original, "tuned", lambda file: write(original.spec.file, file), ["a"])
    assert first.fingerprint != second.fingerprint
    first.load("cpu")
    second.load("cpu")


def test_the_file_is_removed_at_the_end() -> None:
    program = """
import os, sys
from pathlib import Path
from oodzoo.predictor.tuned import _process_folder
folder = _process_folder(os.getpid())
(folder / "file").write_text("x")
if os.fork() == 0:
    sys.exit()  # a forked process does not remove it
os.wait()
print(folder, (folder / "file").exists())
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    folder, existed = done.stdout.split()
    assert existed == "True"
    assert not Path(folder).exists()


def test_names() -> None:
    assert tuned_name("vit-tuned", ["vit-tuned"]) == "vit-tuned-tuned"
    assert tuned_name("vit", ["vit-tuned", "vit-tuned-2"]) == "vit-tuned-3"
