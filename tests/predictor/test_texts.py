"""Text encoders of a zoo: extraction, predictor and command line."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.text_models import WORDS, save_text_model

import oodzoo
from oodzoo import InputError
from oodzoo.features.config import ExtractionConfig
from oodzoo.features.extract import run_extraction
from oodzoo.predictor import Prediction, Unreadable
from oodzoo.zoo import ModelSpec, load_model

pd = pytest.importorskip("pandas")

Run = Callable[..., Any]
COLUMNS = {"text": "review", "label": "stars", "domain": "site"}


def _reviews(seed: int, n: int = 30) -> Any:
    """Reviews of three sites; some words tell whether they are good."""
    rng = np.random.default_rng(seed)
    rows = []
    for site in ("film", "book", "meal"):
        for _ in range(n):
            stars = str(rng.choice(["up", "down"]))
            words = [*rng.choice(WORDS[-11:], 2), site, *(["good"] if stars == "up" else ["bad"])]
            rows.append((" ".join(rng.permutation(words)), stars, site))
    return pd.DataFrame(rows, columns=["review", "stars", "site"])


class Made(NamedTuple):
    """A table, a store of it and the specs of its models."""

    table: Path
    store: oodzoo.FeatureStore
    zoo: list[ModelSpec]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("texts")
    names = ("first", "second")
    for seed, name in enumerate(names):
        save_text_model(folder / name, seed=seed)
    zoo = [ModelSpec(name, f"sentence-transformers/./{name}", folder=folder) for name in names]
    _reviews(0).to_csv(folder / "reviews.csv", index=False)
    data = oodzoo.ImageDomains(folder / "reviews.csv", columns=COLUMNS)
    return Made(folder / "reviews.csv", oodzoo.extract(data, zoo, folder / "store"), zoo)


@pytest.fixture(scope="module")
def fitted(made: Made) -> oodzoo.Predictor:
    return oodzoo.fit(made.store, top_k=2)


def test_features_are_those_of_the_encoder(made: Made) -> None:
    texts = {str(at): text for at, text in enumerate(pd.read_csv(made.table)["review"])}
    for spec in made.zoo:
        model = load_model(spec)
        for domain in made.store.domains:
            given = [texts[str(int(path))] for path in made.store.paths(domain)]
            found = made.store.features(spec.name, domain)
            np.testing.assert_allclose(found, model(given).features, atol=1e-5)


def test_it_predicts_texts(made: Made, fitted: oodzoo.Predictor, tmp_path: Path) -> None:
    assert fitted.modality == "text"
    new = _reviews(1)
    texts, labels = new["review"].tolist(), new["stars"].tolist()
    assert fitted.score(texts, labels) > 0.9
    features = {spec.name: load_model(spec)(texts).features for spec in made.zoo}
    expected = fitted.predict_proba(features)
    np.testing.assert_allclose(fitted.predict_proba(texts), expected, atol=1e-5)
    np.testing.assert_allclose(fitted.predict_proba(iter(texts)), expected, atol=1e-5)
    fitted.save(tmp_path / "model")
    loaded = oodzoo.load(tmp_path / "model", batch_size=7)
    np.testing.assert_allclose(loaded.predict_proba(texts * 5)[-90:], expected, atol=1e-5)
    assert loaded.modality == "text"
    for file in made.table.parent.rglob("model.safetensors"):
        assert str(file.parent) not in (tmp_path / "model" / "predictor.json").read_text()


def test_pickled_and_in_a_table(fitted: oodzoo.Predictor) -> None:
    table = _reviews(1)
    expected = fitted.predict_proba(table["review"].tolist())
    found = pickle.loads(pickle.dumps(fitted))
    for given in (table["review"], table[["review"]], table[["review"]].to_numpy()):
        np.testing.assert_allclose(found.predict_proba(given), expected, atol=1e-5)
    with pytest.raises(InputError, match="texts must be one column of a table, got 3 columns"):
        found.predict(table)


def test_what_is_not_a_text(fitted: oodzoo.Predictor) -> None:
    with pytest.raises(InputError, match="take texts; a text must be a string, got int '3'"):
        fitted.predict(["fine", 3])
    with pytest.raises(InputError, match=r"^texts must be a list, got 'fine'; put it in a list$"):
        fitted.predict("fine")
    with pytest.raises(InputError, match="take texts; there are no pixels"):
        fitted.preprocess(["fine"])
    with pytest.raises(InputError, match=r"sentence-transformers; only ONNX files .* --head-only"):
        fitted.export("model.onnx")


def test_blank_texts_are_not_predicted(fitted: oodzoo.Predictor) -> None:
    texts = ["good film", "", "bad meal", " \t"]
    found = list(fitted.stream(texts))
    assert [type(each) for each in found] == [Prediction, Unreadable, Prediction, Unreadable]
    assert found[1] == Unreadable(1, None, "the text is blank")
    kept = [each.label for each in found if isinstance(each, Prediction)]
    assert kept == fitted.predict(texts[::2]).tolist()
    with pytest.raises(InputError, match="cannot read the text number 1: the text is blank; leave"):
        fitted.predict(texts)


def test_texts_and_images_do_not_go_together(
    made: Made, digits: Path, zoo: list[ModelSpec], tmp_path: Path
) -> None:
    texts = oodzoo.ImageDomains(made.table, columns=COLUMNS)
    with pytest.raises(InputError, match="takes images, but the samples are texts; give models of"):
        run_extraction(texts, zoo[:1], tmp_path / "a", ExtractionConfig())
    with pytest.raises(InputError, match=r"takes texts, but the samples are images; .*text=NAME"):
        run_extraction(
            oodzoo.ImageDomains(digits), made.zoo[:1], tmp_path / "b", ExtractionConfig()
        )


def test_on_the_command_line(
    run: Run, made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(made.table.parent)
    store, model = tmp_path / "store", tmp_path / "model"
    arguments = ["--columns", "text=review,label=stars,domain=site"]
    arguments += ["--zoo", "sentence-transformers/./first", "--store", str(store)]
    assert run("extract", made.table, *arguments).code == 0
    again = run("extract", made.table, *arguments)
    assert "Nothing to compute: the features are in the store." in again.err
    fewer = tmp_path / "fewer.csv"
    pd.read_csv(made.table)[3:].to_csv(fewer, index=False)
    assert run("store", "sync", store, fewer, *arguments[:2]).code == 0
    assert oodzoo.FeatureStore(store).n_images == 87
    assert "TEXTS.csv|.txt" in run("fit", store, "--out", model).err
    new = _reviews(1)
    new.to_csv(tmp_path / "new.csv", index=False)
    (tmp_path / "new.txt").write_text("\n".join(new["review"]))
    expected = oodzoo.load(model).predict(new["review"].tolist()).tolist()
    column = ["--text-column", "review"]
    for file, options, first in (("new.csv", column, "row 0"), ("new.txt", [], "line 1")):
        done = run("predict", model, tmp_path / file, *options, "--json").document["predictions"]
        assert [row["label"] for row in done] == expected
        assert done[0]["path"] == first
    complaint = run("predict", model, tmp_path).complaint
    assert "has no images" in complaint or "take texts; give them as one .csv" in complaint
    (tmp_path / "blank.txt").write_text("good film\n\nbad meal\n")
    done = run("predict", model, tmp_path / "blank.txt", "--json")
    assert [row["path"] for row in done.document["predictions"]] == ["line 1", "line 3"]
    assert done.document["unreadable"] == [{"path": "line 2", "error": "the text is blank"}]
    assert "cannot read 'line 2': the text is blank" in done.err
    (tmp_path / "blank.txt").write_text("\n")
    assert "none of the texts can be read" in run("predict", model, tmp_path / "blank.txt").err
    (tmp_path / "empty.txt").write_text("")
    assert "has no texts" in run("predict", model, tmp_path / "empty.txt").complaint


def test_a_predictor_of_texts_is_tested(fitted: oodzoo.Predictor, tmp_path: Path) -> None:
    table = _reviews(3, n=10)
    result = oodzoo.test(fitted, table, columns=COLUMNS)
    assert (result.noun, result.images, len(result.domains)) == ("text", 30, 3)
    expected = fitted.score(table["review"], table["stars"])
    assert result.accuracy == pytest.approx(100 * expected)
    file = tmp_path / "new.csv"
    table.rename(columns={"review": "text", "stars": "label"}).to_csv(file, index=False)
    alone = oodzoo.test(fitted, file)  # the columns have their own names; without domains
    assert list(alone.domains) == ["all"]
    assert alone.confusion == result.confusion
    with pytest.raises(InputError, match="has no columns 'text', 'label'"):
        oodzoo.test(fitted, table)
