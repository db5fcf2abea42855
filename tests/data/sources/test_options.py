"""Options of a source: what is given, what is missing, what is not used."""

from __future__ import annotations

import pytest

from oodzoo import InputError
from oodzoo.data.sources.options import Options, require_used


def test_roles_that_are_not_given_are_missing() -> None:
    options = Options(labels=[], domains="day")
    assert options.given("label") == []
    assert options.given("group") is None
    assert options.missing(("label", "domain", "group")) == ("group",)


def test_an_option_without_use_is_refused() -> None:
    require_used(Options(root="photos"), "a.csv", ("root", "columns"))
    with pytest.raises(InputError, match=r"^labels= is not used with 'a.csv'; it takes root$"):
        require_used(Options(labels=[]), "a.csv", ("root",))
    with pytest.raises(InputError, match="leave it out"):
        require_used(Options(root="photos"), "photos", ())
