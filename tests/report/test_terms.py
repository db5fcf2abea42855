"""Which quantities are shown for which score."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.report.example import example_run

from oodzoo.ranking.result import Ranking
from oodzoo.report.terms import TERMS, domain_terms, terms_of

ZOOD = ["discriminability", "stability"]
DEFAULT = ["evidence", "transfer"]


def ranking(score: str = "unseen", *, target: bool = False) -> Ranking:
    found = example_run(3, score=score, target=target).ranking
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("score", "expected"),
    [
        ("unseen", DEFAULT),
        ("transfer", DEFAULT),
        ("accuracy", DEFAULT),
        ("logme", DEFAULT),  # it is the evidence
        ("zood", ZOOD),
        ("discriminability", ZOOD),
        ("stability", ZOOD),
        ("balanced_accuracy", ["score", *DEFAULT]),
        ("knn", ["score", *DEFAULT]),
    ],
)
def test_terms_of_a_score(score: str, expected: list[str]) -> None:
    assert [term.name for term in terms_of(ranking(score))] == expected


def test_images_of_a_target_have_an_agreement() -> None:
    terms = terms_of(ranking(target=True))
    assert [term.name for term in terms] == [*DEFAULT, "agreement"]


def test_a_score_of_its_own_has_its_name() -> None:
    assert terms_of(ranking("knn"))[0].heading == "knn"


def test_terms_by_domain() -> None:
    assert [term.name for term in domain_terms(ranking())] == ["transfer", "accuracy"]
    assert [term.name for term in domain_terms(ranking("stability"))] == ZOOD


def test_a_term_that_is_not_known_for_any_domain_is_left_out() -> None:
    given = ranking()
    rows = [
        replace(row, folds=tuple(replace(fold, transfer=None) for fold in row.folds))
        for row in given.rows
    ]
    unknown = replace(given, rows=tuple(rows))
    assert [term.name for term in domain_terms(unknown)] == ["accuracy"]


def test_values_have_units() -> None:
    assert TERMS["transfer"].show(12.345) == "12.3 %"
    assert TERMS["evidence"].show(-0.5) == "\N{MINUS SIGN}0.500"
    assert TERMS["agreement"].show(None) == "–"
    assert (TERMS["transfer"].heading, TERMS["evidence"].heading) == ("Transfer %", "Evidence")
