from __future__ import annotations

from pathlib import Path

import pytest

from oodzoo.errors import InputError
from oodzoo.zoo.prompts import PROMPTS, Prompts, parse_class_names, read_prompts, texts_of


def test_the_default_texts_are_the_classes_with_blanks() -> None:
    assert texts_of(["alarm_clock", "bike_"], None) == ("alarm clock", "bike")
    assert all("{}" in prompt for prompt in PROMPTS)
    assert Prompts().is_default
    assert not Prompts(templates=("{}",)).is_default
    Prompts().require_classes(["anything", "any thing"])  # checked where they are embedded


def test_names_of_a_file_and_of_a_line(tmp_path: Path) -> None:
    file = tmp_path / "names.txt"
    file.write_text("\ufeff# classes\n\nn1 = a dog, sitting\nn2=cat = feline\n", encoding="utf-8")
    assert parse_class_names(str(file)) == {"n1": "a dog, sitting", "n2": "cat = feline"}
    assert parse_class_names("n1=dog,n2 = cat") == {"n1": "dog", "n2": "cat"}


def test_prompts_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "prompts.txt"
    file.write_text("a photo of a {}.\n\n# other styles\n  art of the {}.  \n")
    assert read_prompts(file) == ("a photo of a {}.", "art of the {}.")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"a": "x", "b": "y"}, r"lack 1 class of the data: 'c'; give"),
        ({"b": "y"}, r"lack 2 classes of the data: 'a', 'c'; give"),
        ({"a": "x", "b": "y", "c": "z", "cc": "w"}, r"have 'cc', which is not a class; did you"),
        ({"a": "x", "b": " ", "c": "z"}, "the name of the class 'b' is empty"),
        ({"a": "x", "b": "x", "c": "z"}, "two classes have the name 'x'"),
    ],
)
def test_names_that_do_not_fit_the_classes(names: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        Prompts(names).require_classes(["a", "b", "c"])
    assert "\n" not in str(caught.value)


def test_classes_with_the_same_text() -> None:
    with pytest.raises(InputError, match="two classes have the name 'a b'"):
        texts_of(["a_b", "a b"], None)


@pytest.mark.parametrize(
    ("templates", "message"),
    [
        ((), "there is no prompt; give at least one"),
        (("a photo of a dog",), r"the prompt 'a photo of a dog' has no place .*; write {} there"),
        (("a {name}",), r"the prompt 'a {name}' has no place"),
        (("a {}.", "the {}.", "a {}."), r"the prompt 'a {}\.' is given twice"),
    ],
)
def test_templates_that_cannot_be_used(templates: tuple[str, ...], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        Prompts(templates=templates)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("names.txt", "there is no file 'names.txt'"),
        ("n1=dog,cat", "--class-names: 'cat' is not CLASS=TEXT"),
        ("=dog", "--class-names: '=dog' is not CLASS=TEXT"),
        ("n1=dog,n1=cat", "--class-names names the class 'n1' twice"),
    ],
)
def test_names_that_cannot_be_read(given: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_class_names(given)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read '.*none': No such file"):
        read_prompts(tmp_path / "none")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(InputError, match=r"cannot read '.*bytes': "):
        parse_class_names(str(tmp_path / "bytes"))
    (tmp_path / "empty").write_text("# nothing\n")
    with pytest.raises(InputError, match=r"the file '.*empty': there is no prompt"):
        read_prompts(tmp_path / "empty")
