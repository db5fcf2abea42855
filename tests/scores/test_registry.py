"""The registry of scores, and scores added by functions and other installed packages."""

from __future__ import annotations

import functools
import inspect
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oodzoo
from oodzoo import scores
from oodzoo.core.errors import InputError
from oodzoo.extraction.importing import import_features
from oodzoo.ranking.terms import FOLD_SCORES
from oodzoo.tasks import KINDS


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    """What a test registers is removed."""
    before = scores.names()
    yield
    for name in set(scores.names()) - set(before):
        scores.unregister(name)


@pytest.mark.parametrize("name", scores.names())
def test_a_registration_fits_its_function(name: str) -> None:
    score = scores.get(name)
    assert score.function is getattr(scores, name)
    assert scores.Score.of_function(score.function) is score
    parameters = list(inspect.signature(score.function).parameters)
    first = {
        "features": ["X", "y"],
        "class_embeddings": ["X", "class_embeddings", "y"],
        "probabilities": ["source_probabilities", "y"],
        "source_labels": ["source_labels", "y"],
    }[score.needs]
    assert parameters[: len(first)] == first
    assert (parameters[len(first) :][:1] == ["domains"]) == score.uses_domains
    assert score.title
    assert score.reference.split(",")[0].split()[0] in (score.function.__doc__ or "")


def test_scores_are_registered_and_removed() -> None:
    mine = scores.Score("mine", lambda X, y: 1.0, "features", False, "nobody", "My own")
    assert scores.register(mine) is mine is scores.get("mine")
    assert "mine" in scores.names()
    assert list(scores.names()) == sorted(scores.names())
    with pytest.raises(ValueError, match="'mine' is already registered"):
        scores.register(mine)
    scores.unregister("mine")
    with pytest.raises(InputError, match="unknown score 'mine'"):
        scores.unregister("mine")

    @scores.score("mine", needs="source_labels", uses_domains=True, title="T", reference="R")
    def decorated(labels: list[int], y: list[int], domains: list[str]) -> float:
        return 2.0

    assert decorated([1], [1], ["a"]) == 2.0
    expected = scores.Score("mine", decorated, "source_labels", True, "R", "T")
    assert scores.get("mine") == expected


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"name": "my own"}, "letters, digits and underscores, got 'my own'"),
        ({"needs": "logits"}, r"unknown needs 'logits'; expected one of features, "),
        ({"needs": "probabilities", "from_moments": len}, "'mine': moments are of features, not"),
        *(
            ({"name": name}, "is reserved")
            for name in (*FOLD_SCORES, "parameters", "feature_dim", "source_accuracy")
        ),
    ],
)
def test_scores_that_cannot_be_registered(options: dict[str, Any], says: str) -> None:
    settings: dict[str, Any] = {"name": "mine", "function": len}
    with pytest.raises(ValueError, match=says):
        scores.register(scores.Score(**(settings | options)))


class Object:
    def __call__(self, X: Any, y: Any) -> float:
        return 0.0


def two(X: Any, y: Any, k: int = 3) -> float:
    return 0.0


def three(X: Any, y: Any, where: Any) -> float:
    return 0.0


def either(X: Any, y: Any, domains: Any = None, k: int = 3) -> float:
    return 0.0


@pytest.mark.parametrize(
    ("function", "name", "uses_domains"),
    [
        (two, "two", False),
        (three, "three", True),
        (either, "either", True),
        (functools.partial(three, where=None), "three", False),
        (functools.partial(functools.partial(either), k=2), "either", True),
        (lambda X, y: 0.0, "lambda", False),
        (lambda *arguments: 0.0, "lambda", False),
        (Object(), "Object", False),
        (max, "max", False),
    ],
)
def test_a_score_of_a_function(function: Any, name: str, uses_domains: bool) -> None:
    score = scores.Score.of_function(function)
    assert score == scores.Score(name, function, uses_domains=uses_domains, tasks=KINDS)
    assert name not in scores.names()


def test_a_function_of_a_notebook_can_be_defined_again() -> None:
    cell = "@score('mine')\ndef mine(X, y):\n    return {}\n"
    for value in (1.0, 2.0):
        exec(cell.format(value), {"__name__": "__main__", "score": scores.score})
    assert scores.get("mine").function([], []) == 2.0
    with pytest.raises(ValueError, match="'mine' is already registered"):
        exec(cell.format(3.0), {"__name__": "another", "score": scores.score})
    other = cell.replace("def mine", "def other").format(3.0)
    with pytest.raises(ValueError, match="'mine' is already registered"):
        exec(other, {"__name__": "__main__", "score": scores.score})


# --- plug-ins -------------------------------------------------------------------------------------

SCORE = """
from oodzoo.scores import Score

def {name}(X, y, domains):
    assert len(X) == len(y) == len(domains)
    return -float(X.std())

mine = Score("{name}", {name}, uses_domains=True, title="Minus the spread", reference="nobody")
"""
DECORATED = """
from oodzoo import scores

@scores.score("{name}", title="Minus the spread", uses_domains=True)
def {name}(X, y, domains):
    return -float(X.std())
"""
SOUND = {
    "one": (SCORE.format(name="spread"), ":mine"),
    "two": (DECORATED.format(name="module"), ""),
    "three": (DECORATED.format(name="decorated"), ":decorated"),
}
BROKEN = {
    "missing": ("import no_such_package", "", "ModuleNotFoundError"),
    "fails": ("1 / 0", "", "ZeroDivisionError"),
    "number": ("thing = 3", ":thing", "'number:thing' is not a Score"),
    "absent": ("", ":absent", "AttributeError"),
    "taken": (SCORE.format(name="logme"), ":mine", "'logme' is already registered"),
    "reserved": (SCORE.format(name="zood"), ":mine", "'zood' is reserved"),
}


def install(site: Path, name: str, module: str, point: str) -> None:
    """Lay down a package as an installer does: its module, and its dist-info."""
    (site / f"{name}.py").write_text(module)
    info = site / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[oodzoo.scores]\n{name} = {name}{point}\n")


def run(site: Path, code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    source = Path(oodzoo.__file__).parents[1]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(source), str(site)])}
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env=environment,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


def test_scores_of_other_packages_and_broken_packages(tmp_path: Path) -> None:
    """A broken package is a line on stderr and no more."""
    for name, (module, point) in SOUND.items():
        install(tmp_path, name, module, point)
    for name, (module, point, _) in BROKEN.items():
        install(tmp_path, name, module, point)
    rng = np.random.default_rng(0)
    y, domains = np.tile([0, 1, 2], 20), np.repeat(["a", "b", "c"], 20)
    features = {
        name: np.eye(3)[y] + noise * rng.normal(size=(60, 3))
        for name, noise in (("good", 0.3), ("fair", 1.0), ("poor", 3.0))
    }
    np.savez(tmp_path / "f.npz", labels=y.astype(str), domains=domains, **features)
    store = import_features([tmp_path / "f.npz"], tmp_path / "store").path
    code = (
        "import json, sys, oodzoo; s = sys.argv[1]; names = ('spread', 'module', 'decorated');"
        "print(json.dumps([[[r.model for r in oodzoo.rank(s, score=n)] for n in names],"
        "[oodzoo.testbed.run(s, resamples=5).to_dict()['scores'][n]['title'] for n in names]]))"
    )
    done = run(tmp_path, code, store)
    assert done.returncode == 0, done.stderr
    orders, titles = json.loads(done.stdout)
    assert orders == [["good", "fair", "poor"]] * 3
    assert titles == ["Minus the spread"] * 3
    said = [line for line in done.stderr.splitlines() if "the score plugin" in line]
    assert len(said) == len(BROKEN)
    for name, (_, _, reason) in BROKEN.items():
        words = f"the score plugin {name!r} of the package {name!r} failed and is skipped: "
        (line,) = (line for line in said if words in line)
        assert reason in line


def test_help_of_everything_imports_no_package(tmp_path: Path) -> None:
    install(tmp_path, "plug", "print('imported')", "")
    code = "import sys; from oodzoo.cli import main; sys.argv[0] = 'oodzoo'; main()"
    assert "imported" not in run(tmp_path, code, "--help").stdout
    assert "imported" in run(tmp_path, code, "rank", "--help").stdout
