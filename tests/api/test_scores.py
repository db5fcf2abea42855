"""`oodzoo.scores`: what functions get and return, the registry, and scores of other packages."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.joint_space import joint_space, stored_space
from tests.oracles import zero_shot as oracle

import oodzoo
from oodzoo import InputError, scores
from oodzoo.extraction.features import ArraySource, StoreSource
from oodzoo.extraction.importing import import_features
from oodzoo.ranking.scores.catalogue import MissingHeadError, compute_score, compute_scores, is_own
from oodzoo.ranking.terms import FOLD_SCORES
from oodzoo.tasks import KINDS

Y = np.arange(12) % 3
DOMAINS = np.repeat(["a", "b", "c"], 4)


class HeadSource(ArraySource):
    """Arrays in which the model "head" has logits: twice the features."""

    def logits(self, model: str, domain: str) -> Any:
        (part,) = (features for features, _ in self.shards(model, domain))
        return 2 * part if model == "head" else None


@pytest.fixture
def source() -> HeadSource:
    rng = np.random.default_rng(7)
    features = {name: np.eye(3)[Y] + rng.normal(size=(12, 3)) for name in ("head", "bare")}
    return HeadSource(features, Y, DOMAINS)


def features_of(source: HeadSource, domains: Any) -> Any:
    return np.concatenate([f for d in domains for f, _ in source.shards("head", d)])


def test_features_labels_domains_and_outputs_are_passed(source: HeadSource) -> None:
    X, rows = features_of(source, "abc"), DOMAINS != "b"
    assert compute_score(source, scores.get("knn"), "head") == scores.knn(X, Y, DOMAINS)
    found = compute_score(source, scores.get("parc"), "head", ["a", "c"])
    assert found == scores.parc(X[rows], Y[rows])
    logits = 2 * X
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    found = compute_score(source, scores.get("leep"), "head")
    assert found == pytest.approx(scores.leep(probabilities, Y))
    assert compute_score(source, scores.get("nce"), "head") == scores.nce(logits.argmax(1), Y)


def test_models_without_a_head_are_skipped_with_a_reason(source: HeadSource) -> None:
    with pytest.raises(MissingHeadError, match="nce needs a classifier head"):
        compute_score(source, scores.get("nce"), "bare")
    totals, skipped = compute_scores(source, "nce", "abc")
    assert list(totals) == ["head"]
    assert skipped == {"bare": "nce needs a classifier head, and the model has none"}
    assert compute_scores(source, "nce", "abc", models=["head"]) == (totals, {})


def failing(error: Exception) -> Any:
    def broken(X: Any, y: Any) -> float:
        raise error

    return broken


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (failing(ZeroDivisionError("no samples")), "failed: ZeroDivisionError: no samples"),
        (failing(AssertionError()), "failed: AssertionError"),
        (failing(InputError("first\nsecond")), "failed: InputError: first second"),
        *(
            (lambda X, y, value=value: value, rf"must be a finite number, got {shown}")
            for value, shown in [
                (float("nan"), "nan"),
                (float("-inf"), "-inf"),
                (None, "None"),
                ("0.5", "'0.5'"),
                (1j, "1j"),
                ([0.5], r"\[0.5\]"),
                (np.zeros(3), r"an array of shape \(3,\)"),
                (np.zeros((1, 1)), r"an array of shape \(1, 1\)"),
                (np.float32("nan"), "nan"),
            ]
        ),
    ],
)
def test_a_score_that_fails_is_one_line(source: HeadSource, function: Any, says: str) -> None:
    with pytest.raises(InputError, match=f"^score 'odd' of model 'head' {says}$"):
        compute_score(source, scores.Score("odd", function), "head")


@pytest.mark.parametrize(("d", "expected"), [(11, "moments"), (12, "arrays")])
def test_moments_where_there_are_more_samples_than_features(d: int, expected: str) -> None:
    called: list[Any] = []

    def from_moments(moments: Any, shards: Any) -> float:
        called.append("moments")
        features, labels = next(iter(shards("c")))
        assert (features.shape, labels.tolist()) == ((6, d), [1, 0] * 3)
        assert {name: each.label_sum.tolist() for name, each in moments.items()} == {
            "a": [3, 3],
            "c": [3, 3],
        }
        return 1.0

    def from_arrays(X: Any, y: Any) -> float:
        called.append("arrays")
        assert (type(X), X.shape, y.tolist()) == (np.ndarray, (12, d), [0, 1] * 3 + [1, 0] * 3)
        return 1.0

    y = np.array(["x", "z"] * 3 + ["y"] * 3 + ["z", "x"] * 3)
    features = np.random.default_rng(7).normal(size=(15, d))
    source = ArraySource({"net": features}, y, np.repeat(["a", "b", "c"], [6, 3, 6]))
    score = scores.Score("mine", from_arrays, from_moments=from_moments)
    assert compute_score(source, score, "net", ["a", "c"]) == 1.0
    assert called == [expected]


def test_functions_of_others_get_numpy_arrays_and_may_return_tensors(source: HeadSource) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    values = [2, np.float32(2), np.int64(2), np.array(2.0), torch.tensor(2.0, requires_grad=True)]
    seen = []

    def mine(X: Any, y: Any) -> Any:
        seen.append(type(X))
        return values.pop()

    score = scores.Score.of_function(mine)
    while values:
        found = compute_score(source, score, "head", device="cpu")
        assert (found, type(found)) == (2.0, float)
    assert set(seen) == {np.ndarray}
    assert is_own(scores.get("logme"))
    assert not is_own(score)


def test_zero_shot_scores_of_a_store(tmp_path: Path) -> None:
    space = joint_space()
    source = StoreSource(stored_space(tmp_path, space))
    score, X, domains = scores.get("zero_shot"), space.features["clip"], space.domains
    codes = np.unique(space.y, return_inverse=True)[1]
    expected = oracle.accuracy(X, space.texts, codes, domains)
    assert compute_score(source, score, "clip") == pytest.approx(expected, rel=1e-12)
    here = domains == "d1"
    one = oracle.accuracy(X[here], space.texts, codes[here])
    assert compute_score(source, score, "clip", ["d1"]) == pytest.approx(one, rel=1e-12)
    with pytest.raises(MissingHeadError, match="needs embeddings of the classes by a text tower"):
        compute_score(source, score, "plain")
    seen: list[tuple[int, ...]] = []

    def nearest(X: Any, texts: Any, y: Any) -> float:
        seen.extend([X.shape, texts.shape, y.shape])
        return 1.0

    mine = scores.Score("nearest", nearest, needs="class_embeddings")
    assert compute_score(source, mine, "clip") == 1.0
    assert seen == [(len(codes), X.shape[1]), space.texts.shape, codes.shape]


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    """What a test registers is removed."""
    before = scores.names()
    yield
    for name in set(scores.names()) - set(before):
        scores.unregister(name)


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


def three(X: Any, y: Any, where: Any) -> float:
    return 0.0


def either(X: Any, y: Any, domains: Any = None, k: int = 3) -> float:
    return 0.0


@pytest.mark.parametrize(
    ("function", "name", "uses_domains"),
    [
        (three, "three", True),
        (either, "either", True),
        (functools.partial(three, where=None), "three", False),
        (functools.partial(functools.partial(either), k=2), "either", True),
        (lambda X, y, k=3: 0.0, "lambda", False),
        (lambda *arguments: 0.0, "lambda", False),
        (Object(), "Object", False),
        (max, "max", False),
    ],
)
def test_a_score_of_a_function(function: Any, name: str, uses_domains: bool) -> None:
    score = scores.Score.of_function(function)
    assert score == scores.Score(name, function, uses_domains=uses_domains, tasks=KINDS)
    assert name not in scores.names()


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
}
BROKEN = {
    "missing": ("import no_such_package", "", "ModuleNotFoundError"),
    "fails": ("1 / 0", "", "ZeroDivisionError"),
    "number": ("thing = 3", ":thing", "'number:thing' is not a Score"),
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
        "import json, sys, oodzoo; s = sys.argv[1]; names = ('spread', 'module');"
        "print(json.dumps([[[r.model for r in oodzoo.rank(s, score=n)] for n in names],"
        "[oodzoo.testbed.run(s, resamples=5).to_dict()['scores'][n]['title'] for n in names]]))"
    )
    done = run(tmp_path, code, store)
    assert done.returncode == 0, done.stderr
    orders, titles = json.loads(done.stdout)
    assert orders == [["good", "fair", "poor"]] * 2
    assert titles == ["Minus the spread"] * 2
    said = [line for line in done.stderr.splitlines() if "the score plugin" in line]
    assert len(said) == len(BROKEN)
    for name, (_, _, reason) in BROKEN.items():
        words = f"the score plugin {name!r} of the package {name!r} failed and is skipped: "
        (line,) = (line for line in said if words in line)
        assert reason in line
