from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oodzoo.errors import InputError
from oodzoo.zoo.wildcards import has_wildcard, matching

NAMES = ["vit_small_patch16.dino", "vit_small_patch16.augreg", "vit_base.dino", "resnet50.a1"]


def complaint(pattern: str) -> str:
    with pytest.raises(InputError) as caught:
        matching(pattern, NAMES, "the shelf has no model")
    return str(caught.value)


def test_characters() -> None:
    assert [has_wildcard(text) for text in ("a*", "a?b", "[ab]", "a-b.c/d", "")] == [
        *(True, True, True),
        *(False, False),
    ]


def test_matches_are_in_order() -> None:
    assert matching("vit_small*", NAMES, "") == NAMES[:2]
    assert matching("*dino", NAMES, "") == [NAMES[0], NAMES[2]]
    assert matching("resnet5?.a[1-3]", NAMES, "") == ["resnet50.a1"]
    assert matching("vit_base.dino", NAMES, "") == ["vit_base.dino"]


def test_case_matters() -> None:
    assert complaint("ViT*") == "the shelf has no model that matches 'ViT*'"


@pytest.mark.parametrize(
    ("pattern", "near"),
    [
        ("vit_smoll*", "did you mean vit_small*?"),
        ("resmet*", "did you mean resnet*?"),
        ("*dinp*", "did you mean *dino*?"),
    ],
)
def test_near_patterns_are_named(pattern: str, near: str) -> None:
    assert complaint(pattern) == f"the shelf has no model that matches {pattern!r}; {near}"


def test_a_near_name_is_named() -> None:
    assert complaint("vit_bas.dino") == (
        "the shelf has no model 'vit_bas.dino'; did you mean vit_base.dino or "
        "vit_small_patch16.dino?"
    )


@pytest.mark.parametrize("pattern", ["*", "[", "?"])
def test_nothing_to_match(pattern: str) -> None:
    with pytest.raises(InputError, match="no model that matches"):
        matching(pattern, [], "the shelf has no model")


@given(st.text("ab*?[]-", min_size=1), st.lists(st.text("ab[", min_size=1)))
def test_suggestions_match_something(pattern: str, names: list[str]) -> None:
    try:
        assert matching(pattern, names, "no") == [n for n in names if fnmatchcase(n, pattern)]
    except InputError as error:
        _, asked, near = str(error).partition("; did you mean ")
        for each in near.removesuffix("?").split(" or ") if asked else ():
            assert any(fnmatchcase(name, each) for name in names)
