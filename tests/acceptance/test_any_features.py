"""Predictors of texts and tables, from the first feature to the saved predictor."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_wine
from sklearn.decomposition import PCA
from sklearn.kernel_approximation import RBFSampler
from sklearn.preprocessing import StandardScaler
from tests.text_models import save_text_model, sentence_transformers

import oodzoo

pd = pytest.importorskip("pandas")


def _same_in_onnx(predictor: oodzoo.Predictor, features: dict[str, Any], folder: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx", reason='exporting needs onnx: pip install "oodzoo[onnx]"')
    file = predictor.export(folder / "head.onnx")
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    inputs = {model.name: np.float32(features[model.name]) for model in predictor.models}
    (found,) = session.run(["probabilities"], inputs)
    np.testing.assert_allclose(found, predictor.predict_proba(inputs), atol=1e-5)


# --- texts --------------------------------------------------------------------------------------

_THINGS = {
    "kitchen": ("pan", "knife", "kettle", "toaster"),
    "books": ("book", "novel", "story", "chapter"),
    "films": ("film", "plot", "cast", "scene"),
    "hotels": ("room", "bed", "breakfast", "pool"),
}
_OPINIONS = {"good": ("good", "fine", "lovely", "great"), "bad": ("bad", "poor", "awful", "dull")}
_FRAMES = ("the {thing} was {opinion}", "a very {opinion} {thing}", "really {opinion} this {thing}")


def _reviews(*sites: str) -> tuple[list[str], list[str], list[str]]:
    rows = [
        (frame.format(thing=thing, opinion=word), label, site)
        for site in sites
        for thing, frame in itertools.product(_THINGS[site], _FRAMES)
        for label, words in _OPINIONS.items()
        for word in words
    ]
    texts, labels, names = zip(*rows, strict=True)
    return list(texts), list(labels), list(names)


def test_texts(tmp_path: Path) -> None:
    library = sentence_transformers()
    words = sorted({word for text in _reviews(*_THINGS)[0] for word in text.split()})
    folders = [tmp_path / "first", tmp_path / "second"]
    for seed, folder in enumerate(folders):
        save_text_model(folder, seed=seed, words=words)
    texts, labels, sites = _reviews("kitchen", "books", "films")
    new, truth, _ = _reviews("hotels")

    def encoders() -> dict[str, Any]:
        return {
            folder.name: library.SentenceTransformer(str(folder), device="cpu").encode
            for folder in folders
        }

    predictor = oodzoo.fit(encoders(), labels, sites, inputs=texts)
    assert predictor.score(new, truth) > 0.9
    assert predictor.provenance.accuracy is not None
    assert predictor.provenance.n_images == len(texts)
    assert predictor.cost.milliseconds
    predictor.save(tmp_path / "model")
    loaded = oodzoo.load(tmp_path / "model", encoders=encoders())
    np.testing.assert_allclose(loaded.predict_proba(new), predictor.predict_proba(new), atol=1e-6)
    features = {name: encode(new) for name, encode in encoders().items()}
    bare = oodzoo.load(tmp_path / "model")
    np.testing.assert_allclose(
        bare.predict_proba(features), predictor.predict_proba(new), atol=1e-6
    )
    with pytest.raises(oodzoo.InputError, match=r"load it with encoders=\{.*'first': function"):
        bare.predict(new)
    _same_in_onnx(bare, features, tmp_path)


# --- tables -------------------------------------------------------------------------------------


@pytest.fixture
def wine() -> tuple[Any, list[str], list[str]]:
    """Wines of three growers; the domain is how strong the wine is."""
    table, growers = load_wine(return_X_y=True, as_frame=True)
    domains = pd.qcut(table.pop("magnesium"), 3, labels=["little", "some", "much"])
    return table, [f"grower {number}" for number in growers], domains.astype(str).tolist()


def _encoders(table: Any) -> dict[str, Any]:
    scaler = StandardScaler().set_output(transform="default").fit(table)
    components = PCA(5).fit(scaler.transform(table))
    random = RBFSampler(gamma=0.05, n_components=60, random_state=0).fit(scaler.transform(table))
    return {
        "scaled": scaler.transform,
        "components": lambda rows: components.transform(scaler.transform(rows)),
        "random": lambda rows: random.transform(scaler.transform(rows)),
    }


def test_a_table(wine: tuple[Any, list[str], list[str]], tmp_path: Path) -> None:
    table, growers, domains = wine
    train = np.array(domains) != "much"
    new, truth = table[~train], np.array(growers)[~train]
    encoders = _encoders(table[train])
    labels, names = np.array(growers)[train], np.array(domains)[train]
    predictor = oodzoo.fit(encoders, labels, names, inputs=table[train])
    assert predictor.score(new, truth) > 0.9
    predictor.save(tmp_path / "model")
    loaded = oodzoo.load(tmp_path / "model", encoders=encoders)
    assert loaded.predict(new).tolist() == predictor.predict(new).tolist()
    _same_in_onnx(loaded, {name: encode(new) for name, encode in encoders.items()}, tmp_path)
