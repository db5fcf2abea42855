"""Complete JSON documents of commands, compared with those that were written before.

They guard changes that must not change results. A document that changes on purpose is written again
with `OODZOO_GOLDEN=write pytest tests/golden`, and CHANGELOG says why. Times are left out.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.evaluation.data import task_zoo, zoo
from tests.fixtures import draw_digits

Run = Callable[..., Any]
WRITTEN = Path(__file__).parent
MEASURED = (
    *("seconds", "milliseconds", "ms", "started", "ended", "time", "version", "versions"),
    *("digest", "pareto_optimal"),
)
"""Keys, or their ends, of what depends on times."""

UNSTABLE = {"h_score", "best_by_h_score", "behind_best"}
"""Keys of what depends on the last digits of features: H-scores of more features than images, and
differences between nearly equal models."""

TABLES: dict[str, Any] = {
    "two domains": zoo(n_domains=2, n=40),
    "three domains": zoo(n_domains=3, n_classes=4, n=40),
    "numbers": task_zoo("regression", n_domains=3),
    "labels": task_zoo("multilabel"),
}

COMMANDS: dict[str, tuple[str, ...]] = {
    "rank": ("rank", "{}/store"),
    "select": ("select", "{}/store", "--top-k", "2"),
    "evaluate": ("evaluate", "{}/store"),
    "fit": ("fit", "{}/store", "--out", "{}/model"),
    "predict": ("predict", "{}/model", "{}/features.npz"),
    "test": ("test", "{}/model", "{}/features.npz"),
}

MORE: dict[str, tuple[str, ...]] = {
    "rank, paper": ("rank", "{}/store", "--score", "zood"),
    "evaluate, target": ("evaluate", "{}/store", "--no-baselines", "--with-target"),
    "evaluate, limits": ("evaluate", "{}/store", "--no-baselines", "--max-models", "2"),
    "evaluate, top 1 or 3": ("evaluate", "{}/store", "--no-baselines", "--top-k", "1,3"),
    "fit, single": ("fit", "{}/store", "--out", "{}/single", "--choose", "single"),
    "fit, selection": ("fit", "{}/store", "--out", "{}/selection", "--choose", "selection"),
    "testbed": ("testbed", "{}/store"),
}

EMBEDDED: dict[str, tuple[str, ...]] = {
    "run": ("run", "{}/data", "--zoo", "demo", "--out", "{}/job", "--device", "cpu", "--testbed"),
    "data": ("data", "{}/data"),
    "predict": ("predict", "{}/job/model", "{}/unseen"),
    "test": ("test", "{}/job/model", "{}/unseen"),
    "testbed": ("testbed", "{}/job/store"),
    "rank, target": ("rank", "{}/job/store", "--target", "night={}/unseen/chalk"),
    "fit, target": ("fit", "{}/job/store", "--out", "{}/model", "--target", "night"),
}


def cleared(document: Any, folder: Path) -> Any:
    """Without what differs between two runs or processors: times, last digits, the folder."""
    if isinstance(document, dict):
        return {
            str(key).replace(str(folder), "FOLDER"): cleared(value, folder)
            for key, value in document.items()
            if not str(key).endswith(MEASURED) and key not in UNSTABLE
        }
    if isinstance(document, list):
        return [cleared(each, folder) for each in document if "--max-ms" not in str(each)]
    return document.replace(str(folder), "FOLDER") if isinstance(document, str) else document


def differences(found: Any, known: Any, tolerance: float, at: str = "") -> Iterator[str]:
    """Where two documents differ: other keys, other texts, numbers further apart than allowed."""
    if isinstance(known, dict) and isinstance(found, dict):
        for key in sorted(known.keys() | found.keys()):
            if key not in known or key not in found:
                yield f"{at}/{key} is {'new' if key in found else 'absent'}"
            else:
                yield from differences(found[key], known[key], tolerance, f"{at}/{key}")
    elif isinstance(known, list) and isinstance(found, list) and len(known) == len(found):
        for index, (one, other) in enumerate(zip(found, known, strict=True)):
            yield from differences(one, other, tolerance, f"{at}/{index}")
    elif isinstance(known, float) and isinstance(found, (int, float)):
        if not math.isclose(found, known, rel_tol=tolerance, abs_tol=tolerance):
            yield f"{at}: {found!r}, known {known!r}"
    elif found != known:
        yield f"{at}: {found!r}, known {known!r}"


def compare(name: str, documents: dict[str, Any], tolerance: float) -> None:
    path = WRITTEN / f"{name.replace(' ', '_')}.json"
    if os.environ.get("OODZOO_GOLDEN") == "write":
        lines = (f"{json.dumps(key)}: {json.dumps(each)}" for key, each in documents.items())
        path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    known = cleared(json.loads(path.read_text()), WRITTEN)
    found = list(differences(documents, known, tolerance))
    assert not found, "\n".join(found[:20])


def documents(run: Run, folder: Path, commands: dict[str, tuple[str, ...]]) -> dict[str, Any]:
    """The documents of commands, one after the other; {} is the folder."""
    result = {}
    for name, command in commands.items():
        outcome = run(*(word.format(folder) for word in command), "--json")
        document = (
            outcome.document if outcome.code == 0 else json.loads(outcome.err.splitlines()[-1])
        )
        result[name] = cleared(document, folder)
    return result


@pytest.mark.parametrize("name", TABLES)
def test_simulated_tables(run: Run, tmp_path: Path, name: str) -> None:
    features, y, domains = TABLES[name]
    if name == "labels":
        y = np.array([";".join(np.array(["a", "b"])[row > 0]) for row in y])
    np.savez(tmp_path / "features.npz", labels=y, domains=domains, **features)
    task = {"numbers": "regression", "labels": "multilabel"}.get(name, "classification")
    words = ("--store", tmp_path / "store", "--task", task)
    outcome = run("import", tmp_path / "features.npz", *words)
    assert outcome.code == 0, outcome.err
    commands = COMMANDS | (MORE if name == "three domains" else {})
    # the logistic regressions of several labels stop when they move little
    tolerance = 1e-4 if name == "labels" else 1e-6
    compare(name, documents(run, tmp_path, commands), tolerance)


def test_embedded_data(run: Run, tmp_path: Path) -> None:
    """Forward passes differ between processors, in the last of their digits."""
    draw_digits(tmp_path / "data", 12)
    draw_digits(tmp_path / "unseen", 8, skip=12)
    compare("embedded data", documents(run, tmp_path, EMBEDDED), 1e-4)
