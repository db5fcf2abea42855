"""Copies and pickles of predictors: joblib, other processes, scikit-learn's meta-estimators."""

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
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator

import oodzoo
from oodzoo import InputError
from oodzoo.task import Kind

DOMAINS = np.repeat(["a", "b", "c"], 40)
X = np.random.default_rng(0).normal(size=(120, 4)) + np.tile([0, 1], 60)[:, None]

Copy = Callable[[oodzoo.Predictor], oodzoo.Predictor]


def pickled(predictor: oodzoo.Predictor) -> oodzoo.Predictor:
    found: oodzoo.Predictor = pickle.loads(pickle.dumps(predictor))
    return found


COPIES: dict[str, Copy] = {"pickle": pickled, "deepcopy": copy.deepcopy, "copy": copy.copy}


def require_equal(
    found: oodzoo.Predictor, predictor: oodzoo.Predictor, samples: Any, method: str
) -> None:
    assert found is not predictor
    assert repr(found) == repr(predictor)
    assert found.get_params() == predictor.get_params()
    assert found.to_dict() == predictor.to_dict()
    for name in (method, "predict", "domain_distance"):
        expected = getattr(predictor, name)(samples)
        np.testing.assert_array_equal(getattr(found, name)(samples), expected)


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
def test_copies_predict_the_same(
    saved: Path, store: oodzoo.FeatureStore, unseen: list[Path], copied: Copy
) -> None:
    predictor = oodzoo.load(saved, device="cpu", batch_size=16)
    predictor.predict(unseen[:2])  # opens the sessions
    require_equal(copied(predictor), predictor, unseen, "predict_proba")
    pool = oodzoo.fit(store, choose="pool", max_models=2)
    adapted = pool.adapted(unseen)
    require_equal(copied(pool).adapted(unseen), adapted, unseen, "predict_proba")
    require_equal(copied(adapted), adapted, unseen, "predict_proba")


@pytest.mark.parametrize("kind", ["classification", "regression", "multilabel"])
def test_other_tasks_and_encoders(kind: Kind) -> None:
    labels = {
        "classification": np.tile([3, 7], 60),
        "regression": X[:, :2],
        "multilabel": (X[:, :2] > 0).astype(int),
    }[kind]
    predictor = oodzoo.fit({"x": np.square}, labels, DOMAINS, inputs=X, task=kind, choose="single")
    found = pickled(predictor)
    require_equal(found, predictor, X, "predict")
    assert found.classes_.dtype == predictor.classes_.dtype
    assert found.encoders == {"x": np.square}
    assert clone(predictor) is predictor


def test_joblib_file_of_a_calibrated_predictor(
    predictor: oodzoo.Predictor, unseen: list[Path], tmp_path: Path
) -> None:
    y = [path.parent.name for path in unseen]
    order = np.random.default_rng(0).permutation(len(y)).tolist()
    calibrated = CalibratedClassifierCV(FrozenEstimator(predictor), cv=2)
    calibrated.fit([unseen[at] for at in order], [y[at] for at in order])
    joblib.dump(calibrated, tmp_path / "calibrated.joblib")
    found = joblib.load(tmp_path / "calibrated.joblib")
    np.testing.assert_array_equal(found.predict_proba(unseen), calibrated.predict_proba(unseen))


@pytest.mark.parametrize("backend", ["loky", "multiprocessing"])
def test_in_other_processes(predictor: oodzoo.Predictor, unseen: list[Path], backend: str) -> None:
    expected = predictor.predict_proba(unseen[:12])
    jobs = (joblib.delayed(predictor.predict_proba)(unseen[at : at + 4]) for at in (0, 4, 8))
    found = joblib.Parallel(n_jobs=2, backend=backend)(jobs)
    np.testing.assert_allclose(np.concatenate(found), expected, atol=1e-6)


def test_a_pickle_refers_to_the_files_of_the_models(
    folder: Path, unseen: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    rows = {model.name: np.zeros((2, model.feature_dim)) for model in found.models}
    assert found.predict(rows).shape == (2,)
    with pytest.raises(InputError, match=r"^model '.*': cannot read '.*\.onnx': No such file"):
        found.predict(unseen)
    shutil.move(folder.parent / "moved", folder)
    first, second = sorted((folder / "models").iterdir())
    shutil.copyfile(first, second)
    with pytest.raises(InputError, match="is not the file that the predictor was saved with"):
        found.predict(unseen)


def test_a_pickle_of_temporary_files_is_warned_of(predictor: oodzoo.Predictor) -> None:
    pytest.importorskip("fsspec")
    url = f"memory://{secrets.token_hex(8)}/model"
    predictor.save(url)
    loaded = oodzoo.load(url, device="cpu")
    with pytest.warns(UserWarning, match="is temporary: this pickle cannot be used after the pro"):
        pickle.dumps(loaded)
