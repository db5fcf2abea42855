"""`oodzoo models`: tables, filters and bad input."""

from __future__ import annotations

import pytest
from tests.conftest import Run


def names(run: Run, *arguments: str) -> list[str]:
    return [model["name"] for model in run("models", *arguments, "--json").document["models"]]


def test_the_embedded_zoo_is_the_default(run: Run) -> None:
    assert len(names(run)) == 19
    assert run("models").out.splitlines()[-1] == "19 models"


def test_filters_narrow_the_list(run: Run) -> None:
    every = names(run, "modern")
    small = names(run, "modern", "--max-parameters", "30")
    assert 0 < len(small) < len(every)
    assert all("vit" in name for name in names(run, "modern", "--name", "*vit*"))
    assert names(run, "demo", "--name", "cnn_photos") == ["cnn_photos"]


def test_one_model_is_singular(run: Run) -> None:
    assert run("models", "demo", "--name", "cnn_photos").out.splitlines()[-1] == "1 model"


def test_models_that_cannot_be_loaded_are_listed_with_the_reason(run: Run) -> None:
    missing = run("models", "paper", "--json").document["missing"]
    assert len(missing) == 10
    assert all(entry["reason"] for entry in missing)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["moden"], "'moden' is not a"),
        (["demo", "--source", "keras"], "unknown source 'keras'"),
        (["demo", "--max-parameters", "-1"], "--max-parameters must be a number of millions"),
    ],
)
def test_bad_input_is_one_line(run: Run, arguments: list[str], words: str) -> None:
    assert words in run("models", *arguments).complaint
