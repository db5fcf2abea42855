"""Features that are given, and inputs of encoders."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import oodzoo
from oodzoo import InputError
from oodzoo.predictor import Unreadable

Y = np.tile(["no", "yes"], 45)
DOMAINS = np.repeat(["a", "b", "c"], 30)


def _data(seed: int = 0) -> NDArray[np.float64]:
    rng = np.random.default_rng(seed)
    shift = 2.0 * (Y == "yes")
    data: NDArray[np.float64] = rng.normal(size=(90, 3)) + shift[:, None]
    return data


def double(rows: Any) -> Any:
    return 2 * np.asarray(rows)


def square(rows: Any) -> Any:
    rows = np.asarray(rows)
    return np.concatenate([rows, rows**2], axis=1)


ENCODERS = {"double": double, "square": square}


@pytest.fixture(scope="module")
def fitted() -> oodzoo.Predictor:
    return oodzoo.fit(ENCODERS, Y, DOMAINS, inputs=_data(), choose="ensemble")


@pytest.fixture(scope="module")
def single() -> oodzoo.Predictor:
    return oodzoo.fit({"double": double(_data())}, Y, DOMAINS, choose="single")


def test_probabilities_by_hand(fitted: oodzoo.Predictor) -> None:
    X = _data(1)
    by_model = {name: encode(X) for name, encode in ENCODERS.items()}
    parts = [by_model[name][:, chosen] for name, chosen in fitted.columns.by_model.items()]
    logits = np.concatenate(parts, axis=1) @ fitted.head.weights.T + fitted.head.bias
    by_hand = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    for given in (by_model, X, list(X), iter(X)):
        np.testing.assert_allclose(fitted.predict_proba(given), by_hand, atol=1e-6)
    assert fitted.predict(X).tolist() == fitted.classes_[by_hand.argmax(axis=1)].tolist()
    np.testing.assert_allclose(fitted.domain_distance(by_model), fitted.domain_distance(X))
    assert fitted.score(by_model, Y) == fitted.score(X, Y) > 0.9


def test_an_image_predictor_takes_features(
    predictor: oodzoo.Predictor, store: oodzoo.FeatureStore
) -> None:
    domain = store.domains[0]
    features = {name: store.features(name, domain) for name in store.models}
    images = [str(store.path.parent / path) for path in store.paths(domain)]
    assert len(predictor.predict(features)) == len(images)
    labels = [store.classes[label] for label in store.labels(domain)]
    assert predictor.score(features, labels) > 0.9


def test_one_model_takes_its_array(single: oodzoo.Predictor) -> None:
    torch = pytest.importorskip("torch")
    X = double(_data(1))
    expected = single.predict_proba({"double": X})
    np.testing.assert_array_equal(single.predict_proba(X), expected)
    np.testing.assert_array_equal(single.predict_proba(torch.tensor(X)), expected)
    np.testing.assert_array_equal(single.predict_proba(X.astype(np.float32)), expected)
    assert single.predict(X[:0]).tolist() == []


def test_rows_beyond_one_chunk(single: oodzoo.Predictor, monkeypatch: pytest.MonkeyPatch) -> None:
    X = double(_data(1))
    expected = single.predict_proba(X)
    monkeypatch.setattr("oodzoo.predictor.inputs._ROWS", 7)
    np.testing.assert_allclose(single.predict_proba(X), expected, atol=1e-12)
    assert [p.position for p in single.stream(X)] == list(range(90))


def test_features_that_do_not_fit(fitted: oodzoo.Predictor, single: oodzoo.Predictor) -> None:
    X = _data(1)
    good = {name: encode(X) for name, encode in ENCODERS.items()}
    nan = good["double"].copy()
    nan[4, 1] = np.nan
    huge = good["double"].copy()
    huge[5, 1] = 1e300
    for given, message in (
        ({"double": good["double"]}, "features of model 'square' are missing; got those of 'doub"),
        ({}, "features of model '(double|square)' are missing; got those of none"),
        (good | {"square": good["square"][:, :4]}, "must have 6 columns, .* fitted with; got 4"),
        (good | {"square": good["square"][:9]}, "have 90 rows, those of|have 9 rows, those of"),
        (good | {"double": nan}, "'double' contain NaN or infinity, first in row 4"),
        (good | {"double": huge}, "'double' contain NaN or infinity, first in row 5"),
        (good | {"double": good["double"][0]}, r"are 1-D, with the shape \(3,\), and must"),
        (good | {"double": [["x"]]}, r"must be numbers \(n, d\), got <U1 \(1, 1\)"),
        (good | {"double": [[1, 2], [3]]}, "are not an array"),
    ):
        with pytest.raises(InputError, match=message):
            fitted.predict(given)
    bare = oodzoo.Predictor(**vars(fitted._parts()))
    with pytest.raises(InputError, match=r"has 2 models; give their features as a dict .*'double'"):
        bare.predict(np.concatenate(list(good.values()), axis=1))
    with pytest.raises(InputError, match=r"load it with encoders=\{'double': function\}, or give"):
        single.predict(["text"])


def test_encoders_that_do_not_fit(
    fitted: oodzoo.Predictor, single: oodzoo.Predictor, predictor: oodzoo.Predictor
) -> None:
    def attached(other: oodzoo.Predictor, encoders: Any) -> oodzoo.Predictor:
        return oodzoo.Predictor(**vars(other._parts()), encoders=encoders)

    with pytest.raises(InputError, match="predictor has the models 'double'; got encoders of 'x'"):
        attached(single, {"x": double})
    with pytest.raises(InputError, match="can be loaded and need no encoders; leave the encoders"):
        attached(predictor, {"x": double})
    with pytest.raises(InputError, match=r"load it with encoders=\{'square': function\}, or give"):
        attached(fitted, {"double": double}).predict(_data())
    with pytest.raises(InputError, match=r"returns 6 features, .* was fitted with 3; pass"):
        attached(single, {"double": square}).predict(_data())
    assert list(attached(single, ENCODERS).encoders) == ["double"]  # the fit may leave out others


def test_an_input_without_features(fitted: oodzoo.Predictor) -> None:
    X = _data(1)[:6]
    X[2] = np.inf
    found = list(fitted.stream(X))
    assert [isinstance(each, Unreadable) for each in found] == [at == 2 for at in range(6)]
    with pytest.raises(
        InputError, match="cannot read the sample number 2: an encoder returns NaN or infinite"
    ):
        fitted.predict(X)


@pytest.mark.parametrize("n_bytes", [0, 200, 2**30])
def test_a_stream_adapts_first(n_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether features are kept or computed again, of arrays and of inputs."""
    predictor = oodzoo.fit(ENCODERS, Y, DOMAINS, inputs=_data(), choose="pool")
    predictor.batch_size = 8
    monkeypatch.setattr("oodzoo.predictor.inputs.KEPT_BYTES", n_bytes)
    X = 3 + 2 * _data(2)
    expected = predictor.adapted(X).predict_proba(X)
    assert not np.allclose(expected, predictor.predict_proba(X), atol=1e-3)
    features = {name: encode(X) for name, encode in ENCODERS.items()}
    for given in (X, list(X), iter(X), features):
        found = list(predictor.stream(given, adapt=True))
        assert [each.position for each in found] == list(range(90))
        probabilities: Any = [p.probabilities for p in found if not isinstance(p, Unreadable)]
        np.testing.assert_allclose(probabilities, expected, atol=1e-6)


def test_lengths_that_differ(single: oodzoo.Predictor) -> None:
    with pytest.raises(InputError, match="samples and labels must have the same length, got 90 sa"):
        single.score(double(_data()), Y[:-1])


def test_one_sample_as_a_vector(single: oodzoo.Predictor) -> None:
    message = r"'double' are 1-D, with the shape \(3,\), and must be \(n, d\); .*reshape\(1, -1\)"
    for given in (_data()[0], {"double": _data()[0]}):
        with pytest.raises(InputError, match=message):
            single.predict(given)
    with pytest.raises(InputError, match="have features only; to predict from inputs, load it"):
        single.predict(np.array(["one", "two"]))
    with pytest.raises(InputError, match=r"must be numbers \(n, d\), got float64 \(90, 3, 1\)"):
        single.predict(_data()[:, :, None])
