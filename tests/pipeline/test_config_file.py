"""Options as TOML: what is written is read again, and secrets are left out."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oodzoo.core.errors import InputError
from oodzoo.pipeline.config import (
    Option,
    Value,
    config_text,
    read_config,
    without_secrets,
    write_config,
)

OPTIONS = [
    Option("data", "text", "Where the images are."),
    Option("limit", "integer"),
    Option("max_ms", "number"),
    Option("race", "flag"),
    Option("prompt", "texts"),
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


def test_a_path_that_is_no_text_can_be_written(tmp_path: Path) -> None:
    file = tmp_path / "oodzoo.toml"
    write_config(file, OPTIONS, {"data": "caf\udce9"})
    assert read_config(file, OPTIONS) == {"data": "caf?"}


def test_an_option_that_is_given_twice(tmp_path: Path) -> None:
    file = tmp_path / "oodzoo.toml"
    file.write_text("max-ms = 1.5\nmax_ms = 2\n")
    with pytest.raises(InputError, match="the option 'max_ms' is given twice"):
        read_config(file, OPTIONS)
