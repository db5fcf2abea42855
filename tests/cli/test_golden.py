"""What commands print, compared as a whole with what they printed before.

Times, sizes that differ between machines, and the folder are replaced. What changes on purpose is
written again with `OODZOO_GOLDEN=write pytest tests/cli/test_golden.py`.
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.conftest import Run
from tests.evaluation.data import task_zoo, zoo
from tests.fixtures import draw_digits
from tests.report.example import example_run
from tests.testbed.data import store as bed_store

from oodzoo.store.documents import sealed

WRITTEN = Path(__file__).parent / "golden"

COMMANDS = {
    "rank": "rank {}/store",
    "rank by another score": "rank {}/store --score zood --plot {}/rank.svg",
    "select": "select {}/store",
    "select, paper": "select {}/store --method paper --top-k 2",
    "evaluate": "evaluate {}/store --top-k 1,3",
    "evaluate, options": "evaluate {}/store --trials 2 --peers knn --with-target --published PACS",
    "fit": "fit {}/store --out {}/model",
    "predict": "predict {}/model {}/new.npz",
    "predict, csv": "predict {}/model {}/new.npz --format csv",
    "test": "test {}/model {}/features.npz --out {}/test.html",
    "testbed": "testbed {}/store --out {}/one.json",
    "testbed compare": "testbed compare {}/one.json {}/two.json",
    "store ls": "store ls {}/store",
    "store rm": "store rm {}/store poor",
    "store prune": "store prune {}/store --cache",
    "store check": "store check {}/store",
}
OTHER_TASKS = ("rank", "select", "evaluate", "fit", "predict", "test")
PHOTOS = {
    "data": "data {}/photos",
    "data, counts": "data {}/photos --quick --counts",
    "data, table": "data {}/table.csv --root {}/photos",
    "data, no such folder": "data {}/fotos",
    "models": "models demo --licence apache-2.0 --max-parameters 30K",
    "extract, dry": "extract {}/photos --zoo demo/cnn_photos --store {}/store --dry-run",
    "extract": "extract {}/photos --zoo demo/cnn_photos --store {}/store --unlabelled {}/new",
    "extract again": "extract {}/photos --zoo demo/cnn_photos --store {}/store",
    "domains": "domains {}/store --no-rank",
    "report": "report {}/job --figures",
    "testbed paper": "testbed paper",
}


def normalised(text: str, folder: Path) -> str:
    """Without the folder, times, and what depends on them."""
    text = text.replace(str(folder), "FOLDER")
    text = re.sub(r"\d+(\.\d+)? s\b", "0 s", text)
    text = re.sub(r"\d+(\.\d+)? (kB|MB)\b", "0 MB", text)
    return re.sub(r"bottleneck: \w+", "bottleneck: …", text)


def compare(name: str, run: Run, folder: Path, commands: dict[str, str]) -> None:
    parts = []
    for title, line in commands.items():
        outcome = run(*line.replace("{}", str(folder)).split())
        streams = (f"{outcome.out}--- stderr, {outcome.code}\n{outcome.err}").rstrip("\n")
        parts.append(f"=== {title}: oodzoo {line}\n{normalised(streams, folder)}\n")
    file, found = WRITTEN / f"{name}.txt", "\n".join(parts)
    if os.environ.get("OODZOO_GOLDEN") == "write":
        file.parent.mkdir(exist_ok=True)
        file.write_text(found, encoding="utf-8")
    assert found == file.read_text(encoding="utf-8")


@pytest.mark.parametrize("task", ["classification", "regression", "multilabel"])
def test_commands_of_a_store(run: Run, tmp_path: Path, task: Any) -> None:
    several = zoo(n_domains=3, n=40) if task == "classification" else task_zoo(task, n_domains=3)
    features, y, domains = several
    if task == "multilabel":
        y = np.array([";".join(np.array(["a", "b"])[row > 0]) for row in y])
    data: dict[str, Any] = {"labels": y, "domains": domains} | features
    np.savez(tmp_path / "features.npz", **data)
    new: dict[str, Any] = {name: array[::17] for name, array in features.items()}
    np.savez(tmp_path / "new.npz", **new)
    commands = {"import": f"import {{}}/features.npz --store {{}}/store --task {task}"}
    if task == "classification":
        (tmp_path / "two").mkdir()
        bed = bed_store(tmp_path / "two").path
        assert run("testbed", bed, "--out", tmp_path / "two.json").code == 0
        commands |= COMMANDS
    else:
        commands |= {name: COMMANDS[name] for name in OTHER_TASKS}
    compare(task, run, tmp_path, commands)


def test_commands_of_images(run: Run, photos: Path, tmp_path: Path) -> None:
    rows = [
        f"{p.relative_to(photos)},{p.parts[-3]},{p.parts[-2]}"
        for p in sorted(photos.rglob("*.png"))
    ]
    (tmp_path / "table.csv").write_text("\n".join(["path,domain,label", *rows]))
    shutil.copy(photos / "day/cat/1.png", photos / "night/cat/copy.png")
    (photos / "day/dog/empty.png").touch()
    (tmp_path / "new").mkdir()
    shutil.copy(photos / "night/dog/2.png", tmp_path / "new/1.png")
    (tmp_path / "job").mkdir()
    record = replace(example_run(4), testbed=None, selection=None)
    (tmp_path / "job" / "run.json").write_bytes(sealed(record.to_dict()))
    compare("images", run, tmp_path, PHOTOS)


def test_a_run(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers of forward passes differ between processors: only the words are compared."""
    monkeypatch.chdir(draw_digits(tmp_path / "digits", 8).parent)
    line = "run digits --zoo demo/cnn_photos,demo/mlp_glyphs_augmented --out job --device cpu"
    outcome = run(*line.split(), "--no-baselines", "--top-k", "1")
    words = re.sub(r"[\d.,]+|[─━]+", "0", f"{outcome.out}--- stderr\n{outcome.err}")
    file = WRITTEN / "run.txt"
    words = re.sub(r" +", " ", words)
    if os.environ.get("OODZOO_GOLDEN") == "write":
        file.write_text(words, encoding="utf-8")
    assert words == file.read_text(encoding="utf-8")
