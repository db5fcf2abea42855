"""Pickles and copies of predictors, and files of skops."""

from __future__ import annotations

import copy
import json
import os
import pickle
import secrets
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.decomposition import PCA
from sklearn.frozen import FrozenEstimator

import oodzoo
from oodzoo import InputError
from oodzoo.predictor.pickling import from_state, to_state
from oodzoo.task import Kind

DOMAINS = np.repeat(["a", "b", "c"], 40)
X = np.random.default_rng(0).normal(size=(120, 4)) + np.tile([0, 1], 60)[:, None]
Y = np.tile(["no", "yes"], 60)

Copy = Callable[[oodzoo.Predictor], oodzoo.Predictor]


def _pickled(predictor: oodzoo.Predictor) -> oodzoo.Predictor:
    found: oodzoo.Predictor = pickle.loads(pickle.dumps(predictor))
    return found


def _dumped(predictor: oodzoo.Predictor) -> oodzoo.Predictor:
    """By skops; only the class has to be trusted."""
    skops = pytest.importorskip("skops.io")
    data = skops.dumps(predictor)
    trusted = skops.get_untrusted_types(data=data)
    assert trusted == ["oodzoo.predictor.predictor.Predictor"]
    found: oodzoo.Predictor = skops.loads(data, trusted=trusted)
    return found


COPIES: dict[str, Copy] = {
    "pickle": _pickled,
    "protocol 2": lambda predictor: pickle.loads(pickle.dumps(predictor, 2)),
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
    "skops": _dumped,
}


def _require_equal(
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
def test_copies_predict_the_same(saved: Path, unseen: list[Path], copied: Copy) -> None:
    predictor = oodzoo.load(saved, device="cpu", batch_size=16)
    predictor.predict(unseen[:2])  # opens the sessions
    found = copied(predictor)
    assert bool(found._loaded) == (copied is copy.copy)
    _require_equal(found, predictor, unseen, "predict_proba")


@pytest.fixture(scope="module")
def pool(store: oodzoo.FeatureStore) -> oodzoo.Predictor:
    return oodzoo.fit(store, choose="pool", max_models=2)


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
def test_a_pool_can_still_adapt(pool: oodzoo.Predictor, unseen: list[Path], copied: Copy) -> None:
    adapted = pool.adapted(unseen)
    _require_equal(copied(pool).adapted(unseen), adapted, unseen, "predict_proba")
    _require_equal(copied(adapted), adapted, unseen, "predict_proba")


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
@pytest.mark.parametrize("kind", ["regression", "multilabel"])
def test_other_tasks(kind: Kind, copied: Copy) -> None:
    labels = X[:, :2] if kind == "regression" else (X[:, :2] > 0).astype(int)
    predictor = oodzoo.fit({"x": X}, labels, DOMAINS, task=kind, choose="single")
    _require_equal(copied(predictor), predictor, X, "predict")


def test_classes_keep_their_types() -> None:
    predictor = oodzoo.fit({"x": X}, np.tile([3, 7], 60), DOMAINS, choose="single")
    assert _pickled(predictor).classes_.dtype == predictor.classes_.dtype
    assert _pickled(predictor).predict(X).tolist() == predictor.predict(X).tolist()


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
    assert joblib.hash(predictor) == joblib.hash(_pickled(predictor))


@pytest.mark.parametrize("backend", ["loky", "multiprocessing"])
def test_in_other_processes(predictor: oodzoo.Predictor, unseen: list[Path], backend: str) -> None:
    expected = predictor.predict_proba(unseen[:12])
    jobs = (joblib.delayed(predictor.predict_proba)(unseen[at : at + 4]) for at in (0, 4, 8))
    found = joblib.Parallel(n_jobs=2, backend=backend)(jobs)
    np.testing.assert_allclose(np.concatenate(found), expected, atol=1e-6)


# --- files of the models -------------------------------------------------------------------------


def test_a_pickle_refers_to_files_from_any_folder(
    folder: Path, unseen: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent)
    predictor = oodzoo.load(folder.name, device="cpu")
    data = pickle.dumps(predictor)
    sizes = [file.stat().st_size for file in (folder / "models").iterdir()]
    assert len(data) < sum(sizes)  # the models are not in it
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    expected = oodzoo.load(folder, device="cpu").predict_proba(unseen)
    np.testing.assert_array_equal(pickle.loads(data).predict_proba(unseen), expected)


@pytest.mark.parametrize("copied", [_pickled, _dumped])
def test_missing_models_are_reported_when_they_are_needed(
    folder: Path, unseen: list[Path], copied: Copy
) -> None:
    predictor = copied(oodzoo.load(folder, device="cpu"))
    name = predictor.models[0].name
    shutil.move(folder, folder.parent / "moved")
    assert repr(predictor).startswith("Predictor(")
    rows = {model.name: np.zeros((2, model.feature_dim)) for model in predictor.models}
    assert predictor.predict(rows).shape == (2,)
    with pytest.raises(
        InputError, match=rf"^model '{name}': no such file or folder: '.*\.onnx'; a pickled predic"
    ) as error:
        predictor.predict(unseen)
    assert "\n" not in str(error.value)
    shutil.move(folder.parent / "moved", folder)
    assert predictor.predict(unseen[:2]).shape == (2,)


def test_changed_models_are_rejected(folder: Path, unseen: list[Path]) -> None:
    predictor = _pickled(oodzoo.load(folder, device="cpu"))
    first, second = sorted((folder / "models").iterdir())
    shutil.copyfile(first, second)
    with pytest.raises(InputError, match="is not the file that the predictor was saved with"):
        predictor.predict(unseen)


def test_models_of_a_url_are_fetched_again(
    predictor: oodzoo.Predictor, unseen: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("fsspec")
    monkeypatch.setenv("OODZOO_CACHE", str(tmp_path / "first"))
    url = f"memory://{secrets.token_hex(8)}/model"
    predictor.save(url)
    data = pickle.dumps(oodzoo.load(url, device="cpu"))
    shutil.rmtree(tmp_path / "first")  # as at the end of the process
    monkeypatch.setenv("OODZOO_CACHE", str(tmp_path / "second"))
    found = pickle.loads(data)
    np.testing.assert_array_equal(found.predict(unseen), predictor.predict(unseen))
    assert repr(_pickled(found)) == repr(found)
    oodzoo.fit({"x": X}, Y, DOMAINS, choose="single").save(url)
    shutil.rmtree(tmp_path / "second")
    monkeypatch.setenv("OODZOO_CACHE", str(tmp_path / "third"))
    with pytest.raises(InputError, match=r"the predictor at 'memory:.*has been replaced since"):
        pickle.loads(data)


def test_a_damaged_state(predictor: oodzoo.Predictor) -> None:
    state = to_state(predictor._parts(), None)
    document = json.loads(state["document"]) | {"schema": 99}
    with pytest.raises(
        InputError, match=r"the pickled predictor has the schema 99.*upgrade oodzoo"
    ):
        from_state(state | {"document": json.dumps(document)})


# --- encoders ------------------------------------------------------------------------------------


def double(rows: Any) -> Any:
    return 2 * np.asarray(rows)


class Locked:
    """A function that cannot be pickled."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __call__(self, rows: Any) -> Any:
        with self.lock:
            return np.asarray(rows)


def _fitted(encoder: Any) -> oodzoo.Predictor:
    return oodzoo.fit({"x": encoder}, Y, DOMAINS, inputs=X, choose="single")


def test_encoders_are_pickled() -> None:
    factor = 3
    for encoder in (double, lambda rows: factor * np.asarray(rows), PCA(2).fit(X).transform):
        predictor = _fitted(encoder)
        for copied in (_pickled, copy.deepcopy):
            found = copied(predictor)
            np.testing.assert_array_equal(found.predict_proba(X), predictor.predict_proba(X))
    assert _pickled(_fitted(double)).encoders == {"x": double}


def test_lambdas_in_a_new_process(tmp_path: Path) -> None:
    shift = 0.5
    predictor = _fitted(lambda rows: [[a + shift, b] for a, b, *_ in rows])
    (tmp_path / "predictor.pickle").write_bytes(pickle.dumps(predictor))
    code = "import pickle, sys; p = pickle.load(open(sys.argv[1], 'rb'))\n"
    code += "print(p.predict([[0.0] * 4, [1.0] * 4]).tolist())"
    found = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, str(tmp_path / "predictor.pickle")],
        capture_output=True, text=True, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert found.stdout.strip() == str(predictor.predict([[0.0] * 4, [1.0] * 4]).tolist())


def test_an_encoder_that_cannot_be_pickled() -> None:
    predictor = _fitted(Locked())
    with pytest.raises(
        InputError, match=r"the encoder 'x' cannot be pickled: TypeError: .*lock.*; save the"
    ):
        pickle.dumps(predictor)
    assert copy.copy(predictor).predict(X).tolist() == predictor.predict(X).tolist()


def test_encoders_for_skops() -> None:
    skops = pytest.importorskip("skops.io")
    predictor = _fitted(double)
    data = skops.dumps(predictor)
    trusted = skops.get_untrusted_types(data=data)
    assert sorted(trusted) == [f"{__name__}.double", "oodzoo.predictor.predictor.Predictor"][::-1]
    found = skops.loads(data, trusted=trusted)
    np.testing.assert_array_equal(found.predict_proba(X), predictor.predict_proba(X))
    with pytest.raises(InputError, match="the encoder 'x' is a lambda or a local function, which"):
        skops.dumps(_fitted(lambda rows: np.asarray(rows)))
