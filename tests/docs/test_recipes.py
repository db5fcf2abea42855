"""The recipes of CONTRIBUTING.md, followed to the letter in a copy of the package."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.pages import ROOT

import oodzoo


def written(title: str, root: Path) -> list[str]:
    """Copy the package, write the file of a recipe into it; return the blocks that follow."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = re.split(r"\n##", text.partition(f"\n### {title}\n")[2])[0]
    blocks = re.findall(r"^```(?:python|text)\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    name = re.search(r"one file,\s+`(src/oodzoo/[\w/]+\.py)`", section)
    assert name is not None, title
    hidden = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src", root / "src", ignore=hidden)
    assert not (root / name[1]).exists()
    (root / name[1]).write_text(blocks[0], encoding="utf-8")
    return blocks[1:]


def run(root: Path, *words: str) -> str:
    """Run Python with the copy of the package, and return what it prints."""
    ran = subprocess.run(
        [sys.executable, *words],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root / "src")},
        capture_output=True,
        encoding="utf-8",
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, f"{words}\n{ran.stderr}"
    return ran.stdout


def test_a_source_of_images(tmp_path: Path, digits: Path) -> None:
    [line] = written("To add a source of images", tmp_path)
    registry = tmp_path / "src/oodzoo/data/sources/__init__.py"
    text = registry.read_text(encoding="utf-8")
    before, start, after = text.partition("\nSOURCES = [\n")
    assert start
    registry.write_text(before + start + line + after, encoding="utf-8")

    folder = oodzoo.ImageDomains(digits)
    rows = [{"path": s.path, "domain": s.domain, "label": s.label} for s in folder]
    table = tmp_path / "photos.jsonl"
    table.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    where = ["--root", str(digits)]
    shown = json.loads(run(tmp_path, "-m", "oodzoo", "data", "photos.jsonl", *where, "--json"))
    assert shown["counts"] == folder.counts()
    script = (
        "import oodzoo, sys\n"
        "data = oodzoo.ImageDomains('photos.jsonl', root=sys.argv[1])\n"
        "store = oodzoo.extract(data, 'demo', 'features/')\n"
        "print(store.data_fingerprint, oodzoo.__file__)\n"
    )
    fingerprint, place = run(tmp_path, "-c", script, str(digits)).split()
    assert fingerprint == folder.fingerprint
    assert Path(place).is_relative_to(tmp_path)


def test_a_source_of_models(tmp_path: Path, digits: Path) -> None:
    pytest.importorskip("torch")
    [line] = written("To add a source of models", tmp_path)
    registry = tmp_path / "src/oodzoo/zoo/sources/__init__.py"
    text = registry.read_text(encoding="utf-8")
    before, start, after = text.partition("\nSOURCES = {\n")
    assert start
    registry.write_text(before + start + line + after, encoding="utf-8")

    listed = json.loads(run(tmp_path, "-m", "oodzoo", "models", "random_cnn/*", "--json"))
    assert [each["source"] for each in listed["models"]] == [
        f"random_cnn/{n}" for n in (16, 32, 64)
    ]
    script = (
        "import oodzoo, sys\n"
        "zoo = oodzoo.load_zoo('random_cnn/16, random_cnn/32@all')\n"
        "store = oodzoo.extract(oodzoo.ImageDomains(sys.argv[1]), zoo, 'features/', device='cpu')\n"
        "for row in oodzoo.rank(store).rows:\n"
        "    print(row.model, store[row.model].feature_dim, oodzoo.__file__)\n"
    )
    found = [shown.split() for shown in run(tmp_path, "-c", script, str(digits)).splitlines()]
    assert {name: int(dim) for name, dim, _ in found} == {
        "random_cnn-16": 32,
        "random_cnn-32": 64,
        "random_cnn-32@0": 32,
        "random_cnn-32@2": 64,
    }
    assert all(Path(place).is_relative_to(tmp_path) for *_, place in found)


def test_a_combination(tmp_path: Path) -> None:
    imported, line = written("To add a combination", tmp_path)
    registry = tmp_path / "src/oodzoo/combining/ways.py"
    text = registry.read_text(encoding="utf-8")
    start, last = "\n_COMBINATIONS = (\n", "\nfrom oodzoo.combining.one_head"
    assert start in text
    assert last in text
    text = text.replace(last, f"\n{imported.strip()}{last}").replace(start, start + line)
    registry.write_text(text, encoding="utf-8")

    script = (
        "import json, numpy as np, oodzoo\n"
        "rng = np.random.default_rng(0)\n"
        "y, domains = np.tile([0, 1, 2], 60), np.repeat(['a', 'b', 'c', 'd'], 45)\n"
        "one = (y == 0)[:, None] + 0.4 * rng.normal(size=(180, 4))\n"
        "other = (y == 1)[:, None] + 0.4 * rng.normal(size=(180, 5))\n"
        "noise = rng.normal(size=(180, 3))\n"
        "zoo = {'one': one, 'other': other, 'same': one + 0.1, 'noise': noise}\n"
        "result = oodzoo.evaluate(zoo, y, domains, max_models=3)\n"
        "again = type(result).from_dict(json.loads(json.dumps(result.to_dict())))\n"
        "assert again == result\n"
        "assert 'Duo' in str(result.findings())\n"
        "fitted = oodzoo.fit(zoo, y, domains, choose='duo')\n"
        "print(json.dumps({\n"
        "    'models': result['duo'].cells['a'].models,\n"
        "    'gain': result['duo'].average - result.single.average,\n"
        "    'estimate': result.recommended.estimates['duo'],\n"
        "    'fitted': [fitted.provenance.choice, *(m.name for m in fitted.models)],\n"
        "    'right': float((fitted.predict(zoo) == y).mean()),\n"
        "}))\n"
    )
    found = json.loads(run(tmp_path, "-c", script))
    assert set(found["models"]) <= {"one", "other", "same"}
    assert "other" in found["models"]
    assert found["gain"] > 10
    assert found["estimate"] > 80
    assert found["fitted"][0] == "duo"
    assert "other" in found["fitted"]
    assert found["right"] > 0.8
