"""Images without labels: they are extracted, and influence nothing else.

Behaviour of the extraction and of all commands that read a store.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.features.data import (
    Extract,
    Run,
    Stamps,
    Tree,
    Zoo,
    literal,
    one_of,
    require_same_rows,
    spoil,
)
from tests.fixtures import draw_digits

import oodzoo
from oodzoo.data.dataset import ImageDomains
from oodzoo.errors import InputError
from oodzoo.features.extract import open_unlabelled
from oodzoo.features.source import as_source
from oodzoo.store.feature_store import FeatureStore

NAMES = ("mlp_glyphs_augmented", "separable_shapes", "cnn_photos")
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


def test_a_model_without_features_of_them_is_complete(
    digits: Path, target: Path, zoo: Zoo, extract: Extract, tmp_path: Path
) -> None:
    path = tmp_path / "s"
    extract(digits, zoo(), path, unlabelled=target)
    done = extract(digits, zoo("cnn_photos"), path)
    assert (done.decoded, done.outdated) == (45, [])
    store = FeatureStore(path)
    assert store.models == ("cnn_photos", "mlp_glyphs_augmented", "separable_shapes")
    assert not store.has_features("cnn_photos", "target")
    assert store.has_features("separable_shapes", "target")
    with pytest.raises(InputError, match=r"no features of '.*' \('target'\) with .*'cnn_photos'"):
        store.features("cnn_photos", "target")
    assert extract(digits, zoo("cnn_photos"), path, unlabelled=target).decoded == 18
    assert FeatureStore(path).features("cnn_photos", "target").shape == (18, 64)


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


def test_a_domain_that_gets_labels_later_keeps_its_features(
    made: Path, digits: Path, zoo: Zoo, extract: Extract, tmp_path: Path, stamps: Stamps
) -> None:
    few = shutil.copytree(digits, tmp_path / "few", ignore=shutil.ignore_patterns("paper"))
    store = tmp_path / "s"
    extract(few, zoo(), store, unlabelled=digits / "paper")
    assert (FeatureStore(store).n_images, FeatureStore(store).unlabelled) == (30, ("paper",))
    times = stamps(store)
    assert extract(digits, zoo(), store).decoded == 0
    assert stamps(store) == times
    assert FeatureStore(store).unlabelled == ()
    require_same_rows(store, made)
