"""The section with mistakes, and the page of a test: classes, numbers and several labels."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.report.assessment_example import example_test
from tests.report.diagnosis_example import example_diagnoses, example_diagnosis
from tests.report.example import CLASSES, DOMAINS, example_run
from tests.report.reader import Reader

from oodzoo.combining.evaluation.result import Evaluation
from oodzoo.data.files import LocalFile, StoredFile
from oodzoo.predictor.assessment.result import TestResult
from oodzoo.report import page, write_test_report
from oodzoo.report.assessment_page import assessment_page, labels_figure
from oodzoo.report.blocks import Figure, Headline, Section
from oodzoo.report.diagnosis import (
    classes_figure,
    confusion_figure,
    mistakes_gallery,
    reliability_figure,
    shown_mistakes,
)
from oodzoo.report.page import render
from oodzoo.report.record import Run
from oodzoo.tasks import Kind
from oodzoo.tasks.diagnosis.classes import ClassDiagnosis, Mistake, add_up
from oodzoo.tasks.diagnosis.labels import LabelDiagnosis, diagnose_labels
from oodzoo.tasks.diagnosis.reliability import Bin, Reliability

SURE = Reliability((Bin(90.0, 100.0, 9, 95.0, 78.0),), 17.0)


@pytest.fixture(scope="module")
def evaluation(run: Run) -> Evaluation:
    assert run.evaluation is not None
    return run.evaluation


def shown(evaluation: Evaluation) -> Reader:
    return Reader(page(Run("oodzoo run", evaluation=evaluation)))


# --- what was recommended, on held-out domains ---------------------------------------------------


def test_csv_files_equal_the_diagnoses_the_hardest_domain_first(
    evaluation: Evaluation, read: Reader
) -> None:
    order = sorted(DOMAINS, key=evaluation.recommended.domains.__getitem__)
    for at, domain in enumerate(order):
        rows = read.table(f"confusion-{at + 1}")
        found = [tuple(int(row[f"predicted_{label}"]) for label in CLASSES) for row in rows]
        assert tuple(found) == evaluation.diagnosis[domain].confusion
    total = [int(row["images"]) for row in read.table("confusion")]
    assert sum(total) == sum(each.images for each in evaluation.diagnosis.values())
    worst = [float(row["recall"]) for row in read.table("classes")]
    assert worst == sorted(worst)
    assert sum(int(row["images"]) for row in read.table("reliability")) == sum(total)
    errors = evaluation.recommended_row.measure("calibration_error")
    assert f"averaged over domains: {fmean(errors.values()):.1f} points." in read.text
    for mistakes in shown_mistakes(evaluation).values():
        assert len(mistakes) == 12
        for mistake in mistakes:  # without images, they are lines of text
            assert mistake.path in read.text


def test_what_is_said_of_mistakes(evaluation: Evaluation) -> None:
    assert "in the first trial" in shown(evaluation).text
    assert "in the first trial" not in shown(replace(evaluation, trials=1)).text
    found = {name: replace(each, mistakes=()) for name, each in evaluation.diagnosis.items()}
    assert "Most confident" not in shown(replace(evaluation, diagnosis=found)).text
    assert "mistakes" not in shown(replace(evaluation, diagnosis={})).sections


def test_of_many_domains_the_hardest_have_a_matrix() -> None:
    evaluation = example_run(3, [f"d{at:02}" for at in range(20)], ["cat", "dog"]).evaluation
    assert evaluation is not None
    sizes = [len(mistakes) for mistakes in shown_mistakes(evaluation).values()]
    assert (len(sizes), max(sizes)) == (12, 6)
    text = page(Run("oodzoo run", evaluation=evaluation))
    assert "Held-out domain, the 12 hardest" in text
    assert text.count("<option>") == 13


# --- figures of classes --------------------------------------------------------------------------


def rows(figure: Figure) -> list[list[str]]:
    found = csv.DictReader(io.StringIO(figure.table.csv(), newline=""))
    return [list(row.values()) for row in found]


def drawn(figure: Figure) -> list[str]:
    assert figure.chart is not None
    return [figure.chart.wide.render(), figure.chart.narrow.render()]


def test_a_confusion_matrix() -> None:
    counts = ((3, 0, 1), (0, 4, 0), (1, 0, 0))
    figure = confusion_figure(ClassDiagnosis(("cat", "dog", "images"), counts, SURE), "c", "Title")
    assert rows(figure) == [
        ["cat", "4", "3", "0", "1"],
        ["dog", "4", "0", "4", "0"],
        ["images", "1", "1", "0", "0"],
    ]
    assert figure.text.endswith(
        "2 of 9 images are misclassified. Most frequent: cat taken for images (1 of 4); images "
        "taken for cat (1 of 1)."
    )
    for each in drawn(figure):
        assert each.count('class="heat"') == each.count('class="heat amiss"') == 2
        assert "taken for images: 1 of 4 (25.0 %)" in each


def test_nothing_is_wrong() -> None:
    figure = confusion_figure(ClassDiagnosis(("a", "b"), ((2, 0), (0, 0)), SURE), "c", "Title")
    assert figure.text.endswith("All of 2 images are classified correctly.")
    many = tuple(str(at) for at in range(30))
    right = tuple(tuple(int(a == b) for b in many) for a in many)
    listed = confusion_figure(ClassDiagnosis(many, right, SURE), "c", "Title")
    assert (listed.chart, listed.table.rows) == (None, [])


def test_of_many_classes_the_most_frequent_confusions_are_listed() -> None:
    names = [f"class {c}" for c in range(345)]
    assert len(confusion_figure(example_diagnosis(names[:24]), "c", "T").table.rows) == 24
    diagnosis = example_diagnosis(names, images=20)
    figure = confusion_figure(diagnosis, "c", "T")
    assert [tuple(row[:3]) for row in figure.table.rows] == diagnosis.confusions[:200]
    assert "The table has the 200 most frequent of" in figure.text
    assert drawn(figure)[0].count("<rect") == 12


def few() -> ClassDiagnosis:
    """Owls do not occur; nothing is predicted as a fox."""
    counts = ((3, 1, 0, 0), (0, 4, 0, 0), (0, 0, 0, 0), (1, 1, 0, 0))
    return replace(example_diagnosis(["cat", "dog", "owl", "fox"]), confusion=counts)


def test_the_worst_class_is_first() -> None:
    figure = classes_figure(few(), "classes", "Title")
    assert figure.table.rows == [
        ["fox", 2, 0.0, None, "cat (1)"],
        ["cat", 4, 75.0, 75.0, "dog (1)"],
        ["dog", 4, 100.0, 400 / 6, None],
        ["owl", 0, None, None, None],
    ]
    assert figure.text == (
        "fox is recognised worst: 0.0 % of 2 images; dog best: 100.0 % of 4 images."
    )
    for each in drawn(figure):
        assert (each.count('class="bar single"'), each.count('class="dot neutral"')) == (3, 2)
    one = replace(few(), classes=("cat",), confusion=((2,),))
    assert classes_figure(one, "c", "T").text == "100.0 % of the images of cat are recognised."


def test_the_table_has_the_recall_in_each_domain_and_the_chart_the_worst() -> None:
    domains = example_diagnoses([f"c{at}" for at in range(40)], {"day": 90, "night": 40})
    figure = classes_figure(add_up(domains.values()), "c", "T", domains)
    assert [column.key for column in figure.table.columns][-2:] == ["recall_day", "recall_night"]
    for label, *_, day, night in figure.table.rows:
        assert day == domains["day"].per_class[label].recall
        assert night == domains["night"].per_class[label].recall
    assert len(figure.table.rows) == 40
    assert figure.text.endswith("The chart shows the worst 30; the table lists all.")
    assert drawn(figure)[1].count('class="bar single"') == 30


@pytest.mark.parametrize(
    ("accuracy", "error", "verdict"),
    [
        (95.5, 0.5, "Confidence and accuracy agree"),
        (95.5, 9.0, "Confidence and accuracy agree on average, but not at every confidence"),
        (80.0, 16.0, "On average, it is too sure"),
        (100.0, 4.0, "On average, it is not sure enough"),
    ],
)
def test_the_verdict_on_reliability(accuracy: float, error: float, verdict: str) -> None:
    found = Reliability((Bin(90.0, 100.0, 50, 96.0, accuracy),), error)
    text = reliability_figure(replace(few(), reliability=found), "r", "Title").text
    assert text == (
        f"{verdict}: mean confidence 96.0 %, accuracy {accuracy:.1f} %. Of the 50 images with a "
        f"confidence of 90–100 %, {accuracy:.1f} % are right. Expected calibration error, the mean "
        f"distance from the diagonal: {error:.1f} points."
    )


def test_a_mistake_is_an_image_or_a_line_of_text(tmp_path: Path) -> None:
    mistakes = [
        Mistake("photo/cat/<1>.png", "photo", "cat", "dog", 98.7),
        Mistake("photo/cat/2.png", "photo", "cat", "owl", 90.1),
        Mistake("photo/dog/3.png", "photo", "dog", "cat", 61.2),
    ]
    Image.new("RGB", (300, 200), "red").save(tmp_path / "1.png")
    (tmp_path / "2.png").write_bytes(b"not an image")
    files: dict[str, StoredFile] = {
        mistakes[0].key: LocalFile(str(tmp_path / "1.png")),
        mistakes[1].key: LocalFile(str(tmp_path / "2.png")),
    }
    gallery = mistakes_gallery(mistakes, files)
    read = Reader(render(Headline("None."), [Section("s", "Section", "", [gallery])]))
    (image,) = read.images
    assert image["alt"] == "cat in photo, predicted as dog, 99 %"
    assert image["title"] == "photo/cat/<1>.png"
    assert (image["src"] or "").startswith("data:image/jpeg;base64,")
    assert str(tmp_path) not in read.text
    assert read.text.count("photo/cat/2.png") == read.text.count("photo/dog/3.png") == 1
    for predicted in ("dog, 99 %", "owl, 90 %", "cat, 61 %"):
        assert predicted in read.text


# --- the page of a test --------------------------------------------------------------------------


def image() -> bytes:
    content = io.BytesIO()
    Image.new("RGB", (16, 16), (200, 30, 30)).save(content, "PNG")
    return content.getvalue()


@pytest.mark.parametrize("task", ["classification", "regression", "multilabel"])
def test_the_page_of_a_test_has_images_and_no_folders(task: Kind, tmp_path: Path) -> None:
    result = example_test(task, image=image())
    text = assessment_page(result, "models/best")
    assert text.count("data:image/jpeg") >= 12
    assert "/home/ada" not in text
    file = write_test_report(result, tmp_path / "a" / "b.html", model="models/best")
    assert file.read_text(encoding="utf-8") == assessment_page(result, "models/best", "b.html")


def promised(**verdicts: Any) -> TestResult:
    result = example_test()
    assert result.promise is not None
    return replace(result, promise=replace(result.promise, verdicts=verdicts))


VERDICTS: list[tuple[Callable[[], TestResult], str]] = [
    (example_test, "The predictor is worse than promised on dawn."),
    (lambda: promised(dawn="within", noon="within"),
     "The predictor is as good as promised on new domains."),
    (lambda: promised(noon="above"), "The predictor is better than promised on noon."),
    (lambda: replace(example_test(), promise=None), "A test on labelled data."),
    (lambda: replace(example_test(), promise=None, trained_on=("dawn",)),
     "A test on domains that it was"),
    (lambda: replace(example_test(), is_training_data=True), "A test on its own training data."),
]  # fmt: skip


@pytest.mark.parametrize(("result", "words"), VERDICTS)
def test_the_first_sentence_compares_with_the_promise(
    result: Callable[[], TestResult], words: str
) -> None:
    assert f'<h1 id="headline">{words}' in assessment_page(result())


def test_the_worst_domain_of_a_test_comes_first_and_all_last() -> None:
    result = example_test()
    found = Reader(assessment_page(result)).table("domains")
    values = [float(row["accuracy"]) for row in found]
    assert values[:-1] == sorted(values[:-1])
    assert (found[-1]["domain"], values[-1]) == ("all", result.value)
    assert {row["domain"]: row["promise"] for row in found}["dawn"] == "below"
    assert assessment_page(result).count("promised for one new domain\n") == 2 * 3
    alone = assessment_page(replace(example_test(domains=["dawn"]), promise=None))
    assert "<option>" not in alone
    assert [list(row)[-1] for row in Reader(alone).table("domains")] == ["second"]
    assert "promised" not in alone
    numbers = example_test("regression", ["age"])
    *_, last = Reader(assessment_page(numbers)).table("domains")
    assert float(last["second"]) == numbers.second


def test_the_worst_label_comes_first_and_one_without_images_last() -> None:
    result = example_test("multilabel")
    found = result.diagnosis
    assert isinstance(found, LabelDiagnosis)
    read = Reader(assessment_page(result))
    values = [float(row["average_precision"]) for row in read.table("labels")]
    assert values == sorted(values)
    first = found.mistakes[0]
    assert f"true{'has' if first.has else 'has not'} {first.label}" in read.text
    y = np.array([[1.0, 0.0], [0.0, 0.0]])
    absent = diagnose_labels(y, y, ["cat", "dog"], paths=["a", "b"], domains="d")
    figure = labels_figure(absent, "image")
    assert [row[:3] for row in figure.table.rows] == [["cat", 1, 100.0], ["dog", 0, None]]
