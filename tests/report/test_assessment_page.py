"""The page of a test."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image
from tests.report.assessment_example import example_test

from oodzoo.report.assessment_page import assessment_page, write_test_report
from oodzoo.task import Kind


@pytest.fixture(scope="module")
def image() -> bytes:
    content = io.BytesIO()
    Image.new("RGB", (16, 16), (200, 30, 30)).save(content, "PNG")
    return content.getvalue()


@pytest.mark.parametrize("task", ["classification", "regression", "multilabel"])
def test_the_page_has_every_part(task: Kind, image: bytes) -> None:
    text = assessment_page(example_test(task, image=image), "models/best")
    for ident in ("next", "domains", "mistakes", "unreadable", "made"):
        assert f'<section id="{ident}"' in text
    assert text.count("data:image/jpeg") >= 12
    assert "models/best is worse than promised on dawn." in text
    assert "<title>models/best is worse than promised on dawn · oodzoo report</title>" in text
    assert "x/<wbr>broken.<wbr>jpg" in text
    assert "/home/ada" not in text
    assert "oodzoo test models/best new --out test.html" in text


def test_classes_are_shown_by_domain() -> None:
    text = assessment_page(example_test())
    for name in ("all domains", "dawn", "dusk", "noon"):
        assert f"<option>{name} (" in text
    assert text.count("Which classes are confused in") >= 4
    assert "Can its confidence be trusted?" in text
    assert "Settle 1 unknown class" in text
    alone = assessment_page(example_test(domains=["dawn"]))
    assert "<option>" not in alone


def test_the_first_sentence_compares_with_the_promise() -> None:
    result = example_test()
    assert result.promise is not None
    within = replace(result.promise, verdicts=dict.fromkeys(result.domains, "within"))
    above = replace(result.promise, verdicts={"noon": "above"})
    for changed, words in (
        (replace(result, promise=within), "The predictor is as good as promised on new domains."),
        (replace(result, promise=above), "The predictor is better than promised on noon."),
        (replace(result, promise=None), "A test on labelled data."),
        (replace(result, promise=None, trained_on=("dawn",)), "A test on domains that it was"),
        (replace(result, is_training_data=True), "A test on its own training data."),
    ):
        assert f'<h1 id="headline">{words}' in assessment_page(changed)


def test_a_page_is_written(tmp_path: Path) -> None:
    file = write_test_report(example_test(), tmp_path / "a" / "b.html")
    assert file.read_text(encoding="utf-8") == assessment_page(example_test(), out="b.html")
