"""Images without labels: extracted, added later, and used as a target."""

from __future__ import annotations

import dataclasses
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.features.data import Extract, MakeModel, Stamps, Tree, Zoo, one_of
from tests.fixtures import draw_digits
from tests.ranking.data import saved, simulate_models

import oodzoo
from oodzoo.core.errors import InputError
from oodzoo.data.sources.folder import UnlabelledImages
from oodzoo.extraction.extract import add_unlabelled
from oodzoo.extraction.features import ArraySource, StoreSource
from oodzoo.extraction.outcome import Extraction
from oodzoo.extraction.target import FEWEST_IMAGES, Target, as_target
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.table import read_model
from oodzoo.zoo import ModelSpec

MODELS = ("mlp_glyphs_augmented", "separable_shapes")
NAMES = (*MODELS, "cnn_photos")


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eighteen other digits, in folders of any form. Tests must not change them."""
    return draw_digits(tmp_path_factory.mktemp("unlabelled") / "target", 2, skip=5)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (["chalk={}"], "images without labels are named 'chalk', as a domain with labels"),
        (["{}", "target={}"], "two folders of unlabelled images are named 'target'"),
        (["={}"], "have an empty name"),
        (["x=nowhere"], "no such folder: 'nowhere'"),
    ],
)
def test_bad_names_are_refused(
    digits: Path, target: Path, zoo: Zoo, tmp_path: Path, given: list[str], complaint: str
) -> None:
    folders = [text.format(target) for text in given]
    with pytest.raises(InputError, match=complaint):
        oodzoo.extract(digits, zoo(), tmp_path / "s", unlabelled=folders)
    assert not (tmp_path / "s").exists()


def add(store: Path, folder: Path, zoo: tuple[ModelSpec, ...] = ()) -> Extraction:
    _, done = add_unlabelled(FeatureStore(store), UnlabelledImages(folder), zoo=zoo, device="cpu")
    return done


@pytest.fixture
def moved(digits: Path, zoo: Zoo, extract: Extract, tmp_path: Path) -> tuple[Path, list[ModelSpec]]:
    """A store whose models are gone, and where they are now."""
    old, now = tmp_path / "old", tmp_path / "now"
    old.mkdir()
    specs = []
    for spec in zoo():
        shutil.copy(spec.file, old)
        specs.append(dataclasses.replace(spec, folder=old))
    extract(digits, specs, tmp_path / "store")
    old.rename(now)
    return tmp_path / "store", [dataclasses.replace(spec, folder=now) for spec in specs]


def test_features_are_those_of_an_extraction(
    store: Path,
    made: Path,
    digits: Path,
    target: Path,
    zoo: Zoo,
    extract: Extract,
    tree: Tree,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second time no model is loaded."""
    extract(digits, zoo(), tmp_path / "other", unlabelled=target)
    opened, done = add_unlabelled(FeatureStore(store), UnlabelledImages(target), device="cpu")
    expected = FeatureStore(tmp_path / "other")
    assert (done.decoded, done.shards, done.failed, done.outdated) == (18, 2, {}, [])
    assert opened.unlabelled == ("target",)
    assert opened.paths("target") == expected.paths("target")
    assert opened.fingerprint == FeatureStore(made).fingerprint
    for name in MODELS:
        assert read_model(store, name) == read_model(made, name)
        for output in expected.model(name).widths:
            found, wanted = (getattr(s, output)(name, "target") for s in (opened, expected))
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    before = tree(store)

    def load(*_: object, **__: object) -> None:
        raise AssertionError("a model is loaded")

    monkeypatch.setattr("oodzoo.extraction.models.load_network", load)
    monkeypatch.setattr("oodzoo.extraction.extract.writing", load)
    done = add(store, shutil.copytree(target, tmp_path / "target"))  # elsewhere
    assert (done.decoded, done.shards) == (0, 0)
    assert tree(store) == before


def test_only_missing_features_are_computed(
    digits: Path, target: Path, zoo: Zoo, extract: Extract, stamps: Stamps, tmp_path: Path
) -> None:
    """Each model keeps its type of numbers."""
    store, (half, single) = tmp_path / "s", zoo()
    extract(digits, [half], store, dtype="float16")
    extract(digits, [single], store)
    few = shutil.copytree(target, tmp_path / "target", ignore=shutil.ignore_patterns("chalk"))
    assert add(store, few).decoded == 2 * 12
    extract(digits, zoo("cnn_photos"), store)
    before, times = FeatureStore(store), stamps(store)
    assert add(store, target).shards == 3 + 1  # the rest for all models, all for one
    assert stamps(store).items() > times.items()
    opened = FeatureStore(store)
    assert len(opened.paths("target")) == 18
    for name in NAMES:
        assert opened.model(name).identity == before.model(name).identity
        dtype = np.float16 if name == half.name else np.float32
        assert opened.features(name, "target").dtype == dtype


def test_models_that_have_moved(
    moved: tuple[Path, list[ModelSpec]], target: Path, tree: Tree
) -> None:
    store, (first, second) = moved
    before = tree(store)
    with pytest.raises(InputError, match=r"model 'mlp.*' is no longer at .*\(--zoo, or zoo=\)"):
        add(store, target)
    assert tree(store) == before
    right = shutil.copy(first.file, store.parent / "right.onnx")
    shutil.copy(second.file, first.file)  # another model is refused
    with pytest.raises(InputError, match=f"model '{first.name}' has no features of the .*'target'"):
        add(store, target, (first, second))
    assert FeatureStore(store).unlabelled == ()
    shutil.copy(right, first.file)
    assert add(store, target, (first, second)).shards == 1  # that of the other model was kept
    assert FeatureStore(store).unlabelled == ("target",)
    few = UnlabelledImages(target, "other")
    add_unlabelled(FeatureStore(store), few)  # the new location is known now


def test_what_cannot_be_added(
    store: Path,
    digits: Path,
    target: Path,
    extract: Extract,
    make_model: MakeModel,
    tree: Tree,
    tmp_path: Path,
) -> None:
    (tmp_path / "simulated").mkdir()
    imported = saved(tmp_path / "simulated", *simulate_models({"a": 0.5, "b": 1.5})).path
    function = tmp_path / "function"
    extract(digits, [make_model()], function)
    copy = shutil.copytree(digits / "chalk", tmp_path / "copy")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad/bad.png").write_bytes(b"no image")
    for place, folder, words in (
        (store, copy, r"all images of the target 'copy' .*\(15 in 'chalk'\)"),
        (store, tmp_path / "bad", r"none of the images in .*bad' can be read; first error"),
        (imported, target, r"features of model 'a' .* imported, .*`oodzoo store rm`"),
        (function, target, r"model 'function' .* is a Python function, so it cannot"),
    ):
        before = tree(place)
        with pytest.raises(InputError, match=words):
            add(place, folder)
        assert tree(place) == before
    with pytest.raises(InputError, match=r"none of the images in .*bad' can be read; first error"):
        extract(digits, [make_model()], function, unlabelled=tmp_path / "bad")


NEW = 27
"""Images of the unlabelled domain, which the labelled domains do not have."""


@pytest.fixture(scope="module")
def stored(
    digits: Path, zoo: Zoo, extract: Extract, tmp_path_factory: pytest.TempPathFactory
) -> FeatureStore:
    """A store with an unlabelled domain. Tests must not change it."""
    folder = tmp_path_factory.mktemp("target")
    images = draw_digits(folder / "new", 3, skip=5)
    extract(digits, zoo(), folder / "store", unlabelled=images)
    return FeatureStore(folder / "store")


def arrays(n: int = 30, *, seed: int = 0, d: int = 4) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {"a": rng.normal(size=(n, d)), "b": rng.normal(size=(n, 2)).astype(np.float32)}


def array_source(n: int = 30) -> ArraySource:
    return ArraySource(arrays(n), np.arange(n) % 2, np.repeat(["x", "y"], n // 2))


def test_a_domain_of_a_store_and_arrays(stored: FeatureStore) -> None:
    features = {model: stored.features(model, "new") for model in reversed(MODELS)}
    for images, name in (("new", "new"), (features, "target")):
        target = as_target(StoreSource(stored), images)
        assert (target.name, target.n) == (name, NEW)
        for model in MODELS:
            np.testing.assert_array_equal(np.concatenate([*target.blocks(model)]), features[model])
        assert as_target(StoreSource(stored), target) is target


def test_a_digest_identifies_the_features(stored: FeatureStore) -> None:
    target, again = (as_target(StoreSource(stored), "new") for _ in range(2))
    assert [target.digest(model) for model in MODELS] == [again.digest(model) for model in MODELS]
    given = arrays(seed=1)
    first = as_target(array_source(), given).digest("a")
    assert as_target(array_source(), given | {"b": given["b"] + 1}).digest("a") == first
    assert as_target(array_source(), given | {"a": given["a"] + 1}).digest("a") != first
    assert as_target(array_source(), {m: x[::-1] for m, x in given.items()}).digest("a") != first


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nev", r"has no unlabelled domain 'nev'; it has 'new'; did you mean new\?"),
        ("xyz", r"has no unlabelled domain 'xyz'; it has 'new'$"),
        ("chalk", r"'chalk' is a labelled domain .*: add one with `oodzoo extract DATA .*"),
    ],
)
def test_unknown_and_labelled_domains(stored: FeatureStore, name: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        as_target(StoreSource(stored), name)
    with pytest.raises(InputError, match="only a feature store has domains without labels"):
        as_target(array_source(), name)
    with pytest.raises(InputError, match=r"or a dict \{model: array \(n, d\)\}, got ndarray"):
        as_target(StoreSource(stored), np.ones((3, 2)))  # type: ignore[arg-type]


def test_models_without_features_are_named(
    stored: FeatureStore, zoo: Zoo, extract: Extract, digits: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(stored.path, tmp_path / "store")
    extract(digits, zoo("cnn_photos"), copy)
    store = FeatureStore(copy)
    words = "no features of the target 'new' with 'cnn_photos'; .* --unlabelled new=FOLDER`"
    with pytest.raises(InputError, match=words):
        as_target(StoreSource(store), "new")
    assert as_target(StoreSource(store, MODELS), "new").n == NEW  # the others have them


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"b": None}, "the target has no features of 'b'"),
        ({"c": np.ones((30, 2))}, "the target has features of 'c'; the models are 'a', 'b'"),
        ({"b": np.ones((29, 2))}, "30 rows of 'a' and 29 of 'b'; the rows must be the same images"),
        ({"b": np.ones((30, 3))}, "the target has 3 features of 'b', the training domains 2"),
        ({"b": np.ones(30)}, r"the target features of 'b' must be \(n, d\), got \(30,\)"),
        ({"b": [[1.0], [1.0, 2.0]]}, "the target features of 'b' are not an array"),
        ({"b": np.full((30, 2), "x")}, "the target features of 'b' must be numbers, got <U1"),
        ({"b": np.full((30, 2), np.nan)}, "'b' contain NaN or infinity, first in row 0"),
        ({"a": np.ones((0, 4)), "b": np.ones((0, 2))}, "the target has no image"),
    ],
)
def test_arrays_that_do_not_match(change: dict[str, Any], words: str) -> None:
    given = arrays(seed=1) | change
    with pytest.raises(InputError, match=words):
        as_target(array_source(), {m: array for m, array in given.items() if array is not None})


@pytest.mark.parametrize("n", [1, FEWEST_IMAGES - 1, FEWEST_IMAGES])
def test_few_images(n: int) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert as_target(array_source(), arrays(n, seed=1)).n == n
    words = f"the target 'target' has {n} image{'s' * (n > 1)}, too few to rank models by"
    assert [str(each.message).startswith(words) for each in caught] == [True] * (n < 20)


def targeted(source: Any, target: Any) -> tuple[Target, list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = as_target(source, target)
    return found, [str(each.message) for each in caught if "also in" in str(each.message)]


def test_images_of_the_training_domains(
    stored: FeatureStore, zoo: Zoo, extract: Extract, digits: Path, tmp_path: Path
) -> None:
    """By the content of the files; only domains that are used for training count."""
    copy = shutil.copytree(stored.path, tmp_path / "store")
    mixed = draw_digits(tmp_path / "mixed", 2, skip=5)
    for number, cell in enumerate(("chalk/1", "chalk/2", "paper/0")):
        shutil.copy(one_of(digits, cell), mixed / f"{number}.png")
    extract(digits, zoo(), copy, unlabelled=[mixed, f"old={digits / 'chalk'}"])
    source = StoreSource(FeatureStore(copy))
    (message,) = targeted(source, "mixed")[1]
    assert message.startswith("3 of the 21 images of the target 'mixed' are also in the training")
    assert "(2 in 'chalk', 1 in 'paper')" in message
    assert "1 of the 21 images" in targeted(source.only(["marker", "paper"]), "mixed")[1][0]
    with pytest.raises(InputError, match=r"all images of the target 'old' .* \(15 in 'chalk'\)"):
        targeted(source, "old")
    assert targeted(source.only(["marker", "paper"]), "old")[1] == []


@given(st.sets(st.integers(0, 29), max_size=29))
def test_rows_of_the_training_domains(repeated: set[int]) -> None:
    """By the features of all models; of float64 and float32 alike."""
    training, given = arrays(), arrays(seed=1)
    rows = sorted(repeated)
    for model in given:
        given[model] = given[model].astype(np.float64 if model == "b" else np.float32)
        given[model][rows] = training[model][rows]
    found = targeted(array_source(), given)[1]
    assert len(found) == bool(rows)
    parts = {"x": sum(row < 15 for row in rows), "y": sum(row >= 15 for row in rows)}
    for domain, n in parts.items():
        assert not n or f"{n} in {domain!r}" in found[0]
