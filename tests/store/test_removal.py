"""Removing models."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.features.data import Extract, Tree, Zoo
from tests.store.contents import contents, size
from tests.store.data import Begin, compute, record, require_right

import oodzoo
from oodzoo.errors import InputError
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.removal import remove_models
from oodzoo.store.writer import writing


def test_a_finished_model(store: Path, tree: Tree) -> None:
    before, kept = size(store), contents(store)
    freed = remove_models(store, ["separable_shapes"])
    assert FeatureStore(store).models == ("mlp_glyphs_augmented",)
    assert not (store / "models/separable_shapes").exists()
    assert freed + size(store) <= before
    assert freed > 45 * 96 * 4
    left = contents(store)
    assert left.pop("models") == ("mlp_glyphs_augmented",)
    assert left.items() <= kept.items()
    assert not any(key.startswith("separable") for key in left)


def test_freed_bytes_are_those_of_the_folder(small: Path) -> None:
    folders = size(small / "models/m1") + size(small / "models/m2")
    assert remove_models(small, ["m2", "m1"]) == folders


def test_extraction_again_equals_fresh(
    store: Path, data: Path, zoo: Zoo, extract: Extract, tree: Tree
) -> None:
    whole = tree(store)
    remove_models(store, ["separable_shapes"])
    assert extract(data, zoo(), store).shards == 3
    assert tree(store) == whole


def test_the_last_model(store: Path, data: Path, zoo: Zoo, extract: Extract, tree: Tree) -> None:
    whole = tree(store)
    remove_models(store, list(FeatureStore(store).models))
    with pytest.raises(InputError, match="no finished model"):
        oodzoo.rank(store)
    assert extract(data, zoo(), store).shards == 6
    assert tree(store) == whole


def test_a_model_under_the_same_name(small: Path) -> None:
    """After a removal, another model may have the name."""
    with writing(small) as writer, pytest.raises(InputError, match="oodzoo store rm"):
        writer.add_model("m1", record("other"))
    remove_models(small, ["m1"])
    with writing(small) as writer:
        writer.add_model("m1", record("other"))
        assert compute(writer, "m1") == 2
        writer.finish()
    assert require_right(small).model("m1").fingerprint == "other"


def test_an_unfinished_model(store: Path, begin: Begin, tree: Tree) -> None:
    before = tree(store)
    begin(store)
    assert (store / "models/begun/model.json").is_file()
    remove_models(store, ["begun"])
    assert tree(store) == before


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["seperable_shapes"], r"no model 'seperable_shapes'; did you mean separable_shapes\?"),
        (["separable_shapes", "nothing"], r"no model 'nothing'; it has mlp_\w+, separable_shapes"),
        ([".."], r"no model '\.\.'"),
        (["../models/separable_shapes"], r"no model '\.\./models"),
    ],
)
def test_unknown_names(store: Path, tree: Tree, names: list[str], message: str) -> None:
    before = tree(store)
    with pytest.raises(InputError, match=message):
        remove_models(store, names)
    assert tree(store) == before


def test_a_name_given_twice(small: Path) -> None:
    remove_models(small, ["m1", "m1"])
    assert FeatureStore(small).models == ("m2",)


EXTRACTION = """
import sys
from pathlib import Path
from tests.store.data import compute, record
from oodzoo.store.writer import writing

with writing(Path(sys.argv[1])) as writer:
    writer.add_model(sys.argv[2], record())
    print("ready", flush=True)
    sys.stdin.readline()
    compute(writer, sys.argv[2])
    writer.finish()
"""


@pytest.mark.parametrize("name", ["m1", "begun"])
def test_a_model_that_is_being_extracted(
    small: Path, process: Callable[..., subprocess.Popen[str]], tree: Tree, name: str
) -> None:
    child = process(EXTRACTION, small, name)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    before = tree(small)
    for names in ([name], ["m2", name]):
        with pytest.raises(InputError, match=rf"{name}' is being written by another process"):
            remove_models(small, names)
        assert tree(small) == before
    remove_models(small, ["m2"])  # another one may go meanwhile
    _, err = child.communicate("\n")
    assert (child.returncode, err) == (0, "")
    assert require_right(small).models == tuple(sorted({"m1", name}))
    remove_models(small, [name])
    assert not (small / "models" / name).exists()


def test_a_link_is_not_followed(small: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (small / "models/m1").rename(outside)
    (small / "models/m1").symlink_to(outside)
    with pytest.raises(InputError, match="is a symbolic link"):
        remove_models(small, ["m1"])
    assert (outside / "model.json").is_file()
