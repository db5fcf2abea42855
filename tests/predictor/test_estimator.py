"""A predictor inside scikit-learn."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sklearn.base import BaseEstimator, clone, is_classifier, is_regressor
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.inspection import permutation_importance
from sklearn.metrics import f1_score, get_scorer, r2_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_checks, get_tags
from sklearn.utils.validation import check_is_fitted
from tests.predictor.data import problem, truth

import oodzoo
from oodzoo import InputError
from oodzoo.task import Kind

Given = Callable[[list[Path]], Any]


def _open(paths: Any) -> list[Image.Image]:
    images = []
    for path in paths:
        with Image.open(path) as image:
            images.append(image.convert("RGB"))
    return images


def _table(paths: list[Path]) -> Any:
    return pytest.importorskip("pandas").DataFrame({"path": map(str, paths), "n": 1})


GIVEN: dict[str, Given] = {
    "paths": list,
    "column of objects": lambda paths: np.array(paths, object)[:, None],
    "pixels": lambda paths: np.stack([np.asarray(image) for image in _open(paths)]),
    "table": lambda paths: _table(paths)[["path"]],
}


def _f1_macro(truth: Any, found: Any) -> float:
    return float(f1_score(truth, found, average="macro"))


def _shuffled(paths: list[Path]) -> list[Path]:
    return [paths[at] for at in np.random.default_rng(0).permutation(len(paths)).tolist()]


@pytest.mark.parametrize("given", GIVEN.values(), ids=GIVEN)
def test_calibrated(predictor: oodzoo.Predictor, unseen: list[Path], given: Given) -> None:
    paths = _shuffled(unseen)
    samples, y = given(paths), truth(paths)
    plain = predictor.predict_proba(paths)
    np.testing.assert_array_equal(predictor.predict_proba(samples), plain)
    calibrated = CalibratedClassifierCV(FrozenEstimator(predictor), method="sigmoid", cv=2)
    calibrated.fit(samples, y)
    assert calibrated.classes_.tolist() == predictor.classes_.tolist()
    assert calibrated.score(samples, y) > 0.9
    assert not np.allclose(calibrated.predict_proba(samples), plain)
    with pytest.raises(InputError, match="one column of a table, got 2 columns: 'path', 'n'"):
        predictor.predict(_table(unseen))


def test_pipeline(predictor: oodzoo.Predictor, unseen: list[Path]) -> None:
    y = truth(unseen)
    pipeline = Pipeline([("open", FunctionTransformer(_open)), ("p", FrozenEstimator(predictor))])
    pipeline.fit(unseen, y)
    assert pipeline.score(unseen, y) == predictor.score(unseen, y)
    np.testing.assert_array_equal(
        pipeline.predict_proba(unseen), predictor.predict_proba(_open(unseen))
    )
    assert clone(pipeline).named_steps["p"].estimator is predictor
    assert "Predictor" in repr(pipeline)
    assert "Predictor" in pipeline._repr_html_()
    bare = make_pipeline(FunctionTransformer(_open), predictor)
    assert bare.predict(unseen).tolist() == pipeline.predict(unseen).tolist()
    with pytest.raises(InputError, match=r"fitted already.*FrozenEstimator\(predictor\)"):
        bare.fit(unseen, y)


def test_cross_validation_scores_it_as_it_is(
    predictor: oodzoo.Predictor, unseen: list[Path]
) -> None:
    y = np.array(truth(unseen))
    scores = cross_val_score(FrozenEstimator(predictor), unseen, y, cv=3)
    assert np.mean(scores) == pytest.approx(predictor.score(unseen, y))
    with pytest.raises(InputError, match="fitted already"):
        cross_val_score(predictor, unseen, y, cv=3, error_score="raise")
    with pytest.raises(InputError, match="fitted already"):
        GridSearchCV(predictor, {"batch_size": [4]}, cv=3, error_score="raise").fit(unseen, y)


def test_it_is_an_estimator(predictor: oodzoo.Predictor, unseen: list[Path]) -> None:
    assert isinstance(predictor, BaseEstimator)
    assert is_classifier(predictor)
    assert not is_regressor(predictor)
    assert clone(predictor) is predictor
    check_is_fitted(predictor)
    y = truth(unseen)
    assert get_scorer("accuracy")(predictor, unseen, y) == predictor.score(unseen, y)
    right = predictor.predict_proba(unseen)[np.arange(len(y)), [int(each) for each in y]]
    loss = get_scorer("neg_log_loss")(predictor, unseen, y)
    np.testing.assert_allclose(loss, np.log(right).mean())
    assert repr(predictor).startswith("Predictor(selection: 3 classes")
    assert "Predictor" in predictor._repr_html_()
    tags = get_tags(predictor)
    assert tags.input_tags.one_d_array
    assert not tags.input_tags.two_d_array
    with pytest.raises(InputError, match=r"only oodzoo.fit can fit one; .*wrap it"):
        predictor.fit([], [])


@pytest.mark.parametrize("kind", ["regression", "multilabel"])
def test_other_tasks(kind: Kind) -> None:
    features, Y, domains = problem(kind)
    X = features["one"]
    predictor = oodzoo.fit({"x": X}, Y, domains, task=kind, choose="single")
    frozen = FrozenEstimator(predictor).fit(X, Y)
    assert is_regressor(frozen) == (kind == "regression")
    assert is_classifier(frozen) == (kind == "multilabel")
    tags = get_tags(predictor)
    assert tags.target_tags.multi_output
    assert tags.input_tags.two_d_array
    name, metric = ("r2", r2_score) if kind == "regression" else ("f1_macro", _f1_macro)
    assert get_scorer(name)(frozen, X, Y) == pytest.approx(metric(Y, predictor.predict(X)))
    assert permutation_importance(predictor, X, Y, n_repeats=2).importances_mean.max() > 0.01


def test_parameters(saved: Path, unseen: list[Path]) -> None:
    predictor = oodzoo.load(saved, device="cpu")
    assert predictor.get_params() == {"batch_size": None, "device": "cpu"}
    expected = predictor.predict_proba(unseen)
    before = predictor.loaded()
    assert predictor.set_params(batch_size=7) is predictor
    assert predictor.loaded() is before
    np.testing.assert_allclose(predictor.predict_proba(unseen), expected, atol=1e-6)
    predictor.set_params(device="auto")
    assert predictor.get_params() == {"batch_size": 7, "device": "auto"}
    assert predictor.loaded() is not before
    pipeline = make_pipeline(predictor).set_params(predictor__batch_size=3)
    assert pipeline[-1].batch_size == 3


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"C": 1}, r"cannot set 'C': .*only device and batch_size can be changed.*fit again"),
        ({"models": []}, "cannot set 'models'"),
        ({"device": "tpu"}, "unknown device 'tpu'"),
        ({"device": 1}, "the device must be a string such as 'cpu' or 'cuda', got 1"),
        ({"batch_size": 0}, "the batch size must be 1 or more, got 0"),
        ({"batch_size": "8"}, "must be a number of samples or None, got '8'"),
        ({"device": "cpu", "batch_size": True}, "must be a number of samples or None, got True"),
    ],
)
def test_bad_parameters(saved: Path, params: dict[str, Any], says: str) -> None:
    predictor = oodzoo.load(saved)
    with pytest.raises(InputError, match=says):
        predictor.set_params(**params)
    assert predictor.get_params() == {"batch_size": None, "device": "auto"}


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
    ids=lambda check: str(check.__name__),
)
@pytest.mark.filterwarnings("ignore:.*delay parameter validation until fit")
def test_checks_of_scikit_learn(saved: Path, check: Callable[[str, Any], None]) -> None:
    """Those that neither fit the estimator nor make another one of its class."""
    check("Predictor", oodzoo.load(saved))
