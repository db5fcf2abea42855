"""A predictor inside scikit-learn and joblib; copies and pickles of it."""

from __future__ import annotations

import copy
import pickle
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from PIL import Image
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.inspection import permutation_importance
from sklearn.metrics import f1_score, get_scorer, r2_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_checks, get_tags
from tests.predictor import conftest as fixtures
from tests.predictor.data import DOMAINS, Y, problem, rows, truth

import oodzoo
from oodzoo import InputError
from oodzoo.tasks import Kind

folder = fixtures.folder


def opened(paths: Any) -> list[Image.Image]:
    images = []
    for path in paths:
        with Image.open(path) as image:
            images.append(image.convert("RGB"))
    return images


def table(paths: list[Path]) -> Any:
    return pytest.importorskip("pandas").DataFrame({"path": map(str, paths), "n": 1})


# --- scikit-learn --------------------------------------------------------------------------------


def test_calibrated_in_a_joblib_file(
    predictor: oodzoo.Predictor, unseen: list[Path], tmp_path: Path
) -> None:
    paths = [unseen[at] for at in np.random.default_rng(0).permutation(len(unseen))]
    y, plain = truth(paths), predictor.predict_proba(paths)
    pixels = np.stack([np.asarray(image) for image in opened(paths)])
    for samples in (np.array(paths, object)[:, None], pixels, table(paths)[["path"]]):
        np.testing.assert_array_equal(predictor.predict_proba(samples), plain)
    calibrated = CalibratedClassifierCV(FrozenEstimator(predictor), method="sigmoid", cv=2)
    calibrated.fit(samples, y)
    assert calibrated.classes_.tolist() == predictor.classes_.tolist()
    assert calibrated.score(samples, y) > 0.9
    found = calibrated.predict_proba(samples)
    assert not np.allclose(found, plain)
    joblib.dump(calibrated, tmp_path / "calibrated.joblib")
    again = joblib.load(tmp_path / "calibrated.joblib")
    np.testing.assert_array_equal(again.predict_proba(samples), found)
    with pytest.raises(InputError, match="one column of a table, got 2 columns: 'path', 'n'"):
        predictor.predict(table(unseen))


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


@pytest.mark.parametrize("kind", ["regression", "multilabel"])
def test_other_tasks(kind: Kind) -> None:
    features, y, domains = problem(kind)
    X = features["one"]
    predictor = oodzoo.fit({"x": X}, y, domains, task=kind, choose="single")
    frozen = FrozenEstimator(predictor).fit(X, y)
    assert is_regressor(frozen) == (kind == "regression")
    assert is_classifier(frozen) == (kind == "multilabel")
    tags = get_tags(predictor)
    assert tags.target_tags.multi_output
    assert tags.input_tags.two_d_array
    found = predictor.predict(X)
    if kind == "regression":
        assert get_scorer("r2")(frozen, X, y) == pytest.approx(r2_score(y, found))
    else:
        expected = f1_score(y, found, average="macro")
        assert get_scorer("f1_macro")(frozen, X, y) == pytest.approx(expected)
    assert permutation_importance(predictor, X, y, n_repeats=2).importances_mean.max() > 0.01


def test_parameters(saved: Path, unseen: list[Path]) -> None:
    predictor = oodzoo.load(saved, device="cpu")
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


@pytest.mark.parametrize(
    "check",
    [
        estimator_checks.check_estimator_cloneable,
        estimator_checks.check_estimator_repr,
        estimator_checks.check_estimator_tags_renamed,
        estimator_checks.check_get_params_invariance,
        estimator_checks.check_set_params,
        estimator_checks.check_valid_tag_types,
    ],
)
@pytest.mark.filterwarnings("ignore:.*delay parameter validation until fit")
def test_checks_of_scikit_learn(saved: Path, check: Callable[[str, Any], None]) -> None:
    """Those that neither fit the estimator nor make another one of its class."""
    check("Predictor", oodzoo.load(saved))


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
