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

Run = Callable[..., Any]


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


def _sound(kind: str, rng: np.random.Generator) -> NDArray[np.float64]:
    """A quarter of a second, more or less."""
    time = np.arange(int(rng.integers(1600, 2400))) / _RATE
    pitch = rng.uniform(300, 900)
    if kind == "tone":
        return np.sin(2 * np.pi * pitch * time)
    if kind == "buzz":
        return np.sign(np.sin(2 * np.pi * pitch * time))
    if kind == "sweep":
        return np.sin(2 * np.pi * (pitch + 3000 * time) * time)
    return rng.normal(size=len(time))


def _recordings(n: int, seed: int, *names: str) -> tuple[list[Any], list[str], list[str]]:
    rng = np.random.default_rng(seed)
    sounds, kinds, microphones = [], [], []
    for name in names:
        sections, gain, noise = _MICROPHONES[name]
        for number in range(n):
            kind = ("tone", "buzz", "sweep", "hiss")[number % 4]
            sound = _sound(kind, rng)
            sound = sound if sections is None else sosfilt(sections, sound)
            sounds.append(gain * sound + noise * rng.normal(size=len(sound)))
            kinds.append(kind)
            microphones.append(name)
    return sounds, kinds, microphones


def _spectrum(sounds: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Logarithm of the sorted power in bands, relative to the strongest."""
    rows = []
    for sound in sounds:
        power = np.abs(np.fft.rfft(sound, 2400)) ** 2
        bands = np.sort([band.sum() for band in np.array_split(power, 32)])
        rows.append(np.log(bands / bands[-1] + 1e-6))
    return np.array(rows)


def _moments(sounds: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Statistics of the waveform that do not depend on its volume."""
    rows = []
    for sound in sounds:
        scaled = (sound - sound.mean()) / sound.std()
        halves = [np.mean(np.diff(np.sign(half)) != 0) for half in np.array_split(scaled, 2)]
        rows.append([np.mean(scaled**4), np.abs(scaled).mean(), np.abs(scaled).max(), *halves])
    return np.array(rows)


def test_sounds_of_an_unknown_microphone(tmp_path: Path) -> None:
    encoders = {"spectrum": _spectrum, "moments": _moments}
    sounds, kinds, microphones = _recordings(80, 0, "studio", "telephone", "far away")
    new, truth, _ = _recordings(40, 1, "old")
    features = {name: encode(sounds) for name, encode in encoders.items()}
    predictor = oodzoo.fit(features, kinds, microphones, encoders=encoders, choose="pool")
    assert predictor.score(new, truth) > 0.7
    inside, _, _ = _recordings(40, 2, "studio")
    assert predictor.domain_distance(new).mean() > predictor.domain_distance(inside).mean()
    adapted = predictor.adapted(new)
    assert adapted.provenance.adapted == 40
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


def test_a_table_on_the_command_line(
    run: Run, wine: tuple[Any, list[str], list[str]], tmp_path: Path
) -> None:
    table, growers, domains = wine
    features = {name: encode(table) for name, encode in _encoders(table).items()}
    np.savez(tmp_path / "train.npz", labels=growers, domains=domains, **features)
    np.savez(tmp_path / "new.npz", **{name: X[::7] for name, X in features.items()})
    store, model = tmp_path / "store", tmp_path / "model"
    assert run("import", tmp_path / "train.npz", "--store", store).code == 0
    fitted = run("fit", store, "--out", model, "--json").document
    assert fitted["features_only"] is True
    done = run("predict", model, tmp_path / "new.npz", "--json").document["predictions"]
    assert [row["path"] for row in done[:2]] == ["row-0000000", "row-0000001"]
    assert np.mean([row["label"] == g for row, g in zip(done, growers[::7], strict=True)]) > 0.95
    expected = oodzoo.fit(features, growers, domains).predict_proba(
        {name: X[::7] for name, X in features.items()}
    )
    found = [list(row["probabilities"].values()) for row in done]
    np.testing.assert_allclose(found, expected, atol=1e-4)
