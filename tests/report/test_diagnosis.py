"""The section with mistakes: the hardest domain first, and every domain can be chosen."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean

import pytest
from tests.report.example import CLASSES, DOMAINS, example_run, without
from tests.report.reader import Reader

from oodzoo.evaluation.result import Evaluation
from oodzoo.record import Run
from oodzoo.report import page
from oodzoo.report.blocks import Cards, Chooser, Figure
from oodzoo.report.diagnosis import diagnosis_section, hardest_first, shown_mistakes


@pytest.fixture(scope="module")
def evaluation(run: Run) -> Evaluation:
    assert run.evaluation is not None
    return run.evaluation


def chooser(evaluation: Evaluation) -> Chooser:
    found = diagnosis_section(evaluation, {}).blocks[0]
    assert isinstance(found, Chooser)
    return found


def test_the_hardest_domain_is_first(evaluation: Evaluation) -> None:
    accuracy = evaluation.recommended.domains
    order = sorted(DOMAINS, key=accuracy.__getitem__)
    assert list(hardest_first(evaluation)) == order
    names = [name for name, _ in chooser(evaluation).options]
    assert names == [*(f"{d} ({accuracy[d]:.1f} %)" for d in order), "All domains"]


def test_csv_files_equal_the_diagnoses(evaluation: Evaluation, read: Reader) -> None:
    for at, diagnosis in enumerate(hardest_first(evaluation).values()):
        rows = read.table(f"confusion-{at + 1}")
        found = [tuple(int(row[f"predicted_{label}"]) for label in CLASSES) for row in rows]
        assert tuple(found) == diagnosis.confusion
    total = [int(row["images"]) for row in read.table("confusion")]
    assert sum(total) == sum(each.images for each in evaluation.diagnosis.values())
    worst = read.table("classes")
    assert [float(row["recall"]) for row in worst] == sorted(float(row["recall"]) for row in worst)
    assert {f"recall_{domain}" for domain in DOMAINS} < set(worst[0])
    assert sum(int(row["images"]) for row in read.table("reliability")) == sum(total)


def test_mistakes_without_images_are_lines_of_text(evaluation: Evaluation, read: Reader) -> None:
    for mistakes in shown_mistakes(evaluation).values():
        assert len(mistakes) == 12
        for mistake in mistakes:
            assert mistake.path in read.text


def test_of_many_domains_the_hardest_have_a_matrix() -> None:
    evaluation = example_run(3, [f"d{at:02}" for at in range(20)], ["cat", "dog"]).evaluation
    assert evaluation is not None
    sizes = [len(mistakes) for mistakes in shown_mistakes(evaluation).values()]
    assert (len(sizes), max(sizes)) == (12, 6)
    found = chooser(evaluation)
    assert found.label == "Held-out domain, the 12 hardest"
    assert len(found.options) == 13


def test_without_mistakes_there_is_no_gallery(evaluation: Evaluation) -> None:
    found = {name: replace(each, mistakes=()) for name, each in evaluation.diagnosis.items()}
    options = chooser(replace(evaluation, diagnosis=found)).options
    assert not any(isinstance(block, Cards) for _, blocks in options for block in blocks)


def test_only_the_first_of_several_trials_is_diagnosed(evaluation: Evaluation) -> None:
    assert "in the first trial" in diagnosis_section(evaluation, {}).lead
    assert "in the first trial" not in diagnosis_section(replace(evaluation, trials=1), {}).lead


def test_an_older_record_has_no_such_section(run: Run) -> None:
    document = run.to_dict()
    del document["evaluation"]["diagnosis"]
    read = Reader(page(without(Run.from_dict(document), "testbed")))
    assert "mistakes" not in read.sections
    assert "combination" in read.sections


def test_the_calibration_error_is_the_mean_over_domains_as_everywhere(
    evaluation: Evaluation,
) -> None:
    figure = diagnosis_section(evaluation, {}).blocks[-1]
    assert isinstance(figure, Figure)
    errors = evaluation.recommended_row.measure("calibration_error")
    assert f"averaged over domains: {fmean(errors.values()):.1f} points." in figure.text
