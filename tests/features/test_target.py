"""Target images: access to their features, and what is refused or warned of."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.features.data import Extract, Zoo, one_of
from tests.fixtures import draw_digits

from oodzoo.errors import InputError
from oodzoo.features.source import ArraySource, StoreSource
from oodzoo.features.target import FEWEST_IMAGES, Target, as_target
from oodzoo.store.feature_store import FeatureStore

MODELS = ("mlp_glyphs_augmented", "separable_shapes")
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


# --- access --------------------------------------------------------------------------------------


def test_a_domain_of_a_store(stored: FeatureStore) -> None:
    target = as_target(StoreSource(stored), "new")
    assert (target.name, target.n) == ("new", NEW)
    for model in MODELS:
        blocks = list(target.blocks(model))
        np.testing.assert_array_equal(np.concatenate(blocks), stored.features(model, "new"))


def test_arrays_of_any_source(stored: FeatureStore) -> None:
    features = {model: stored.features(model, "new") for model in reversed(MODELS)}
    target = as_target(StoreSource(stored), features)
    assert (target.name, target.n) == ("target", NEW)
    for model in MODELS:
        np.testing.assert_array_equal(np.concatenate([*target.blocks(model)]), features[model])
    assert as_target(StoreSource(stored), target) is target


def test_long_arrays_come_in_blocks() -> None:
    given = arrays(10_000, seed=1)
    target = as_target(array_source(), given)
    sizes = [len(block) for block in target.blocks("a")]
    assert sizes == [4096, 4096, 1808] == [len(block) for block in target.blocks("b")]
    np.testing.assert_array_equal(np.concatenate([*target.blocks("b")]), given["b"])


def test_tensors_stay_tensors() -> None:
    torch = pytest.importorskip("torch")
    given = {model: torch.from_numpy(array) for model, array in arrays(seed=1).items()}
    target = as_target(array_source(), given)
    assert all(torch.is_tensor(block) for block in target.blocks("a"))
    assert target.digest("a") == as_target(array_source(), given).digest("a")


def test_a_digest_identifies_the_features(
    stored: FeatureStore, zoo: Zoo, extract: Extract, digits: Path, tmp_path: Path
) -> None:
    target = as_target(StoreSource(stored), "new")
    again = as_target(StoreSource(FeatureStore(stored.path)), "new")
    assert [target.digest(model) for model in MODELS] == [again.digest(model) for model in MODELS]
    copy = shutil.copytree(stored.path, tmp_path / "store")
    fewer = draw_digits(tmp_path / "new", 3, skip=5)
    one_of(fewer, "chalk/1").unlink()
    extract(digits, zoo(), copy, unlabelled=fewer)  # the rest has the same shards
    other = as_target(StoreSource(FeatureStore(copy)), "new")
    digests = {t.digest(model) for t in (target, other) for model in MODELS}
    assert len(digests) == 4

    given = arrays(seed=1)
    first = as_target(array_source(), given).digest("a")
    assert as_target(array_source(), given | {"b": given["b"] + 1}).digest("a") == first
    assert as_target(array_source(), given | {"a": given["a"] + 1}).digest("a") != first
    assert as_target(array_source(), {m: x[::-1] for m, x in given.items()}).digest("a") != first


# --- refused -------------------------------------------------------------------------------------


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


# --- warnings ------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, FEWEST_IMAGES - 1, FEWEST_IMAGES])
def test_few_images(n: int) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert as_target(array_source(), arrays(n, seed=1)).n == n
    words = f"the target 'target' has {n} image{'s' * (n > 1)}, too few to rank models by"
    assert [str(each.message).startswith(words) for each in caught] == [True] * (n < 20)


def seen(caught: list[warnings.WarningMessage]) -> list[str]:
    return [str(each.message) for each in caught if "also in" in str(each.message)]


def targeted(source: Any, target: Any) -> tuple[Target, list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        return as_target(source, target), seen(caught)


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


@pytest.mark.parametrize("b", [arrays(seed=1)["b"], np.roll(arrays()["b"], 1, axis=0)])
def test_rows_that_are_not_equal_for_all_models(b: Any) -> None:
    """Also if the features of each model are those of some training image."""
    assert targeted(array_source(), {"a": arrays()["a"], "b": b})[1] == []


def test_features_that_repeat_show_nothing() -> None:
    """Such as one-hot codes: equal rows are not equal images."""
    codes = {"a": np.eye(3)[np.arange(30) % 3]}
    source = ArraySource(codes, np.arange(30) % 2, np.repeat(["x", "y"], 15))
    assert targeted(source, {"a": codes["a"][:25]})[1] == []
