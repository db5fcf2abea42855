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
from tests.features.data import (
    Extract,
    MakeModel,
    Run,
    Stamps,
    Tree,
    Zoo,
    literal,
    one_of,
    spoil,
)
from tests.fixtures import draw_digits
from tests.ranking.data import saved, simulate_models

import oodzoo
from oodzoo.core.errors import InputError
from oodzoo.data.dataset import ImageDomains
from oodzoo.data.unlabelled import UnlabelledImages
from oodzoo.extraction.adding import add_unlabelled
from oodzoo.extraction.config import Extraction
from oodzoo.extraction.extract import open_unlabelled
from oodzoo.extraction.source import ArraySource, StoreSource, as_source
from oodzoo.extraction.target import FEWEST_IMAGES, Target, as_target
from oodzoo.store.contents import read_model
from oodzoo.store.feature_store import FeatureStore
from oodzoo.zoo import ModelSpec

# --- unlabelled --------------------------------------------------------------------------------


MODELS = ("mlp_glyphs_augmented", "separable_shapes")
NAMES = (*MODELS, "cnn_photos")
COMMANDS: dict[str, tuple[str, ...]] = {
    "rank": (),
    "evaluate": ("--top-k", "2"),
    "select": ("--top-k", "2"),
    "fit": ("--top-k", "2", "--out"),
    "testbed": (),
}


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eighteen other digits, in folders of any form. Tests must not change them."""
    return draw_digits(tmp_path_factory.mktemp("unlabelled") / "target", 2, skip=5)


@pytest.fixture(scope="module")
def plain(
    digits: Path, zoo: Zoo, extract: Extract, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A store of three models without unlabelled images. Tests must not change it."""
    store = tmp_path_factory.mktemp("plain") / "store"
    extract(digits, zoo(*NAMES), store)
    return store


def results(run: Run, tree: Tree, store: Path, out: Path) -> dict[str, Any]:
    """The documents of all commands, the files of the predictor, and the keys of the cache."""
    found: dict[str, Any] = {}
    for command, options in COMMANDS.items():
        if command == "fit":
            options = (*options, str(out))
        outcome = run(command, store, *options, "--json", "--quiet")
        assert outcome.code == 0, outcome.err
        found[command] = _timeless(outcome.document)
    del found["fit"]["model"]  # the folder
    found["predictor"] = tree(out)
    found["cache"] = {}
    for file in (store / "cache").rglob("*.npz"):
        with np.load(file) as content:
            found["cache"][file.relative_to(store).as_posix()] = str(content["key"])
    return found


def _timeless(document: Any) -> Any:
    if isinstance(document, dict):
        return {key: _timeless(value) for key, value in document.items() if key != "seconds"}
    return [_timeless(part) for part in document] if isinstance(document, list) else document


@pytest.mark.parametrize(("name", "overlapping"), [("zebra", False), ("aardvark", True)])
def test_they_influence_no_result(
    run: Run,
    digits: Path,
    plain: Path,
    target: Path,
    zoo: Zoo,
    extract: Extract,
    tree: Tree,
    tmp_path: Path,
    name: str,
    overlapping: bool,
) -> None:
    """Also if their name comes first, and if they have images of the domains with labels."""
    plain = shutil.copytree(plain, tmp_path / "plain/store")
    folder, store = shutil.copytree(target, tmp_path / "folder"), tmp_path / "with/store"
    if overlapping:
        for domain in ("chalk", "paper"):
            shutil.copy(one_of(digits, f"{domain}/1"), folder / f"{domain}.png")
    done = extract(digits, zoo(*NAMES), store, unlabelled=f"{name}={folder}")
    assert done.decoded == 45 + 18
    for model in NAMES:  # the measured times are those of the other store
        local = f"models/{model}/local.json"
        shutil.copy(plain / local, store / local)
    found, expected = FeatureStore(store), FeatureStore(plain)
    assert found.unlabelled == (name,)
    for attribute in ("models", "domains", "classes", "n_images", "fingerprint", "skipped"):
        assert getattr(found, attribute) == getattr(expected, attribute), attribute
    assert found.data_fingerprint == expected.data_fingerprint == ImageDomains(digits).fingerprint
    assert as_source(found).domains == as_source(expected).domains
    with_them = results(run, tree, store, tmp_path / "with/model")
    without = results(run, tree, plain, tmp_path / "plain/model")
    assert set(with_them["cache"]) == set(without["cache"]) != set()
    assert with_them == without


def test_features_are_those_of_a_literal_loop(
    digits: Path, target: Path, zoo: Zoo, tmp_path: Path
) -> None:
    store = oodzoo.extract(digits, zoo(), tmp_path / "s", unlabelled=target)
    assert store.unlabelled == ("target",)
    paths = store.paths("target")
    assert paths == sorted(p.relative_to(target).as_posix() for p in target.rglob("*.png"))
    assert store.groups("target") == [None] * 18
    (_, spec) = zoo()
    features, logits = store.features(spec.name, "target"), store.logits(spec.name, "target")
    for row in (0, 9, 17):
        expected = literal(spec, target / paths[row])
        np.testing.assert_allclose(features[row], expected[0], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(logits[row], expected[1], rtol=1e-5, atol=1e-5)
    with pytest.raises(InputError, match=r"the domain 'target' of the store .* has no labels"):
        store.labels("target")


def test_they_are_kept_when_extracting_without_them(
    digits: Path, target: Path, zoo: Zoo, extract: Extract, tmp_path: Path, tree: Tree
) -> None:
    store = tmp_path / "s"
    extract(digits, zoo(), store, unlabelled=target)
    before = tree(store)
    assert extract(digits, zoo(), store).decoded == 0
    assert tree(store) == before
    assert FeatureStore(store).unlabelled == ("target",)


def test_unreadable_ones(
    digits: Path, target: Path, zoo: Zoo, extract: Extract, tmp_path: Path
) -> None:
    folder = shutil.copytree(target, tmp_path / "target")
    bad, gone, *_ = sorted(folder.rglob("*.png"))
    spoil(bad)
    (listed,) = open_unlabelled(folder)
    gone.unlink()
    done = extract(digits, zoo(), tmp_path / "s", unlabelled=listed)
    assert done.unreadable == {gone.relative_to(folder).as_posix(): "No such file or directory"}
    store = FeatureStore(tmp_path / "s")
    assert list(store.skipped) == [bad.relative_to(folder).as_posix()]
    assert (store.n_images, len(store.paths("target"))) == (45, 16)


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


# --- adding ------------------------------------------------------------------------------------


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
    for name in MODELS:
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

    monkeypatch.setattr("oodzoo.extraction.members.load_network", load)
    monkeypatch.setattr("oodzoo.extraction.adding.writing", load)
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
    assert all(opened.has_features(name, "new") for name in ("cnn_photos", *MODELS))
    assert len(opened.paths("new")) == 18


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
    for name in MODELS:
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


def test_images_with_labels_are_refused(
    store: Path, digits: Path, tree: Tree, tmp_path: Path
) -> None:
    before = tree(store)
    with pytest.raises(InputError, match=r"all images of the target 'copy' .*\(15 in 'chalk'\)"):
        add(store, shutil.copytree(digits / "chalk", tmp_path / "copy"))
    assert tree(store) == before


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


# --- target ------------------------------------------------------------------------------------


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


def test_a_domain_of_a_store_and_arrays(stored: FeatureStore) -> None:
    features = {model: stored.features(model, "new") for model in reversed(MODELS)}
    for images, name in (("new", "new"), (features, "target")):
        target = as_target(StoreSource(stored), images)
        assert (target.name, target.n) == (name, NEW)
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


def test_imported_features_are_refused(new: Path, tmp_path: Path) -> None:
    store = saved(tmp_path, *simulate_models({"a": 0.5, "b": 1.5})).path
    with pytest.raises(InputError, match=r"features of model 'a' .* imported, .*`oodzoo store rm`"):
        add(store, new)
    assert FeatureStore(store).unlabelled == ()


def test_functions_are_refused(
    digits: Path, new: Path, extract: Extract, make_model: MakeModel, tmp_path: Path
) -> None:
    extract(digits, [make_model()], tmp_path / "s")
    with pytest.raises(InputError, match=r"model 'function' .* is a Python function, so it cannot"):
        add(tmp_path / "s", new)


def test_a_store_without_unlabelled_domains(made: Path) -> None:
    command = "`oodzoo extract DATA --zoo ZOO --store .* --unlabelled NAME=FOLDER`"
    with pytest.raises(InputError, match=f"no unlabelled domain 'new'; it has none; .*{command}"):
        as_target(StoreSource(FeatureStore(made)), "new")


def test_no_image(stored: FeatureStore) -> None:
    empty = stored.table.domain("new").part([])
    with pytest.raises(InputError, match="the target 'new' has no readable image"):
        as_target(StoreSource(stored.with_table(stored.table.replacing(empty))), "new")


def test_other_types(stored: FeatureStore) -> None:
    with pytest.raises(InputError, match="only a feature store has domains without labels"):
        as_target(array_source(), "new")
    with pytest.raises(InputError, match=r"or a dict \{model: array \(n, d\)\}, got ndarray"):
        as_target(StoreSource(stored), np.ones((3, 2)))  # type: ignore[arg-type]
