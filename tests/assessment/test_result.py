"""The result of a test: as JSON, text and a table."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import oodzoo
from oodzoo.assessment.result import Promise
from oodzoo.errors import InputError


def test_a_result_is_restored_from_json(result: oodzoo.TestResult) -> None:
    document = json.loads(json.dumps(result.to_dict()))
    assert oodzoo.TestResult.from_dict(document) == result
    for key in ("accuracy", "balanced_accuracy", "per_class", "confusion"):  # the contract
        assert key in document
    assert document["accuracy"] == result.accuracy
    assert tuple(document["domains"]["tilted"]["interval"]) == result.domains["tilted"].interval
    assert document["promise"]["agrees"] in (True, False)
    assert document["average"] == pytest.approx(
        sum(each["accuracy"] for each in document["domains"].values()) / 2
    )
    old = {key: value for key, value in document.items() if key not in ("adapted", "promise")}
    assert oodzoo.TestResult.from_dict(old).promise is None
    with pytest.raises(InputError, match="damaged"):
        oodzoo.TestResult.from_dict(document | {"confusion": [["x"]]})


def test_the_repr_is_short(result: oodzoo.TestResult) -> None:
    text = repr(result)
    assert text.endswith(f"accuracy {result.accuracy:.1f} % of 36 images, 2 domains)")
    assert len(text) < 200


def test_the_text_and_the_html_have_all_domains(result: oodzoo.TestResult) -> None:
    lines = str(result).splitlines()
    assert [line.split()[0] for line in lines[1:4]] == ["pencil", "tilted", "all"]
    assert "images of 2 domains are classified correctly (90 % interval" in str(result)
    html = result._repr_html_()
    for name in ("pencil", "tilted", "all", "within"):
        assert f">{name}</t" in html
    odd = replace(result, domains={"<b>": result.overall})
    assert "<b>" not in odd._repr_html_()


def test_the_findings_compare_with_the_promise(result: oodzoo.TestResult) -> None:
    assert result.promise is not None
    assert result.promise.text in result.findings()
    low = replace(result, promise=Promise(99.0, (98.0, 100.0), {"tilted": "below"}))
    assert "'tilted' is below this interval" in " ".join(low.findings())
    without = replace(result, promise=None)
    assert not any("left-out" in line for line in without.findings())


def test_a_value_of_no_domain_is_no_training_domain(result: oodzoo.TestResult) -> None:
    assert result.trained_on == ()
    assert not result.is_training_data
    assert not any("trained on" in line for line in result.remarks())


def test_images_with_several_unknown_labels_are_not_added_up(result: oodzoo.TestResult) -> None:
    several = replace(result, task="multilabel", unknown={"ant": 2, "emu": 1})
    assert "left out here, with the number of images: 'ant' (2), 'emu' (1)." in several._unknown()
    assert "3 images" not in several._unknown()
