"""The result of a test: as JSON, text and a table; its interval, and what was promised."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import oodzoo
from oodzoo.core.errors import InputError
from oodzoo.predictor.assessment.result import Promise, promise_of
from oodzoo.predictor.assessment.testing import Z, metric_interval
from oodzoo.predictor.parts import Provenance
from oodzoo.tasks import Kind
from oodzoo.tasks.metrics import metric

# --- text and JSON -------------------------------------------------------------------------------


def test_a_result_is_restored_from_json(result: oodzoo.TestResult) -> None:
    document = json.loads(json.dumps(result.to_dict()))
    assert oodzoo.TestResult.from_dict(document) == result
    for key in ("accuracy", "balanced_accuracy", "per_class", "confusion"):  # the contract
        assert key in document
    assert document["accuracy"] == result.accuracy
    assert tuple(document["domains"]["tilted"]["interval"]) == result.domains["tilted"].interval
    assert document["promise"]["agrees"] in (True, False)
    each = [domain["accuracy"] for domain in document["domains"].values()]
    assert document["average"] == pytest.approx(sum(each) / 2)
    with pytest.raises(InputError, match="damaged"):
        oodzoo.TestResult.from_dict(document | {"confusion": [["x"]]})


def test_texts(result: oodzoo.TestResult) -> None:
    assert repr(result).endswith(f"accuracy {result.accuracy:.1f} % of 36 images, 2 domains)")
    assert len(repr(result)) < 200
    lines = str(result).splitlines()
    assert [line.split()[0] for line in lines[1:4]] == ["pencil", "tilted", "all"]
    assert "images of 2 domains are classified correctly (90 % interval" in str(result)
    html = result._repr_html_()
    for name in ("pencil", "tilted", "all", "within"):
        assert f">{name}</t" in html
    assert "<b>" not in replace(result, domains={"<b>": result.overall})._repr_html_()
    assert (result.trained_on, result.is_training_data) == ((), False)
    assert not any("trained on" in line for line in result.remarks())
    assert result.promise is not None
    assert result.promise.text in result.findings()
    without = replace(result, promise=None)
    assert not any("left-out" in line for line in without.findings())
    several = replace(result, task="multilabel", unknown={"ant": 2, "emu": 1})
    assert "left out here, with the number of images: 'ant' (2), 'emu' (1)." in several._unknown()
    assert "3 images" not in several._unknown()  # one image may have several labels


# --- intervals -----------------------------------------------------------------------------------


def test_the_interval_is_that_of_scipy() -> None:
    assert pytest.approx(stats.norm.ppf(0.95)) == Z
    found = stats.binomtest(37, 50).proportion_ci(0.9, method="wilson")
    guess = np.array([1] * 37 + [0] * 13)
    expected = (100 * found.low, 100 * found.high)
    assert metric_interval("classification", guess, np.ones(50)) == pytest.approx(expected)
    one = np.array([1.0])
    assert metric_interval("classification", one, one) == pytest.approx((26.99, 100), abs=0.01)


@pytest.mark.parametrize("kind", ["regression", "multilabel"])
def test_other_intervals(kind: Kind) -> None:
    """They contain the truth nine times of ten; where all contribute the same there is none."""
    rng = np.random.default_rng(0)

    def draw(n: int) -> tuple[np.ndarray, np.ndarray]:
        score = rng.normal(size=(n, 1))
        if kind == "regression":
            return score, score + 0.5 * rng.normal(size=(n, 1))
        return score, (score + rng.normal(size=(n, 1)) > 0.5).astype(float)

    truth = 100 * metric(kind, *draw(20_000))
    found = [metric_interval(kind, *draw(150)) for _ in range(200)]
    assert 0.84 < np.mean([i is not None and i[0] <= truth <= i[1] for i in found]) < 0.96
    scores, varied = rng.random((8, 1)), np.repeat([[0.0], [1.0]], 4, axis=0)
    for predicted, labels in ((scores, np.zeros((8, 1))), (varied, varied), (varied[:1],) * 2):
        assert metric_interval(kind, predicted, labels) is None
    assert metric_interval(kind, scores, varied) is not None


# --- what was promised ---------------------------------------------------------------------------

PROVENANCE = Provenance(
    ("day", "night"), 100, "", {}, 8, None, accuracy=90.0, accuracy_interval=(80.0, 95.0)
)
WITHIN = {f"d{at}": (84.0, 92.0) for at in range(9)}


def promised(**intervals: tuple[float, float]) -> Promise:
    found = promise_of(PROVENANCE, intervals, ["day"])
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("intervals", "agrees", "words"),
    [
        ({"dawn": (84, 92)}, True, "agrees: the new domain is within this interval."),
        ({"dawn": (84, 92), "dusk": (85, 90)}, True, "the 2 new domains are within this interval."),
        ({"dawn": (84, 92), "day": (0, 1)}, True, "the new domain is within this interval."),
        ({"day": (84, 92)}, None, "cannot be compared with it: it was trained on domains"),
        ({}, None, "cannot be compared with it: what was measured on its domains has no interval"),
        ({"a": (1, 2), "b": (1, 2)}, False, "'a', 'b' are below this interval."),
        (WITHIN | {"dusk": (60, 70)}, True, "of the 10 new domains, as many as one in ten may be"),
        (WITHIN | {"dusk": (60, 70), "dawn": (60, 70)}, False, "does not agree: 'dusk', 'dawn' ar"),
        ({"d0": (84, 92), "d1": (84, 92), "dusk": (60, 70)}, False, "does not agree: 'dusk' is"),
    ],
)
def test_whether_a_test_agrees(
    intervals: dict[str, tuple[float, float]], agrees: bool | None, words: str
) -> None:
    found = promised(**intervals)
    assert found.agrees is agrees
    assert found.text.startswith("When it was fitted, it reached 90.0 % on left-out domains, 80–95")
    assert words in found.text


def test_a_domain_is_outside_only_if_its_interval_is() -> None:
    found = promised(dawn=(70, 81), dusk=(60, 79.9), noon=(95.1, 99), day=(99, 100))
    expected = {"dawn": "within", "dusk": "below", "noon": "above", "day": "trained on"}
    assert found.verdicts == expected
    text = "does not agree: 'dusk' is below this interval, 'noon' is above this interval."
    assert text in found.text
    alone = promise_of(replace(PROVENANCE, accuracy_interval=None), {"dawn": (1.0, 2.0)}, [])
    assert alone is not None
    assert alone.agrees is None
    assert "that has no interval" in alone.text
    assert promise_of(replace(PROVENANCE, accuracy=None), {}, []) is None
