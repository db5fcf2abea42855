"""What is fine-tuned, on what, and the tuned network as a model and in a pool.

Tuning takes seconds, so that its data and its pool are tested without it.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.predictor.data import DOMAINS, Y, changed, rows
from tests.striped import SIZE, require_tuning, striped_predictor, tiny_network, write_stripes

import oodzoo
from oodzoo.core.errors import InputError
from oodzoo.extraction.features import StoreSource
from oodzoo.linear.heads.linear import LinearHead
from oodzoo.predictor.tuning import (
    extract_models,
    fit_tuned_pool,
    model_to_tune,
    open_to_tune,
    readable_to_tune,
    tuned_model,
)
from oodzoo.tuning.tuner import Tuned
from oodzoo.zoo.preprocessing import Geometry, Preprocessing, TextPreprocessing

SETTINGS: dict[str, Any] = {
    "device": "cpu",
    "learning_rates": 3e-2,
    "steps": 20,
    "batch_size": 4,
    "augment": False,
}


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The training images. Tests must not change them."""
    return write_stripes(tmp_path_factory.mktemp("striped") / "data")


@pytest.fixture(scope="module")
def predictor(images: Path) -> oodzoo.Predictor:
    return striped_predictor(images.parent, images, {"one": 1, "two": 2}, "ensemble")


@pytest.fixture
def data(images: Path, tmp_path: Path) -> Path:
    """A copy of the training images that a test may change."""
    return shutil.copytree(images, tmp_path / "data")


def to_tune(data: Any, predictor: oodzoo.Predictor) -> oodzoo.ImageDomains:
    return readable_to_tune(open_to_tune(data, predictor), predictor)


def test_data_that_does_not_fit(predictor: oodzoo.Predictor, data: Path, tmp_path: Path) -> None:
    files = sorted(data.rglob("*.png"))
    domains = [file.parts[-3] for file in files]
    ages = np.linspace(0, 1, len(files))
    numbers = oodzoo.ImageDomains(files, labels=ages, domains=domains, task="regression")
    table = tmp_path / "texts.csv"
    lines = [f"some {n},{d},{c}" for n, d in enumerate("ab") for c in ("across", "down")]
    table.write_text("text,domain,label\n" + "\n".join(lines) + "\n")
    texts = oodzoo.ImageDomains(table, columns={"text": "text"})
    three = changed(
        predictor,
        classes=["across", "down", "dots"],
        head=replace(
            predictor.head, weights=np.zeros((3, len(predictor.columns))), bias=np.zeros(3)
        ),
    )
    damaged = changed(predictor, provenance=replace(predictor.provenance, images="abc"))
    alone = oodzoo.ImageDomains(data, domains="one")
    for given, before, message in (
        (data, three, "has no class 'dots', which the predictor has; give"),
        (data, damaged, "the images in the provenance are damaged"),
        (alone, predictor, "of one domain, 'all'; fine-tuning needs two or more"),
        (numbers, predictor, "has labels for 'regression', but the predictor is for"),
        (texts, predictor, "has texts; the predictor takes images"),
    ):
        with pytest.raises(InputError, match=message):
            to_tune(given, before)
    shutil.copytree(data / "red" / "down", data / "red" / "dots")
    with pytest.raises(InputError, match="has the class 'dots', which the predictor has not"):
        to_tune(data, predictor)
    shutil.copytree(data / "red" / "down", data / "blue" / "checks")
    with pytest.raises(InputError, match="has the class 'checks' and 1 more, which"):
        to_tune(data, predictor)
    for domain in ("blue", "green"):
        shutil.rmtree(data / domain)
    with pytest.raises(InputError, match="has one domain, 'red'; at least two are needed"):
        to_tune(data, predictor)


def test_the_model_with_the_largest_weight_or_the_highest_score(
    predictor: oodzoo.Predictor,
) -> None:
    names = [model.name for model in predictor.models]
    for first, other in (names, names[::-1]):
        scored = replace(predictor.provenance, scores={first: 2.0, other: 1.0}, pool={})
        pooled = replace(scored, pool={first: 0.2, other: 0.8})
        tied = replace(scored, pool={first: 0.5, other: 0.5})
        for provenance, best in ((scored, first), (pooled, other), (tied, first)):
            assert model_to_tune(changed(predictor, provenance=provenance), None).name == best
        assert model_to_tune(predictor, first).name == first
    texts: Any = TextPreprocessing()
    models = [replace(model, preprocessing=texts) for model in predictor.loadable_models]
    features = oodzoo.fit({"mine": rows()}, Y, DOMAINS, choose="single")
    for before, name, message in (
        (predictor, "tow", "has no model 'tow'; did you mean two"),
        (predictor, "xyz", "has no model 'xyz'; it has "),
        (features, None, r"features only; fine-tuning needs .* got mine"),
        (changed(predictor, models=models), None, "texts; only models of images can be fine-tuned"),
    ):
        with pytest.raises(InputError, match=message):
            model_to_tune(before, name)


@pytest.fixture
def source(predictor: oodzoo.Predictor, images: Path, tmp_path: Path) -> StoreSource:
    """Features of the two models, and of another network that stands for a tuned one."""
    first, second = predictor.loadable_models
    second = replace(second, preprocessing=second.preprocessing.decoding("full"))
    opened = oodzoo.ImageDomains(images)
    spec = tiny_network(tmp_path / "zoo", "one-tuned", seed=9)
    models = [first, second, replace(first, spec=spec)]
    store = extract_models(opened, models, tmp_path / "store", "cpu", [])
    assert [store[each.name].decode for each in (first, second)] == ["reduced", "full"]
    missing = replace(second, spec=replace(second.spec, folder=tmp_path))
    with pytest.raises(InputError, match=f"model '{second.name}': .*onnx"):
        extract_models(opened, [first, missing], tmp_path / "other", "cpu", [])
    return StoreSource(store, ["one", "two", "one-tuned"])


def tuned_with(images: oodzoo.ImageDomains, confidence: float) -> Tuned:
    """A tuned model whose head is as confident, in the right class or the wrong one."""
    left_out: dict[str, Any] = {}
    for sample in images:
        logits = confidence * np.eye(2)[images.classes.index(sample.label)] + 3  # not normalised
        left_out.setdefault(sample.domain, []).append(logits)
    outputs = {domain: np.array(each) for domain, each in left_out.items()}
    head = LinearHead(np.array([[1.0, 2], [-1, 0]]), np.array([0.5, 0]), 1.0)
    trainable: Any = None
    return Tuned({}, {}, outputs, 1.0, trainable, head)


def test_a_good_one_is_in_the_pool_and_a_bad_one_is_not(source: StoreSource, images: Path) -> None:
    opened = oodzoo.ImageDomains(images)
    # the store may have the images of a domain in another order
    opened = opened.only(np.random.default_rng(0).permutation(len(opened)).tolist())
    tuned = tuned_with(opened, 6)
    final = fit_tuned_pool(source, opened, "one-tuned", tuned)
    weight = final.weights["one-tuned"]
    assert weight > 0
    assert sum(final.weights.values()) == pytest.approx(1)
    at = 2 * list(final.columns.by_model).index("one-tuned")
    np.testing.assert_allclose(final.head.weights[:, at : at + 2], weight * tuned.head.weights)
    final = fit_tuned_pool(source, opened, "one-tuned", tuned_with(opened, -6))
    assert "one-tuned" not in final.weights
    assert "one-tuned" not in final.columns.models


def test_a_pool_with_a_tuned_model(
    predictor: oodzoo.Predictor, images: Path, tmp_path: Path
) -> None:
    require_tuning()
    after = oodzoo.tune(predictor, images, model="two", **SETTINGS)
    done = after.provenance.tuning
    assert done is not None
    assert (done["model"], done["tuned"]) == ("two", "two-tuned")
    assert done["weight"] == after.provenance.pool["two-tuned"] > 0
    assert after.provenance.choice == "pool"
    assert set(after.provenance.pool) == {model.name for model in after.models}
    files = sorted(images.rglob("*.png"))
    assert after.score(files, [file.parent.name for file in files]) > 0.9
    loaded = oodzoo.load(after.save(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.predict_proba(files), after.predict_proba(files))
    with pytest.raises(InputError, match="'two-tuned' of the predictor was fine-tuned on the do"):
        oodzoo.tune(loaded, images, model="one", **SETTINGS)  # its heads have seen all domains
    with pytest.raises(InputError, match="choose_by='training-domain' leaves no domain out, but"):
        oodzoo.tune(predictor, images, **SETTINGS | {"choose_by": "training-domain"})


def test_images_that_are_not_those_of_the_training(
    predictor: oodzoo.Predictor, images: Path, data: Path, tmp_path: Path
) -> None:
    lines = [
        f"{file},{file.parts[-3]},{file.parts[-2]},{at}"
        for at, file in enumerate(sorted(images.rglob("*.png")))
    ]
    (tmp_path / "table.csv").write_text("path,domain,label,group\n" + "\n".join(lines) + "\n")
    opened = oodzoo.ImageDomains(images)
    for same in (images, tmp_path / "table.csv"):  # no warning
        assert len(to_tune(same, predictor)) == 48
    assert to_tune(opened, predictor) is opened
    down = data / "red" / "down"
    (down / "zero.png").write_bytes(b"no image")
    with pytest.warns(UserWarning, match=r"left out 1 image .* 'red/down/zero.png': ") as found:
        assert len(to_tune(data, predictor)) == 48
    assert len(found) == 1  # the others are those of the training
    (down / "zero.png").unlink()
    (down / "0.png").unlink()
    words = "is not the data that the predictor was trained on: 1 image missing; its models"
    with pytest.warns(UserWarning, match=words):
        assert len(to_tune(data, predictor)) == 47
    (down / "1.png").write_bytes((down / "2.png").read_bytes())
    for name in ("3.png", "4.png"):
        shutil.move(down / name, data / "red" / "across" / f"down-{name}")
    Image.new("RGB", (16, 16)).save(down / "0.png")
    words = "on: 2 images missing, 1 image added, 2 images labelled differently; its models"
    with pytest.warns(UserWarning, match=words):
        to_tune(data, predictor)
    for domain in ("blue", "green"):
        for file in (data / domain).rglob("*.png"):
            file.write_bytes(b"")
    with (
        pytest.warns(UserWarning, match="left out 32 images"),
        pytest.raises(InputError, match="of one domain, 'red'"),
    ):
        to_tune(data, predictor)


def test_a_tuned_network_is_resized_and_cropped_as_before(
    predictor: oodzoo.Predictor, tmp_path: Path
) -> None:
    content = tiny_network(tmp_path / "trained", seed=7).file.read_bytes()
    cover = Geometry((20, 20), (SIZE, SIZE), "cover", "bicubic")
    std = Preprocessing(cover, (0.5, 0.5, 0.5), (0.25, 0.25, 0.25))
    original = replace(predictor.loadable_models[0], preprocessing=std)

    def write(file: Path) -> None:
        """As fine-tuning does: the same graph with other weights."""
        file.write_bytes(content)

    model = tuned_model(original, "new", write, ["a", "b"])
    assert (model.spec.pretraining, model.spec.licence) == ("random, fine-tuned on a, b", "MIT")
    assert model.fingerprint != original.fingerprint
    info = model.load("cpu").info  # after verifying all
    assert (info.preprocessing, info.fingerprint) == (std, model.fingerprint)
