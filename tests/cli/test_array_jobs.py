"""`oodzoo extract` as an array job: eight processes, and the recipe of the documentation."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conftest import Run
from tests.features import conftest as fixtures
from tests.features.data import Extract, Tree, Zoo

from oodzoo.store.feature_store import FeatureStore
from oodzoo.zoo import ModelSpec, load_zoo

# The digits, models and stores that the tests of features use.
digits, zoo, zoo_file = fixtures.digits, fixtures.zoo, fixtures.zoo_file
extract, tree = fixtures.extract, fixtures.tree

PAGE = Path(__file__).parents[2] / "docs/scale.md"
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


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_the_recipe_of_the_documentation(
    digits: Path, file: Path, expected: Path, tree: Tree, tmp_path: Path
) -> None:
    section = PAGE.read_text(encoding="utf-8").split("\n## Array jobs\n")[1].split("\n## ")[0]
    (script,) = re.findall(r"```bash\n(#!/bin/bash\n.*?)```", section, re.DOTALL)
    (last,) = re.findall(r"#SBATCH --array=1-(\d+)\n", script)
    assert last == "8"
    (tmp_path / "extract.sh").write_text(script)
    (tmp_path / "photos").symlink_to(digits)
    assert file == tmp_path / "zoo.toml"
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    jobs = [
        subprocess.Popen(
            ["bash", "extract.sh"],
            cwd=tmp_path,
            env=os.environ | {"PATH": path, "SLURM_ARRAY_TASK_ID": str(number)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(1, int(last) + 1)
    ]
    printed = [job.communicate(timeout=300)[1] for job in jobs]
    assert [text for job, text in zip(jobs, printed, strict=True) if job.returncode] == []
    assert FeatureStore(tmp_path / "features").models == NAMES
    assert tree(tmp_path / "features") == tree(expected)


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
