"""Tables of test beds in 80 columns."""

from __future__ import annotations

import pytest

from oodzoo.cli.terminal import Terminal
from oodzoo.cli.testbed_tables import comparison_document, show_bed, show_comparison, show_domains
from oodzoo.testbed import Column, TestBed, compare, judge

ACCURACY = {"a": 50.0, "b": 60.0, "c": 70.0, "d": 80.0}


def toy(name: str = "toy") -> TestBed:
    columns = {
        "good": Column({"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0}),
        "bad": Column({"a": 4.0, "b": 3.0, "c": 2.0, "d": None}),
    }
    reasons = {"bad": {"d": "it has no head"}}
    return judge({"name": name}, ACCURACY, columns, left_out=reasons, resamples=100)


def test_the_best_score_comes_first(capsys: pytest.CaptureFixture[str]) -> None:
    show_bed(Terminal(), toy())
    out, err = capsys.readouterr()
    lines = [line.split() for line in out.splitlines()]
    names = [words[0] for words in lines if words and words[0] in ("good", "bad")]
    assert names == ["good", "bad"]
    assert "1.00" in out
    assert "bad: not available for 1 model: d (it has no head)" in err
    (header,) = [words for words in lines if words[:1] == ["score"]]
    assert header.index("regret") < header.index("w.")


def test_each_test_domain_has_a_column(capsys: pytest.CaptureFixture[str]) -> None:
    reverse = dict(zip(ACCURACY, reversed(ACCURACY.values()), strict=True))
    score = Column({"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0})
    by_domain = {"same": ACCURACY, "reversed": reverse}
    mean = dict.fromkeys(ACCURACY, 65.0)
    show_domains(
        Terminal(), judge({"name": "toy"}, mean, {"s": score}, by_domain=by_domain, resamples=9)
    )
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["score", "same", "reversed"] in lines
    assert ["s", "0.0", "1.00", "30.0", "-1.00"] in lines


def test_many_data_sets_fit_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    beds = {f"data_set_number_{k}": toy(f"data_set_number_{k}") for k in range(9)}
    show_comparison(Terminal(), compare(beds))
    out = capsys.readouterr().out
    assert max(len(line.rstrip()) for line in out.splitlines()) <= 80
    assert all(name in out for name in beds)


def test_a_comparison_as_json() -> None:
    document = comparison_document(compare({"one": toy("one"), "two": toy("two")}))
    assert document["weighted_tau"]["one"]["good"] == pytest.approx(1.0)
    assert document["regret"]["one"] == {"good": 0.0, "bad": 30.0}
    assert document["means"]["good"]["beds"] == 2
    assert set(document["results"]) == {"one", "two"}
