"""What would change the result, the largest gain first."""

from __future__ import annotations

from dataclasses import replace

from tests.report.reader import Reader

from oodzoo.evaluation.advice import KINDS, Advice, on_budget, on_target, on_tuning
from oodzoo.evaluation.rows import Gain
from oodzoo.record import Run
from oodzoo.report.advice import TITLES, advice_section
from oodzoo.report.blocks import Changes


def test_the_largest_gain_is_first(run: Run) -> None:
    assert run.evaluation is not None
    section = advice_section(run.evaluation)
    assert section is not None
    changes, _ = section.blocks
    assert isinstance(changes, Changes)
    assert [(each.title, each.gain, each.basis) for each in changes.changes] == [
        ("More domains", "+2.5 points", "by the last domain"),
        ("More images of the same domains", "+0.2 points", "by the last images"),
        ("Less time per image", "\N{MINUS SIGN}4.0 points", "measured"),
        ("Fine-tuning", "", "not measured"),
    ]


def test_the_advice_is_on_the_page(run: Run, read: Reader) -> None:
    assert run.evaluation is not None
    for advice in run.evaluation.advice:
        assert advice.text.split(": oodzoo")[0] in read.text


def test_commands_can_be_run_in_the_folder_of_the_report(run: Run) -> None:
    assert run.evaluation is not None
    tuned = on_tuning(Gain("pool", 3.0, 1.0, 2.0), "Pool", recommended=True)
    budget = on_budget(42.0, "net", 80.0, 80.0, 2.2)
    advice = (on_target(None, 80.0), on_tuning(None), on_target(85.0, 80.0), tuned, budget)
    section = advice_section(replace(run.evaluation, advice=advice, learning_curve=None))
    assert section is not None
    (changes,) = section.blocks
    assert isinstance(changes, Changes)
    assert {command for each in changes.changes for command in each.commands} == {
        "oodzoo evaluate store --with-target",
        "oodzoo evaluate store --tune --data DATA",
        "oodzoo fit store --target FOLDER --out adapted",
        "oodzoo fit store --choose single --out single",
        "oodzoo tune single DATA --out tuned",
        "oodzoo fit store --max-ms 42 --out faster",
    }
    texts = [each.text.partition(" This needs ")[0] for each in changes.changes]
    assert "Fine-tuning the top model may help: this measures by how much." in texts
    assert not any("oodzoo" in text for text in texts)


def test_a_gain_that_is_rounded_to_zero_has_no_sign(run: Run) -> None:
    assert run.evaluation is not None
    advice = (Advice("budget", "As accurate.", -0.01),)
    section = advice_section(replace(run.evaluation, advice=advice, learning_curve=None))
    assert section is not None
    (changes,) = section.blocks
    assert isinstance(changes, Changes)
    assert changes.changes[0].gain == "0.0 points"


def test_nothing_is_known_of_older_records(run: Run) -> None:
    assert run.evaluation is not None
    assert advice_section(replace(run.evaluation, advice=(), learning_curve=None)) is None


def test_all_kinds_have_a_title() -> None:
    assert set(TITLES) == set(KINDS)
