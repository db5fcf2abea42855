"""Options of a run: checked before it starts; written as TOML, and read again."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oodzoo.core.errors import InputError
from oodzoo.pipeline.config import (
    FileOption,
    RunConfig,
    Value,
    config_text,
    read_config,
    without_secrets,
    write_config,
)
from oodzoo.tasks import CLASSIFICATION, task_of


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"top_k": 0}, "top_k must be a positive integer"),
        ({"protocol": "slow"}, "unknown protocol 'slow'; expected one of fast, domainbed"),
        ({"score": "zodo"}, "unknown score 'zodo'"),
        ({"max_ms": 0}, "max_ms must be a positive number of milliseconds, got 0"),
        ({"max_parameters": "many"}, "max_parameters must be a positive number .* got 'many'"),
        ({"licence": ""}, "licence must be names or wildcards .* got ''"),
        ({"seed": -1}, "seed must be 0 or more, got -1"),
        ({"budget": "soon"}, "a budget is a duration above 0, such as 30m, .* got 'soon'"),
        ({"engine": "spark"}, "unknown engine 'spark'; expected one of local, ray"),
        ({"address": "head:6379"}, "the address 'head:6379' is of a Ray cluster; add the engine"),
    ],
)
def test_a_wrong_choice_is_refused_before_the_work(wrong: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        RunConfig(**wrong)


@pytest.mark.parametrize(
    ("options", "target", "reason"),
    [
        ({}, True, "a target needs classes, but the task is 'regression'"),
        ({"protocol": "domainbed"}, False, "the protocol 'domainbed' needs classes"),
        ({"published": "PACS"}, False, "published accuracies are of classes"),
        ({"score": "accuracy"}, False, "the score 'accuracy' is not for labels of the kind"),
    ],
)
def test_what_is_for_classes_only(options: dict[str, Any], target: bool, reason: str) -> None:
    config = RunConfig(**options)
    config.require_possible(CLASSIFICATION, target=target)
    with pytest.raises(InputError, match=reason):
        config.require_possible(task_of("regression", ("age",)), target=target)
    RunConfig().require_possible(task_of("regression", ("age",)), target=False)
    with pytest.raises(InputError, match="no accuracies are published for 'pacs', expected"):
        RunConfig(published="pacs").require_possible(CLASSIFICATION, target=False)


# --- as TOML -----------------------------------------------------------------------------------

OPTIONS = [
    FileOption("data", "text", "Where the images are."),
    FileOption("limit", "integer"),
    FileOption("max_ms", "number"),
    FileOption("race", "flag"),
    FileOption("prompt", "texts"),
]

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(
    data=texts,
    limit=st.none() | st.integers(-(2**40), 2**40),
    max_ms=st.none() | st.floats(allow_nan=False),
    race=st.booleans(),
    prompt=st.none() | st.lists(texts, min_size=1, max_size=3),
)
def test_what_is_written_is_read_again(
    data: str, limit: int | None, max_ms: float | None, race: bool, prompt: list[str] | None
) -> None:
    values: dict[str, Value | None] = {
        "data": data, "limit": limit, "max_ms": max_ms, "race": race, "prompt": prompt,
    }  # fmt: skip
    plain = {key: value for key, value in values.items() if value is not None}
    expected = {key: without_secrets(value) for key, value in plain.items()}
    assert tomllib.loads(config_text("oodzoo.toml", OPTIONS, values)) == expected


def test_a_file_with_the_same_values_is_left_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "oodzoo.toml"
    file.write_text('# my notes\ndata = "photos"\nlimit = 3\n')
    write_config(file, OPTIONS, {"data": "photos", "limit": 3})
    assert file.read_text().startswith("# my notes")
    write_config(file, OPTIONS, {"data": "photos", "limit": 4})
    assert "# Where the images are.\n" in file.read_text()
    assert read_config(file, OPTIONS) == {"data": "photos", "limit": 4}


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("https://ada:pw@host:5000/", "https://ada@host:5000/"),
        ("postgresql+psycopg://ada:p%40w@host/db", "postgresql+psycopg://ada@host/db"),
        ("postgresql://ada:p@w@host/db", "postgresql://ada@host/db"),
        ("https://host:80/?mail=a@b", "https://host:80/?mail=a@b"),
        ("https://x.net/a.csv?sv=1&sig=a%3D&sp=r", "https://x.net/a.csv?sv=1&sig=&sp=r"),
        ("https://x/a.csv?v=1&X-Amz-Signature=abc&b=2", "https://x/a.csv?v=1&X-Amz-Signature=&b=2"),
        ("https://x/?access_token=abc#part", "https://x/?access_token=#part"),
        ("s3://bucket/a:b@c", "s3://bucket/a:b@c"),
        ("sqlite:///mlflow.db", "sqlite:///mlflow.db"),
        ("path=file,label=y", "path=file,label=y"),
    ],
)
def test_secrets_are_left_out(value: str, shown: str) -> None:
    assert without_secrets(value) == shown
    assert without_secrets([value]) == [shown]
    text = config_text("x", OPTIONS, {"data": value, "prompt": [value]})
    assert tomllib.loads(text) == {"data": shown, "prompt": [shown]}


def test_an_option_that_is_given_twice(tmp_path: Path) -> None:
    file = tmp_path / "oodzoo.toml"
    file.write_text("max-ms = 1.5\nmax_ms = 2\n")
    with pytest.raises(InputError, match="the option 'max_ms' is given twice"):
        read_config(file, OPTIONS)
