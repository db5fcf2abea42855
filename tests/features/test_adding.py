"""Adding unlabelled images to a store with its own models: what is computed, and bad input."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.features.data import Extract, Stamps, Tree, Zoo, spoil
from tests.fixtures import draw_digits
from tests.ranking.data import saved, simulate_models

from oodzoo.data.unlabelled import UnlabelledImages
from oodzoo.errors import InputError
from oodzoo.features.adding import add_unlabelled
from oodzoo.features.config import Extraction
from oodzoo.store.contents import read_model
from oodzoo.store.feature_store import FeatureStore
from oodzoo.zoo import ModelSpec

NAMES = ("mlp_glyphs_augmented", "separable_shapes")


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eighteen digits that the store does not have. Tests must not change them."""
    return draw_digits(tmp_path_factory.mktemp("unlabelled") / "new", 2, skip=5)


def add(store: Path, folder: Path, zoo: tuple[ModelSpec, ...] = ()) -> Extraction:
    _, done = add_unlabelled(FeatureStore(store), UnlabelledImages(folder), zoo=zoo, device="cpu")
    return done


@pytest.fixture
def moved(digits: Path, zoo: Zoo, extract: Extract, tmp_path: Path) -> tuple[Path, list[ModelSpec]]:
    """A store whose models are gone, and where they are now."""
    old, now = tmp_path / "old", tmp_path / "now"
    specs = []
    for spec in zoo():
        old.mkdir(exist_ok=True)
        shutil.copy(spec.file, old)
        specs.append(dataclasses.replace(spec, folder=old))
    extract(digits, specs, tmp_path / "store")
    old.rename(now)
    return tmp_path / "store", [dataclasses.replace(spec, folder=now) for spec in specs]


# --- what is computed ----------------------------------------------------------------------------


def test_features_are_those_of_an_extraction(
    store: Path, made: Path, digits: Path, new: Path, zoo: Zoo, extract: Extract, tmp_path: Path
) -> None:
    extract(digits, zoo(), tmp_path / "other", unlabelled=new)
    opened, done = add_unlabelled(FeatureStore(store), UnlabelledImages(new), device="cpu")
    expected = FeatureStore(tmp_path / "other")
    assert (done.decoded, done.failed, done.outdated) == (18, {}, [])
    assert opened.unlabelled == ("new",)
    assert opened.paths("new") == expected.paths("new")
    assert opened.fingerprint == FeatureStore(made).fingerprint
    for name in NAMES:
        assert read_model(store, name) == read_model(made, name)
        for output in expected.model(name).widths:
            found, wanted = (getattr(s, output)(name, "new") for s in (opened, expected))
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_the_second_time_no_model_is_loaded(
    store: Path, new: Path, tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert add(store, new).shards == 2
    before = tree(store)

    def load(*_: object, **__: object) -> None:
        raise AssertionError("a model is loaded")

    monkeypatch.setattr("oodzoo.features.members.load_network", load)
    monkeypatch.setattr("oodzoo.features.adding.writing", load)
    done = add(store, shutil.copytree(new, tmp_path / "new"))  # elsewhere
    assert (done.decoded, done.shards) == (0, 0)
    assert tree(store) == before


def test_only_missing_features_are_computed(
    store: Path, digits: Path, new: Path, zoo: Zoo, extract: Extract, stamps: Stamps, tmp_path: Path
) -> None:
    few = shutil.copytree(new, tmp_path / "new", ignore=shutil.ignore_patterns("chalk"))
    assert add(store, few).decoded == 12
    extract(digits, zoo("cnn_photos"), store)
    times = stamps(store)
    done = add(store, new)
    assert done.decoded == 6 + 12  # a third of the images for all models, the rest for one
    assert done.shards == 3 + 1
    assert stamps(store).items() > times.items()
    opened = FeatureStore(store)
    assert all(opened.has_features(name, "new") for name in ("cnn_photos", *NAMES))
    assert len(opened.paths("new")) == 18


def test_fewer_images_replace_those_of_the_same_name(
    store: Path, new: Path, tmp_path: Path
) -> None:
    add(store, new)
    few = shutil.copytree(new, tmp_path / "new", ignore=shutil.ignore_patterns("chalk"))
    assert add(store, few).decoded == 0
    assert len(FeatureStore(store).paths("new")) == 12


def test_each_model_keeps_its_dtype(
    digits: Path, new: Path, zoo: Zoo, extract: Extract, tmp_path: Path
) -> None:
    half, single = zoo()
    extract(digits, [half], tmp_path / "s", dtype="float16")
    extract(digits, [single], tmp_path / "s")
    before = FeatureStore(tmp_path / "s")
    assert add(tmp_path / "s", new).decoded == 2 * 18
    after = FeatureStore(tmp_path / "s")
    assert after.features(half.name, "new").dtype == np.float16
    assert after.features(single.name, "new").dtype == np.float32
    for name in NAMES:
        assert after.model(name).identity == before.model(name).identity


def test_models_that_have_moved(moved: tuple[Path, list[ModelSpec]], new: Path, tree: Tree) -> None:
    store, specs = moved
    before = tree(store)
    with pytest.raises(InputError, match=r"model 'mlp.*' is no longer at .*\(--zoo, or zoo=\)"):
        add(store, new)
    assert tree(store) == before
    assert add(store, new, tuple(specs)).decoded == 18
    few = UnlabelledImages(new, "other")
    add_unlabelled(FeatureStore(store), few)  # the new location is known now


# --- bad input -----------------------------------------------------------------------------------


def test_another_model_is_refused(moved: tuple[Path, list[ModelSpec]], new: Path) -> None:
    store, (first, second) = moved
    right = shutil.copy(first.file, store.parent / "right.onnx")
    shutil.copy(second.file, first.file)
    with pytest.raises(InputError, match=f"model '{first.name}' has no features of the .* 'new': "):
        add(store, new, (first, second))
    assert FeatureStore(store).unlabelled == ()
    shutil.copy(right, first.file)
    assert add(store, new, (first, second)).shards == 1  # that of the other model was kept
    assert FeatureStore(store).unlabelled == ("new",)


def test_imported_features_are_refused(new: Path, tmp_path: Path) -> None:
    store = saved(tmp_path, *simulate_models({"a": 0.5, "b": 1.5})).path
    with pytest.raises(InputError, match=r"features of model 'a' .* imported, .*`oodzoo store rm`"):
        add(store, new)
    assert FeatureStore(store).unlabelled == ()


def test_images_with_labels_are_refused(
    store: Path, digits: Path, tree: Tree, tmp_path: Path
) -> None:
    before = tree(store)
    with pytest.raises(InputError, match=r"all images of the target 'copy' .*\(15 in 'chalk'\)"):
        add(store, shutil.copytree(digits / "chalk", tmp_path / "copy"))
    assert tree(store) == before


def test_unreadable_images(store: Path, new: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(new, tmp_path / "new")
    bad, gone = sorted((new / "chalk/1").glob("*.png"))[0], folder / "gone.png"
    spoil(folder / bad.relative_to(new))
    gone.symlink_to("nowhere.png")
    done = add(store, folder)
    assert done.unreadable == {"gone.png": "No such file or directory"}
    opened = FeatureStore(store)
    assert list(opened.skipped) == [bad.relative_to(new).as_posix()]
    assert len(opened.images("new")) == 17


def test_no_readable_image(
    store: Path, digits: Path, zoo: Zoo, extract: Extract, tree: Tree, tmp_path: Path
) -> None:
    (tmp_path / "new").mkdir()
    before = tree(store)
    for name in ("gone.png", "bad.png"):
        (tmp_path / "new" / name).symlink_to("nowhere.png")
        with pytest.raises(InputError, match=r"none of the images in .*new' can be read; first er"):
            add(store, tmp_path / "new")
        (tmp_path / "nowhere.png").write_bytes(b"no image")
    with pytest.raises(InputError, match=r"none of the images in .*new' can be read; first error"):
        extract(digits, zoo(), store, unlabelled=tmp_path / "new")
    assert tree(store) == before


def test_an_unreadable_image_among_those_with_labels(
    store: Path, digits: Path, tree: Tree, tmp_path: Path
) -> None:
    before = tree(store)
    copy = shutil.copytree(digits / "chalk", tmp_path / "copy")
    (copy / "bad.png").write_bytes(b"no image")
    with pytest.raises(InputError, match=r"all images of the target 'copy' .*\(15 in 'chalk'\)"):
        add(store, copy)
    assert tree(store) == before
