"""Options of a source: what is given, what is missing, what is not used."""

from __future__ import annotations

import pytest

from oodzoo import InputError
from oodzoo.data.sources.base import Options, require_columns, require_each, require_used


def test_roles_that_are_not_given_are_missing() -> None:
    options = Options(labels=[], domains="day")
    assert options.given("label") == []
    assert options.given("group") is None
    assert options.missing(("label", "domain", "group")) == ("group",)


def test_a_source_with_domains_is_not_one_domain() -> None:
    with pytest.raises(InputError, match=r"^'a.csv' has domains of its own; give it without"):
        require_used(Options(domains="day"), "a.csv", ("root", "columns"))


@pytest.mark.parametrize("columns", ["label=y", ["label"], {"label": 3}])
def test_columns_are_a_dict(columns: object) -> None:
    require_columns(None)
    require_columns({"label": "y"})
    with pytest.raises(InputError, match="columns= must be a dict such as"):
        require_columns(columns)


def test_a_name_of_a_column_is_not_a_sequence_of_values() -> None:
    require_each(Options(labels=["cat"], domains=("day",)))
    words = r"^domains= is one string, 'site'; .* with columns=\{'domain': 'site'\}$"
    with pytest.raises(InputError, match=words):
        require_each(Options(labels=["cat"], domains="site"))


def test_an_option_without_use_is_refused() -> None:
    require_used(Options(root="photos"), "a.csv", ("root", "columns"))
    with pytest.raises(InputError, match=r"^labels= is not used with 'a.csv'; it takes root$"):
        require_used(Options(labels=[]), "a.csv", ("root",))
    with pytest.raises(InputError, match="leave it out"):
        require_used(Options(root="photos"), "photos", ())
