"""What a predictor takes: features, inputs of encoders, images, texts."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from PIL import Image
from tests.predictor.data import DOMAINS, Y, changed, rows
from tests.text_models import WORDS, save_text_model

import oodzoo
from oodzoo import InputError
from oodzoo.extraction.extract import run_extraction
from oodzoo.extraction.outcome import ExtractionConfig
from oodzoo.predictor import Prediction, Unreadable
from oodzoo.predictor.chunks import BATCH_SIZE, batches
from oodzoo.zoo import ModelSpec, load_model
from oodzoo.zoo.model import Outputs


def double(given: Any) -> Any:
    return 2 * np.asarray(given)


def square(given: Any) -> Any:
    given = np.asarray(given)
    return np.concatenate([given, given**2], axis=1)


ENCODERS = {"double": double, "square": square}


@pytest.fixture(scope="module")
def fitted() -> oodzoo.Predictor:
    return oodzoo.fit(ENCODERS, Y, DOMAINS, inputs=rows(), choose="ensemble")


@pytest.fixture(scope="module")
def single() -> oodzoo.Predictor:
    return oodzoo.fit({"double": double(rows())}, Y, DOMAINS, choose="single")


# --- features and encoders -----------------------------------------------------------------------


def test_inputs_are_encoded_in_batches(fitted: oodzoo.Predictor) -> None:
    """And all forms of them give the same as their features."""
    torch = pytest.importorskip("torch")
    X = rows(1)
    by_model = {name: encode(X) for name, encode in ENCODERS.items()}
    parts = [by_model[name][:, chosen] for name, chosen in fitted.columns.by_model.items()]
    logits = np.concatenate(parts, axis=1) @ fitted.head.weights.T + fitted.head.bias
    by_hand = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    for given in (by_model, X, list(X), iter(X)):
        np.testing.assert_allclose(fitted.predict_proba(given), by_hand, atol=1e-6)
    assert fitted.predict(X).tolist() == fitted.classes_[by_hand.argmax(axis=1)].tolist()
    np.testing.assert_allclose(fitted.domain_distance(by_model), fitted.domain_distance(X))
    assert fitted.score(by_model, Y) == fitted.score(X, Y) > 0.9
    sizes: list[int] = []

    def tensors(given: Any) -> Any:
        sizes.append(len(given))
        return torch.tensor(np.asarray(given), requires_grad=True).float()

    n = BATCH_SIZE + 4
    X = np.random.default_rng(0).normal(size=(n, 2))
    y, domains = np.arange(n) % 2, np.arange(n) // 2 % 2
    found = oodzoo.fit({"net": tensors}, y, domains, inputs=iter(X), choose="single")
    assert sizes == [BATCH_SIZE, 4]
    assert (found.cost.milliseconds or 0) > 0
    expected = oodzoo.fit({"net": X.astype(np.float32)}, y, domains, choose="single")
    np.testing.assert_allclose(found.predict_proba(X), expected.predict_proba(X), atol=1e-6)
    with pytest.raises(InputError, match="inputs must have one or more samples, got none"):
        oodzoo.fit({"net": tensors}, [], [], inputs=[])
    odd = {"odd": lambda given: np.ones((len(given), 1 + len(given) // BATCH_SIZE))}
    with pytest.raises(InputError, match="'odd' returned between 1 and 2 features; it must"):
        oodzoo.fit(odd, y, domains, inputs=X)


def test_arrays_tables_and_chunks(
    fitted: oodzoo.Predictor, single: oodzoo.Predictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch, pandas = pytest.importorskip("torch"), pytest.importorskip("pandas")
    X = double(rows(1))
    expected = single.predict_proba({"double": X})
    for given in (X, torch.tensor(X), X.astype(np.float32)):
        np.testing.assert_array_equal(single.predict_proba(given), expected)
    assert single.predict(X[:0]).tolist() == []
    monkeypatch.setattr("oodzoo.predictor.chunks._ROWS", 7)
    np.testing.assert_allclose(single.predict_proba(X), expected, atol=1e-12)
    assert [p.position for p in single.stream(X)] == list(range(90))
    array = np.arange(14).reshape(7, 2)
    table = pandas.DataFrame(array, columns=["x", "y"], index=np.arange(7) / 2)
    for start in (0, 3):
        for inputs in (array, table, torch.tensor(array), table["x"]):
            found = list(batches(inputs, 3, start))
            assert all(type(batch) is type(inputs) for batch in found)
            together = [row for batch in found for row in np.asarray(batch).tolist()]
            assert together == np.asarray(inputs)[start:].tolist()
        listed = list(batches(iter(array.tolist()), 3, start))
        assert [row for batch in listed for row in batch] == array[start:].tolist()
    X = rows(1)[:6]
    X[2] = np.inf
    found = list(fitted.stream(X))
    assert [isinstance(each, Unreadable) for each in found] == [at == 2 for at in range(6)]
    with pytest.raises(InputError, match="the sample number 2: an encoder returns NaN or infinite"):
        fitted.predict(X)


def test_features_that_do_not_fit(fitted: oodzoo.Predictor, single: oodzoo.Predictor) -> None:
    X = rows(1)
    good = {name: encode(X) for name, encode in ENCODERS.items()}
    nan, huge = good["double"].copy(), good["double"].copy()
    nan[4, 1], huge[5, 1] = np.nan, 1e300
    bare = changed(fitted)
    vector = r"'double' are 1-D, with the shape \(3,\), and must be \(n, d\); .*reshape\(1, -1\)"
    cases: list[tuple[oodzoo.Predictor, Any, str]] = [
        (fitted, {"double": nan}, "features of model 'square' are missing; got those of 'doub"),
        (fitted, {}, "features of model '(double|square)' are missing; got those of none"),
        (fitted, good | {"square": X}, "must have 6 columns, .* fitted with; got 3"),
        (fitted, good | {"square": good["square"][:9]}, "have 90 rows, those of|have 9 rows, tho"),
        (fitted, good | {"double": nan}, "'double' contain NaN or infinity, first in row 4"),
        (fitted, good | {"double": huge}, "'double' contain NaN or infinity, first in row 5"),
        (fitted, good | {"double": [["x"]]}, r"must be numbers \(n, d\), got <U1 \(1, 1\)"),
        (fitted, good | {"double": [[1, 2], [3]]}, "are not an array"),
        (bare, X, r"has 2 models; give their features as a dict .*'double'"),
        (single, ["text"], r"load it with encoders=\{'double': function\}, or give"),
        (single, np.array(["one", "two"]), "have features only; to predict from inputs, load it"),
        (single, X[0], vector),
        (single, {"double": X[0]}, vector),
        (single, X[:, :, None], r"must be numbers \(n, d\), got float64 \(90, 3, 1\)"),
    ]
    for predictor, given, message in cases:
        with pytest.raises(InputError, match=message):
            predictor.predict(given)
    with pytest.raises(InputError, match="samples and labels must have the same length, got 90 sa"):
        single.score(double(rows()), Y[:-1])


def test_encoders_that_do_not_fit(
    fitted: oodzoo.Predictor, single: oodzoo.Predictor, predictor: oodzoo.Predictor
) -> None:
    for before, encoders, message in (
        (single, {"x": double}, "predictor has the models 'double'; got encoders of 'x'"),
        (predictor, {"x": double}, "can be loaded and need no encoders; leave the encoders"),
        (fitted, {"double": double}, r"load it with encoders=\{'square': function\}, or give"),
        (single, {"double": square}, r"returns 6 features, .* was fitted with 3; pass"),
        (single, [double], r"encoders must be a dict \{model: function\}, got list"),
        (single, {"x": np.ones(3)}, "the encoder 'x' must be a function, got ndarray"),
    ):
        with pytest.raises(InputError, match=message):
            changed(before, encoders=encoders).predict(rows())
    assert list(changed(single, encoders=ENCODERS).encoders) == ["double"]  # a fit may drop others
    returned: list[tuple[Callable[[Any], Any], str]] = [
        (lambda texts: 1 / 0, "the encoder 'net' failed with ZeroDivisionError: division by zero"),
        (lambda texts: None, r"returned the shape \(\) for a batch of 90; expected \(90, d\)"),
        (lambda texts: {"x": 1}, "returned dict; expected an array or a tensor of numbers"),
        (lambda texts: [["x"]] * 90, "returned list; expected an array or a tensor of numbers"),
        (lambda texts: np.ones(90), r"returned the shape \(90,\) for a batch of 90"),
        (lambda texts: np.ones((90, 0)), r"returned the shape \(90, 0\) for a batch of 90"),
    ]
    for encoder, message in returned:
        with pytest.raises(InputError, match=message):
            oodzoo.fit({"net": encoder}, Y, DOMAINS, inputs=rows())


# --- images --------------------------------------------------------------------------------------


def test_paths_images_and_arrays_are_equivalent(
    predictor: oodzoo.Predictor, unseen: list[Path], saved: Path, tmp_path: Path
) -> None:
    expected = predictor.predict_proba(unseen[:5])
    images = [Image.open(path) for path in unseen[:5]]
    arrays = [np.asarray(image) for image in images]
    for given in ([str(p) for p in unseen[:5]], images, arrays, np.stack(arrays), iter(unseen[:5])):
        np.testing.assert_array_equal(predictor.predict_proba(given), expected)
    for one in (unseen[0], str(unseen[0]), images[0], arrays[0]):
        np.testing.assert_array_equal(predictor.predict_proba(one), predictor.predict_proba([one]))
    many = unseen * 4  # more than one chunk
    small = oodzoo.load(saved, device="cpu", batch_size=7)
    expected = predictor.predict_proba(many)
    np.testing.assert_allclose(small.predict_proba(many), expected, atol=1e-6)
    assert [p.position for p in small.stream(many)] == list(range(len(many)))
    assert predictor.predict([]).tolist() == []
    assert predictor.predict_proba([]).shape == (0, 3)
    bad = tmp_path / "b.png"
    bad.write_text("no image")
    found = list(predictor.stream([unseen[0], bad, images[1]]))
    assert found[1] == Unreadable(1, str(bad), "not an image that Pillow can identify")
    assert (found[2].position, found[2].path) == (2, None)
    for call in (predictor.predict, predictor.preprocess):
        with pytest.raises(InputError, match=r"cannot read the image .*b\.png"):
            call([unseen[0], bad])
    for place in (bad, tmp_path):
        with pytest.raises(InputError, match=r"none of the images can be read; first .*b\.png': "):
            predictor.predict(place)
    (tmp_path / "a.png").write_bytes(unseen[0].read_bytes())
    with pytest.raises(InputError, match=r"cannot read the image .*b.png.*use stream"):
        predictor.score(tmp_path, ["0", "1"])


def test_images_are_consumed_lazily(
    predictor: oodzoo.Predictor, unseen: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without end; and one for which a model returns infinity is a problem of its own."""
    asked = 0

    def endless() -> Any:
        nonlocal asked
        while True:
            asked += 1
            yield np.zeros((8, 8, 3), np.uint8)

    stream = predictor.stream(endless())
    for _ in range(10):
        next(stream)
    stream.close()  # type: ignore[attr-defined]
    assert asked <= 64 * 5
    model = next(iter(predictor.loaded().values()))
    collect = model.collect

    def infinite(launched: Any) -> Outputs:
        features = collect(launched).features.copy()
        features[1] = np.inf
        return Outputs(features, None)

    monkeypatch.setattr(model, "collect", infinite)
    found = list(predictor.stream(unseen[:3]))
    assert [type(each) for each in found] == [Prediction, Unreadable, Prediction]
    assert found[1].reason == "a model returns NaN or infinite features for it"  # type: ignore[union-attr]
    for given, message in (
        ([3], "an image must be a path, a URL, a Pillow image or a uint8 array, got int '3'"),
        ([np.zeros((4, 4))], r"must be uint8 .*, got float64 \(4, 4\)"),
        ([np.zeros((2, 4, 4, 3), np.uint8)], r"must be uint8 .*, got uint8 \(2, 4, 4, 3\)"),
        ("a.png", r"no such file or folder: 'a.png'"),
        ("", r"got an empty path; name an image or a folder"),
    ):
        with pytest.raises(InputError, match=message):
            predictor.predict(given)


# --- texts ---------------------------------------------------------------------------------------

COLUMNS = {"text": "review", "label": "stars", "domain": "site"}


def reviews(seed: int, n: int = 30) -> Any:
    """Reviews of three sites; some words tell whether they are good."""
    rng = np.random.default_rng(seed)
    lines = []
    for site in ("film", "book", "meal"):
        for _ in range(n):
            stars = str(rng.choice(["up", "down"]))
            words = [*rng.choice(WORDS[-11:], 2), site, *(["good"] if stars == "up" else ["bad"])]
            lines.append((" ".join(rng.permutation(words)), stars, site))
    pandas: Any = pytest.importorskip("pandas")
    return pandas.DataFrame(lines, columns=["review", "stars", "site"])


class Made(NamedTuple):
    """A table, a store of it, the specs of its models, and a predictor."""

    table: Path
    store: oodzoo.FeatureStore
    zoo: list[ModelSpec]
    fitted: oodzoo.Predictor


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("texts")
    names = ("first", "second")
    for seed, name in enumerate(names):
        save_text_model(folder / name, seed=seed)
    zoo = [ModelSpec(name, f"sentence-transformers/./{name}", folder=folder) for name in names]
    reviews(0).to_csv(folder / "reviews.csv", index=False)
    data = oodzoo.ImageDomains(folder / "reviews.csv", columns=COLUMNS)
    store = oodzoo.extract(data, zoo, folder / "store")
    return Made(folder / "reviews.csv", store, zoo, oodzoo.fit(store, top_k=2))


def test_it_predicts_texts(made: Made, tmp_path: Path) -> None:
    fitted = made.fitted
    assert fitted.modality == "text"
    new = reviews(1)
    texts, labels = new["review"].tolist(), new["stars"].tolist()
    assert fitted.score(texts, labels) > 0.9
    features = {spec.name: load_model(spec)(texts).features for spec in made.zoo}
    expected = fitted.predict_proba(features)
    loaded = oodzoo.load(fitted.save(tmp_path / "model"), batch_size=7)
    column = new[["review"]]
    for given in (texts, iter(texts), new["review"], column, column.to_numpy()):
        np.testing.assert_allclose(fitted.predict_proba(given), expected, atol=1e-5)
    for predictor in (loaded, pickle.loads(pickle.dumps(fitted))):
        np.testing.assert_allclose(predictor.predict_proba(texts), expected, atol=1e-5)
    assert str(made.table.parent) not in (tmp_path / "model" / "predictor.json").read_text()
    texts = ["good film", "", "bad meal", " \t"]
    found = list(fitted.stream(texts))
    assert [type(each) for each in found] == [Prediction, Unreadable, Prediction, Unreadable]
    assert found[1] == Unreadable(1, None, "the text is blank")
    kept = [each.label for each in found if isinstance(each, Prediction)]
    assert kept == fitted.predict(texts[::2]).tolist()


def test_what_is_not_a_text(made: Made, digits: Path, zoo: list[ModelSpec], tmp_path: Path) -> None:
    fitted = made.fitted
    calls: list[tuple[Callable[[], Any], str]] = [
        (lambda: fitted.predict(["fine", 3]), "a text must be a string, got int '3'"),
        (lambda: fitted.predict(["a", " "]), "cannot read the text number 1: the text is blank; l"),
        (lambda: fitted.predict("fine"), r"^texts must be a list, got 'fine'; put it in a list$"),
        (lambda: fitted.predict(reviews(1)), "one column of a table, got 3 columns"),
        (lambda: fitted.preprocess(["fine"]), "take texts; there are no pixels"),
        (lambda: fitted.export("model.onnx"), r"only ONNX files .* --head-only"),
    ]
    for call, message in calls:
        with pytest.raises(InputError, match=message):
            call()
    texts = oodzoo.ImageDomains(made.table, columns=COLUMNS)
    for data, models, message in (
        (texts, zoo[:1], "takes images, but the samples are texts; give models of"),
        (oodzoo.ImageDomains(digits), made.zoo[:1], r"texts, but the samples are images; .*=NAME"),
    ):
        with pytest.raises(InputError, match=message):
            run_extraction(data, models, tmp_path / "store", ExtractionConfig())


def test_texts_on_the_command_line(run: Any, made: Made, tmp_path: Path) -> None:
    model, new, blank = tmp_path / "model", reviews(1), tmp_path / "blank.txt"
    assert "TEXTS.csv|.txt" in run("fit", made.store.path, "--out", model).err
    new.to_csv(tmp_path / "new.csv", index=False)
    (tmp_path / "new.txt").write_text("\n".join(new["review"]))
    expected = oodzoo.load(model).predict(new["review"].tolist()).tolist()
    column = ["--text-column", "review"]
    for file, options, first in (("new.csv", column, "row 0"), ("new.txt", [], "line 1")):
        done = run("predict", model, tmp_path / file, *options, "--json").document["predictions"]
        assert ([row["label"] for row in done], done[0]["path"]) == (expected, first)
    blank.write_text("good film\n\nbad meal\n")
    done = run("predict", model, blank, "--json")
    assert [row["path"] for row in done.document["predictions"]] == ["line 1", "line 3"]
    assert done.document["unreadable"] == [{"path": "line 2", "error": "the text is blank"}]
    assert "cannot read 'line 2': the text is blank" in done.err
    result = oodzoo.test(model, tmp_path / "new.csv", columns=COLUMNS)
    assert (result.noun, result.images, len(result.domains)) == ("text", 90, 3)
    named = tmp_path / "named.csv"  # the columns have their own names; without domains
    new.rename(columns={"review": "text", "stars": "label"}).to_csv(named, index=False)
    assert oodzoo.test(model, named).confusion == result.confusion
    for content, words in (("\n", "none of the texts can be read"), ("", "has no texts")):
        blank.write_text(content)
        assert words in run("predict", model, blank).err
