"""Predictors of texts, sounds and tables, from the first feature to the saved predictor."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.signal import butter, sosfilt
from sklearn.datasets import load_wine
from sklearn.decomposition import PCA
from sklearn.kernel_approximation import RBFSampler
from sklearn.preprocessing import StandardScaler
from tests.text_models import save_text_model, sentence_transformers

import oodzoo
from oodzoo.predictor import Prediction

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


# --- sounds -------------------------------------------------------------------------------------

_RATE = 8000
_MICROPHONES: dict[str, tuple[Any, float, float]] = {
    "studio": (None, 1.0, 0.01),
    "telephone": (butter(2, [300, 3000], "bandpass", fs=_RATE, output="sos"), 0.4, 0.03),
    "far away": (butter(1, 1500, "lowpass", fs=_RATE, output="sos"), 0.1, 0.004),
    "old": (butter(1, 400, "highpass", fs=_RATE, output="sos"), 2.0, 0.15),
}
_KINDS: dict[str, Callable[[Any, float], Any]] = {
    "tone": lambda time, pitch: np.sin(2 * np.pi * pitch * time),
    "buzz": lambda time, pitch: np.sign(np.sin(2 * np.pi * pitch * time)),
    "sweep": lambda time, pitch: np.sin(2 * np.pi * (pitch + 3000 * time) * time),
}


def _recordings(n: int, seed: int, *names: str) -> tuple[list[Any], list[str], list[str]]:
    """Sounds of about a quarter of a second."""
    rng = np.random.default_rng(seed)
    rows = []
    for name, (kind, make), _ in itertools.product(names, _KINDS.items(), range(n // 3)):
        sections, gain, noise = _MICROPHONES[name]
        time = np.arange(int(rng.integers(1600, 2400))) / _RATE
        sound = make(time, rng.uniform(300, 900))
        sound = sound if sections is None else sosfilt(sections, sound)
        rows.append((gain * sound + noise * rng.normal(size=len(sound)), kind, name))
    sounds, kinds, microphones = zip(*rows, strict=True)
    return list(sounds), list(kinds), list(microphones)


def _spectrum(sounds: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Logarithm of the sorted power in bands, relative to the strongest."""
    rows = []
    for sound in sounds:
        power = np.abs(np.fft.rfft(sound, 2400)) ** 2
        bands = np.sort([band.sum() for band in np.array_split(power, 32)])
        rows.append(np.log(bands / bands[-1] + 1e-6))
    return np.array(rows)


def test_sounds_of_an_unknown_microphone(tmp_path: Path) -> None:
    encoders = {"spectrum": _spectrum}
    sounds, kinds, microphones = _recordings(81, 0, "studio", "telephone", "far away")
    new, truth, _ = _recordings(42, 1, "old")
    features = {name: encode(sounds) for name, encode in encoders.items()}
    predictor = oodzoo.fit(features, kinds, microphones, encoders=encoders, choose="pool")
    assert predictor.score(new, truth) > 0.7
    inside, _, _ = _recordings(42, 2, "studio")
    assert predictor.domain_distance(new).mean() > predictor.domain_distance(inside).mean()
    adapted = predictor.adapted(new)
    assert adapted.provenance.adapted == 42
    assert adapted.score(new, truth) > 0.7
    adapted.save(tmp_path / "model")
    loaded = oodzoo.load(tmp_path / "model", encoders=encoders, batch_size=7)
    np.testing.assert_allclose(loaded.predict_proba(new), adapted.predict_proba(new), atol=1e-6)
    streamed = [
        each.label
        for each in predictor.stream(iter(new), adapt=True)
        if isinstance(each, Prediction)
    ]
    assert streamed == adapted.predict(new).tolist()
    _same_in_onnx(loaded, {name: encode(new) for name, encode in encoders.items()}, tmp_path)


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
