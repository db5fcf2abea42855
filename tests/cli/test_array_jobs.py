"""`oodzoo extract` as an array job; tests/docs/test_pages.py runs the scripts of the page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conftest import Run
from tests.features import conftest as fixtures
from tests.features.data import Extract, Tree, Zoo

from oodzoo.zoo import ModelSpec, load_zoo

# The digits, models and stores that the tests of features use.
digits, zoo, zoo_file = fixtures.digits, fixtures.zoo, fixtures.zoo_file
extract, tree = fixtures.extract, fixtures.tree

NAMES = (
    "cnn_photos",
    "mlp_glyphs_augmented",
    "separable_glyphs_colour",
    "separable_random",
    "separable_shapes",
)


@pytest.fixture
def file(zoo: Zoo, zoo_file: Callable[[list[ModelSpec]], Path]) -> Path:
    """A zoo file, `zoo.toml`, of the models."""
    return zoo_file(zoo(*NAMES))


@pytest.fixture
def expected(digits: Path, file: Path, extract: Extract, tmp_path: Path) -> Path:
    """The store of one process."""
    extract(digits, list(load_zoo(file)), tmp_path / "expected", device="cpu")
    return tmp_path / "expected"


def test_parts_one_after_another_in_another_order(
    run: Run, digits: Path, file: Path, expected: Path, tree: Tree, tmp_path: Path
) -> None:
    store = tmp_path / "s"
    written = []
    for number in (5, 3, 8, 1, 7, 2, 6, 4):
        arguments = ("extract", digits, "--zoo", file, "--store", store, "--device", "cpu")
        outcome = run(*arguments, "--shard", f"{number}/8", "--json")
        assert outcome.code == 0
        done = outcome.document
        assert f"Shard {number}/8 is done: {done['shards_written']} file" in outcome.err
        written.append(done["shards_written"])
    assert done["models"] == list(NAMES)
    assert sum(written) == 3 * len(NAMES)
    assert max(written) - min(written) <= 1
    assert tree(store) == tree(expected)


def test_a_part_alone_finishes_no_model(run: Run, digits: Path, file: Path, tmp_path: Path) -> None:
    arguments = ("extract", digits, "--zoo", file, "--store", tmp_path / "s", "--device", "cpu")
    outcome = run(*arguments, "--shard", "2/8")
    assert outcome.code == 0
    assert outcome.out == f"no finished model yet in {tmp_path / 's'}; other shards are missing\n"
    assert "Shard 2/8 is done: 2 files of features written." in outcome.err
    document = run(*arguments, "--shard", "2/8", "--json").document
    assert (document["models"], document["images"], document["shards_written"]) == ([], 0, 0)
    # what is missing, without parts
    assert run(*arguments, "--json").document["models"] == list(NAMES)


def test_two_devices_are_two_processes(
    run: Run, digits: Path, file: Path, expected: Path, tree: Tree, tmp_path: Path
) -> None:
    arguments = ("extract", digits, "--zoo", file, "--store", tmp_path / "s")
    outcome = run(*arguments, "--device", "cpu,cpu")
    assert outcome.code == 0
    assert "tasks on 2 workers (processes)" in outcome.err
    assert tree(tmp_path / "s") == tree(expected)
