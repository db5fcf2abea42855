"""A predictor inside scikit-learn and joblib; copies and pickles of it."""

from __future__ import annotations

import copy
import pickle
import secrets
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import get_tags
from tests.predictor import conftest as fixtures
from tests.predictor.data import DOMAINS, Y, problem, rows, truth

import oodzoo
from oodzoo import InputError

folder = fixtures.folder


def opened(paths: Any) -> list[Image.Image]:
    images = []
    for path in paths:
        with Image.open(path) as image:
            images.append(image.convert("RGB"))
    return images


# --- scikit-learn --------------------------------------------------------------------------------


def test_pipelines_and_cross_validation(predictor: oodzoo.Predictor, unseen: list[Path]) -> None:
    y, frozen = truth(unseen), FrozenEstimator(predictor)
    pipeline = Pipeline([("open", FunctionTransformer(opened)), ("p", frozen)]).fit(unseen, y)
    expected = predictor.predict_proba(opened(unseen))
    np.testing.assert_array_equal(pipeline.predict_proba(unseen), expected)
    assert clone(pipeline).named_steps["p"].estimator is predictor
    assert "Predictor" in repr(pipeline)
    assert "Predictor" in pipeline._repr_html_()
    bare = make_pipeline(FunctionTransformer(opened), predictor)
    assert bare.predict(unseen).tolist() == pipeline.predict(unseen).tolist()
    scores = cross_val_score(frozen, unseen, np.array(y), cv=3)
    assert np.mean(scores) == pytest.approx(predictor.score(unseen, y))
    search = GridSearchCV(predictor, {"batch_size": [4]}, cv=3, error_score="raise")
    for estimator in (bare, predictor, search):
        with pytest.raises(InputError, match=r"fitted already.*FrozenEstimator\(predictor\)"):
            estimator.fit(unseen, y)


def test_parameters(saved: Path, unseen: list[Path]) -> None:
    numbers = oodzoo.fit(*problem("regression"), choose="single")
    assert is_regressor(FrozenEstimator(numbers))
    assert not is_classifier(numbers)
    assert get_tags(numbers).target_tags.multi_output
    predictor = oodzoo.load(saved, device="cpu")
    assert is_classifier(FrozenEstimator(predictor))
    assert predictor.get_params() == {"batch_size": None, "device": "cpu"}
    expected, before = predictor.predict_proba(unseen), predictor.loaded()
    assert predictor.set_params(batch_size=7) is predictor
    assert predictor.loaded() is before
    np.testing.assert_allclose(predictor.predict_proba(unseen), expected, atol=1e-6)
    predictor.set_params(device="auto")
    assert predictor.get_params() == {"batch_size": 7, "device": "auto"}
    assert predictor.loaded() is not before
    assert make_pipeline(predictor).set_params(predictor__batch_size=3)[-1].batch_size == 3
    cases: list[tuple[dict[str, Any], str]] = [
        ({"C": 1}, r"cannot set 'C': .*only device and batch_size can be changed.*fit again"),
        ({"models": []}, "cannot set 'models'"),
        ({"device": "tpu"}, "unknown device 'tpu'"),
        ({"device": 1}, "the device must be a string such as 'cpu' or 'cuda', got 1"),
        ({"batch_size": 0}, "the batch size must be 1 or more, got 0"),
        ({"batch_size": "8"}, "must be a number of samples or None, got '8'"),
        ({"device": "cpu", "batch_size": True}, "must be a number of samples or None, got True"),
    ]
    for params, message in cases:
        with pytest.raises(InputError, match=message):
            predictor.set_params(**params)
    assert predictor.get_params() == {"batch_size": 3, "device": "auto"}


# --- copies --------------------------------------------------------------------------------------


def pickled(predictor: oodzoo.Predictor) -> oodzoo.Predictor:
    found: oodzoo.Predictor = pickle.loads(pickle.dumps(predictor))
    return found


@pytest.mark.parametrize("copied", [pickled, copy.deepcopy, copy.copy])
def test_copies_predict_the_same(
    saved: Path, store: oodzoo.FeatureStore, unseen: list[Path], copied: Any
) -> None:
    images = oodzoo.load(saved, device="cpu", batch_size=16)
    images.predict(unseen[:2])  # opens the sessions
    adapted = oodzoo.fit(store, choose="pool", max_models=2).adapted(unseen)
    y = np.where(Y == "yes", 7, 3)
    encoded = oodzoo.fit({"x": np.square}, y, DOMAINS, inputs=rows(), choose="single")
    for predictor, samples in ((images, unseen), (adapted, unseen), (encoded, rows())):
        found = copied(predictor)
        assert found is not predictor
        assert (repr(found), found.to_dict()) == (repr(predictor), predictor.to_dict())
        assert found.get_params() == predictor.get_params()
        assert found.classes_.dtype == predictor.classes_.dtype
        assert found.encoders == predictor.encoders
        for name in ("predict_proba", "predict", "domain_distance"):
            expected = getattr(predictor, name)(samples)
            np.testing.assert_array_equal(getattr(found, name)(samples), expected)


def test_a_pickle_refers_to_the_files_of_the_models(
    predictor: oodzoo.Predictor,
    folder: Path,
    unseen: list[Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(folder.parent)
    data = pickle.dumps(oodzoo.load(folder.name, device="cpu"))
    assert len(data) < sum(file.stat().st_size for file in (folder / "models").iterdir())
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    expected = oodzoo.load(folder, device="cpu").predict_proba(unseen)
    np.testing.assert_array_equal(pickle.loads(data).predict_proba(unseen), expected)
    found = pickle.loads(data)
    shutil.move(folder, folder.parent / "moved")
    features = {model.name: np.zeros((2, model.feature_dim)) for model in found.models}
    assert found.predict(features).shape == (2,)
    with pytest.raises(InputError, match=r"^model '.*': cannot read '.*\.onnx': No such file"):
        found.predict(unseen)
    shutil.move(folder.parent / "moved", folder)
    first, second = sorted((folder / "models").iterdir())
    shutil.copyfile(first, second)
    with pytest.raises(InputError, match="is not the file that the predictor was saved with"):
        found.predict(unseen)
    pytest.importorskip("fsspec")
    url = f"memory://{secrets.token_hex(8)}/model"
    predictor.save(url)
    with pytest.warns(UserWarning, match="is temporary: this pickle cannot be used after the pro"):
        pickle.dumps(oodzoo.load(url, device="cpu"))
