"""The commands and files of tutorials and how-to pages are run as they are printed."""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.cluster.data import nothing_but_timings_differs, write_zoo
from tests.docs.pages import DOCS, File, run_here, run_page, steps
from tests.fixtures import MODELS

import oodzoo
from oodzoo.extraction.importing import import_features

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")

# `python` of a machine on which only numpy, Pillow and ONNX Runtime are installed.
BARE = """#!/bin/sh
exec {python} -c '
import runpy, sys
sys.modules.update(dict.fromkeys(["oodzoo", "torch", "onnx"]))
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
' "$@"
"""
# Slurm in short: it notes the scripts in their order, which are run afterwards.
SBATCH = """#!/bin/sh
for script; do :; done
echo "$script" >> submitted
echo 1234
"""


def program(folder: Path, name: str, text: str) -> Path:
    """Write a program into a folder."""
    folder.mkdir()
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)
    return folder


@pytest.fixture
def installing(tmp_path: Path) -> dict[str, str]:
    """Let pip build and install packages into a folder, with nothing from a network."""
    pytest.importorskip("hatchling", reason="builds the packages of the pages")
    site = tmp_path / "site"
    pip = dict.fromkeys(["PIP_NO_INDEX", "PIP_NO_DEPS", "PIP_DISABLE_PIP_VERSION_CHECK"], "1")
    # pip reads an option that begins with "no" the other way round
    return {**pip, "PIP_NO_BUILD_ISOLATION": "0", "PIP_TARGET": str(site), "PYTHONPATH": str(site)}


def test_add_a_score(tmp_path: Path, installing: dict[str, str]) -> None:
    rng = np.random.default_rng(0)
    y, domains = np.tile([0, 1, 2], 20), np.repeat(["a", "b", "c"], 20)
    features = {f"m{s}": np.eye(3)[y] + s * rng.normal(size=(60, 3)) for s in (1, 2, 3)}
    np.savez(tmp_path / "f.npz", labels=y.astype(str), domains=domains, **features)
    import_features([tmp_path / "f.npz"], tmp_path / "features")
    run_page(tmp_path, "howto/add-a-score.md", environment=installing, here=False)


def test_add_a_source(tmp_path: Path, digits: Path, installing: dict[str, str]) -> None:
    (tmp_path / "photos").symlink_to(digits)
    run_page(tmp_path, "howto/add-a-source.md", environment=installing, here=False)


def test_run_on_slurm(tmp_path: Path, digits: Path) -> None:
    job = tmp_path / "job"
    zoo = write_zoo(job, list(MODELS[:2]))
    (job / "photos").symlink_to(digits)
    run_page(job, "howto/slurm.md", programs=program(tmp_path / "bin", "sbatch", SBATCH))
    for name in (job / "submitted").read_text().split():
        script = (job / name).read_text()
        tasks = re.findall("--array=1-(.*)", script) or ["1"]
        for task in range(1, int(tasks[0]) + 1):
            line = script.splitlines()[-1].replace("$SLURM_ARRAY_TASK_ID", str(task))
            run_here(job, shlex.split(line))
    assert oodzoo.load(job / "model").classes_.tolist() == ["0", "1", "2"]

    # the features of four tasks are those of one process
    alone = oodzoo.extract(digits, zoo, tmp_path / "alone", device="cpu")
    shutil.rmtree(job / "features" / "cache")
    nothing_but_timings_differs(alone.path, job / "features")


def test_deploy_with_onnxruntime(
    tmp_path: Path, predictor: oodzoo.Predictor, unseen: list[Path]
) -> None:
    pytest.importorskip("onnx")
    predictor.save(tmp_path / "job" / "model")
    (photo,) = [path for path in unseen if path.parent.name == "2"][:1]
    shutil.copy(photo, tmp_path / "photo.png")
    bare = program(tmp_path / "bin", "python", BARE.format(python=sys.executable))
    run_page(tmp_path, "howto/deploy-onnx.md", programs=bare)


def test_a_cluster(tmp_path: Path) -> None:
    sections = ("The data", "Several processes", "Array jobs", "And then")
    run_page(tmp_path, "tutorials/cluster.md", *sections)  # tests/engine/test_cluster.py: "Ray"


def test_quickstart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (script,) = steps("index.md")
    assert isinstance(script, File)
    with contextlib.chdir(tmp_path):
        exec(script.text, {})
    page = (DOCS / "index.md").read_text(encoding="utf-8")
    printed = page.partition("```text\n")[2].partition("```")[0]
    expected, lines = printed.splitlines(), capsys.readouterr().out.splitlines()
    models = [[line.split()[1] for line in each[:-2]] for each in (lines, expected)]
    assert models[0] == models[1]
    assert lines[-1] == expected[-1]
    assert lines[-2].endswith(" % on unseen domains")
