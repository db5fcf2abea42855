"""Labelling images: the same as by hand, whatever form they come in."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sklearn.base import clone, is_classifier
from sklearn.metrics import get_scorer

import oodzoo
from oodzoo import InputError
from oodzoo.heads.linear import fit_head
from oodzoo.predictor import Unreadable
from oodzoo.predictor.images import image_files
from oodzoo.zoo import ModelSpec, load_model


def _truth(paths: list[Path]) -> list[str]:
    return [path.parent.name for path in paths]


def test_probabilities_are_those_of_the_head_on_the_models_features(
    predictor: oodzoo.Predictor, zoo: list[ModelSpec], unseen: list[Path]
) -> None:
    parts = []
    for name, columns in predictor.columns.by_model.items():
        model = load_model(next(spec for spec in zoo if spec.name == name))
        geometry = model.info.preprocessing.geometry
        pixels = np.stack([geometry.apply(Image.open(p).convert("RGB")) for p in unseen])
        parts.append(model(pixels).features[:, columns])
    features = np.concatenate(parts, axis=1)
    logits = features @ predictor.head.weights.T + predictor.head.bias
    by_hand = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(predictor.predict_proba(unseen), by_hand, atol=1e-6)
    expected = predictor.classes_[by_hand.argmax(axis=1)]
    np.testing.assert_array_equal(predictor.predict(unseen), expected)
    np.testing.assert_allclose(
        predictor.domain_distance(unseen), predictor.gaussian.distances(features), rtol=1e-5
    )


def test_training_images_give_the_features_of_the_store(
    predictor: oodzoo.Predictor, store: oodzoo.FeatureStore, digits: Path
) -> None:
    from oodzoo.features.source import StoreSource

    source = StoreSource(store, predictor.columns.models)
    samples = predictor.columns.samples(source, store.domains)
    paths = [digits / path for domain in store.domains for path in store.paths(domain)]
    expected = fit_head(samples, len(store.classes)).probabilities(samples.features)
    np.testing.assert_allclose(predictor.predict_proba(paths), expected, atol=1e-5)


def test_it_learns_what_digits_are(predictor: oodzoo.Predictor, unseen: list[Path]) -> None:
    assert predictor.score(unseen, _truth(unseen)) > 0.9
    assert predictor.predict(unseen).dtype.kind == "U"


def test_paths_images_and_arrays_are_one(predictor: oodzoo.Predictor, unseen: list[Path]) -> None:
    expected = predictor.predict_proba(unseen[:5])
    images = [Image.open(path) for path in unseen[:5]]
    arrays = [np.asarray(image) for image in images]
    for given in ([str(p) for p in unseen[:5]], images, arrays, iter(unseen[:5])):
        np.testing.assert_array_equal(predictor.predict_proba(given), expected)


def test_batches_and_pieces_change_nothing(
    saved: Path, predictor: oodzoo.Predictor, unseen: list[Path]
) -> None:
    many = unseen * 4  # more than one piece
    expected = predictor.predict_proba(many)
    small = oodzoo.load(saved, device="cpu", batch_size=7)
    np.testing.assert_allclose(small.predict_proba(many), expected, atol=1e-6)
    assert [p.position for p in small.stream(many)] == list(range(len(many)))


def test_images_are_asked_for_as_they_are_needed(predictor: oodzoo.Predictor) -> None:
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


def test_no_images_give_no_labels(predictor: oodzoo.Predictor) -> None:
    assert predictor.predict([]).tolist() == []
    assert predictor.predict_proba([]).shape == (0, 3)


def test_an_unreadable_image_is_reported_and_the_others_predicted(
    predictor: oodzoo.Predictor, unseen: list[Path], tmp_path: Path
) -> None:
    bad = tmp_path / "bad.png"
    bad.write_text("no image")
    found = list(predictor.stream([unseen[0], bad, unseen[1]]))
    assert [type(f) is Unreadable for f in found] == [False, True, False]
    assert found[1] == Unreadable(1, str(bad), "not an image that Pillow can identify")
    assert found[2].position == 2
    with pytest.raises(InputError, match=r"cannot read the image .*bad.png.*use stream"):
        predictor.predict([unseen[0], bad])
    assert [type(f) for f in predictor.stream([bad, bad])] == [Unreadable, Unreadable]


@pytest.mark.parametrize(
    ("images", "message"),
    [
        ("photo.png", "takes a list of images"),
        ([3], "an image must be a path, a Pillow image or an array of bytes, not int '3'"),
        ([np.zeros((4, 4))], r"must be uint8 .* and is float64 \(4, 4\)"),
        ([np.zeros((2, 4, 4, 3), np.uint8)], r"and is uint8 \(2, 4, 4, 3\)"),
    ],
)
def test_what_is_no_image_is_refused(
    predictor: oodzoo.Predictor, images: Any, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        predictor.predict(images)


def test_scikit_learn_takes_it_for_a_classifier(
    predictor: oodzoo.Predictor, unseen: list[Path]
) -> None:
    assert is_classifier(predictor)
    assert clone(predictor) is predictor
    truth = _truth(unseen)
    accuracy = predictor.score(unseen, truth)
    assert get_scorer("accuracy")(predictor, unseen, truth) == accuracy
    right = predictor.predict_proba(unseen)[np.arange(len(truth)), [int(t) for t in truth]]
    loss = get_scorer("neg_log_loss")(predictor, unseen, truth)
    np.testing.assert_allclose(loss, np.log(right).mean())
    assert predictor.classes_.tolist() == ["0", "1", "2"]


def test_labels_of_another_type_are_no_silent_zero(
    predictor: oodzoo.Predictor, unseen: list[Path]
) -> None:
    with pytest.raises(InputError, match=r"none of the labels is a class: the first is 0 \(int\)"):
        predictor.score(unseen, [0] * len(unseen))
    with pytest.raises(InputError, match="2 images and 1 labels"):
        predictor.score(unseen[:2], ["0"])


def test_digits_are_at_home_and_other_images_are_not(
    predictor: oodzoo.Predictor, unseen: list[Path]
) -> None:
    rng = np.random.default_rng(0)
    noise = [rng.integers(0, 256, (32, 32, 3), dtype=np.uint8) for _ in range(10)]
    assert np.mean(predictor.domain_distance(unseen) > 1) <= 0.05
    assert all(found.out_of_domain for found in predictor.stream(noise))  # type: ignore[union-attr]


# --- fitting -----------------------------------------------------------------------------------


def test_only_models_with_a_kept_feature_are_loaded(predictor: oodzoo.Predictor) -> None:
    assert {n.name for n in predictor.models} == set(predictor.columns.by_model)
    assert all(len(columns) for columns in predictor.columns.by_model.values())
    for model in predictor.models:
        assert model.load("cpu").info.n_logits is None  # not even asked for


def test_named_models_and_all_features(store: oodzoo.FeatureStore) -> None:
    fitted = oodzoo.fit(store, models=["mlp_glyphs_augmented"], select=False)
    assert [n.name for n in fitted.models] == ["mlp_glyphs_augmented"]
    assert len(fitted.columns) == fitted.origin.n_features == 48
    assert fitted.origin.scores == {}
    assert fitted.origin.threshold is None


def test_a_class_with_one_sample(
    digits: Path, zoo: list[ModelSpec], extract: Any, tmp_path: Path
) -> None:
    data = shutil.copytree(digits, tmp_path / "data")
    lonely = data / "paper" / "nine" / "one.png"
    lonely.parent.mkdir()
    Image.new("RGB", (32, 32), (0, 99, 0)).save(lonely)
    fitted = oodzoo.fit(extract(data, zoo[:2], tmp_path / "store"), top_k=1)
    assert "nine" in fitted.classes_
    probabilities = fitted.predict_proba([lonely])
    assert np.isfinite(probabilities).all()
    np.testing.assert_allclose(probabilities.sum(), 1)


def test_one_usable_domain_is_refused(
    drawn: Any, zoo: list[ModelSpec], extract: Any, tmp_path: Path
) -> None:
    data = drawn(tmp_path / "data", 4, domains=("paper",))
    for label in ("0", "1"):
        (data / "damaged" / label).mkdir(parents=True)
        (data / "damaged" / label / "1.png").write_text("no image")
    store = extract(data, zoo[:1], tmp_path / "store")
    for models in (None, [zoo[0].name]):
        with pytest.raises(InputError, match=r"images of one domain, 'paper'; a predictor needs"):
            oodzoo.fit(store, models=models)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"top_k": 0}, "top_k must be 1 or more, and is 0"),
        ({"models": []}, "name each of them once"),
        ({"models": ["mlp_glyphs_augmented"] * 2}, "name each of them once"),
        ({"models": ["nobody"]}, "the store has no model 'nobody'"),
    ],
)
def test_wrong_options(store: oodzoo.FeatureStore, options: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        oodzoo.fit(store, **options)


def test_models_that_have_moved_are_asked_for(
    store: oodzoo.FeatureStore, zoo: list[ModelSpec], tmp_path: Path
) -> None:
    moved = oodzoo.FeatureStore(shutil.copytree(store.path, tmp_path / "store"))
    local = moved.path / "local.json"
    local.write_text(local.read_text().replace(str(zoo[0].folder), str(tmp_path / "gone")))
    name = zoo[0].name
    with pytest.raises(InputError, match=r"no longer at .*gone.*say where its zoo is now \(--zoo"):
        oodzoo.fit(moved, models=[name])
    assert oodzoo.fit(moved, models=[name], zoo=zoo).models[0].spec.folder == zoo[0].folder
    local.unlink()
    with pytest.raises(InputError, match=r"cannot tell where it lies; name the zoo"):
        oodzoo.fit(moved, models=[name])
    with pytest.raises(InputError, match=r"and the zoo given cannot tell where it lies"):
        oodzoo.fit(moved, models=[name], zoo=zoo[1:])


def test_another_file_under_the_name_is_noticed(
    store: oodzoo.FeatureStore, zoo: list[ModelSpec]
) -> None:
    one, two, _ = zoo
    other = ModelSpec(**{**vars(two), "name": one.name})
    with pytest.raises(InputError, match="is not the file that the store's features come from"):
        oodzoo.fit(store, models=[one.name], zoo=[other])


def test_features_without_a_model_make_no_predictor(
    store: oodzoo.FeatureStore, tmp_path: Path
) -> None:
    from oodzoo.features.importing import import_features

    rng = np.random.default_rng(0)
    archive = tmp_path / "features.npz"
    np.savez(
        archive,
        labels=np.tile(["a", "b"], 20),
        domains=np.repeat(["one", "two"], 20),
        numbers=rng.normal(size=(40, 5)),
    )
    imported = import_features([archive], tmp_path / "store")
    with pytest.raises(InputError, match=r"'numbers' of the store is imported as features"):
        oodzoo.fit(imported)


# --- folders of images ---------------------------------------------------------------------------


def test_folders_are_walked_in_order(tmp_path: Path, write_image: Callable[[Path], Path]) -> None:
    for name in ("b/2.png", "b/1.PNG", "a/z/1.jpg", "c.png", ".hidden/1.png", "b/.2.png"):
        write_image(tmp_path / name)
    (tmp_path / "b" / "notes.txt").write_text("no image")
    found = [p.relative_to(tmp_path).as_posix() for p in image_files([tmp_path])]
    assert found == ["c.png", "a/z/1.jpg", "b/1.PNG", "b/2.png"]
    assert list(image_files([tmp_path / "b" / "notes.txt"])) == [tmp_path / "b" / "notes.txt"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"empty' holds no image"):
        image_files([tmp_path / "empty"])
    with pytest.raises(InputError, match=r"there is no .*nowhere'"):
        image_files([tmp_path, tmp_path / "nowhere"])
