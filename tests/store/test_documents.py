"""JSON documents with checksums."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from tests.store.data import flip, nested

from oodzoo._io import read_json
from oodzoo.errors import InputError
from oodzoo.store.documents import read_document, sealed, unsealed

CONTENT = b'{"schema": 2, "n": [1, 2]}'


def test_a_document_with_its_checksum(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(CONTENT)
    for sha256 in (None, hashlib.sha256(CONTENT).hexdigest()):
        assert read_document(path, "the list", sha256, "redo it") == {"schema": 2, "n": [1, 2]}


def test_every_flipped_bit_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    for bit in range(8 * len(CONTENT)):
        path.write_bytes(CONTENT)
        flip(path, bit)
        with pytest.raises(InputError) as caught:
            read_document(path, "the list", hashlib.sha256(CONTENT).hexdigest(), "redo it")
        message = str(caught.value)
        assert "\n" not in message
        assert message.startswith(f"the list '{path}' is damaged: ")
        assert message.endswith("; redo it")


@pytest.mark.parametrize("content", [nested(), '{"n": NaN}'], ids=["nested", "nan"])
def test_a_document_that_is_no_json_has_the_advice(tmp_path: Path, content: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(content)
    for sha256 in (None, hashlib.sha256(content.encode()).hexdigest()):
        with pytest.raises(InputError, match=rf"^the list '{path}' is damaged: ") as caught:
            read_document(path, "the list", sha256, "redo it")
        assert "\n" not in str(caught.value)
        assert str(caught.value).endswith("; redo it")


def test_a_missing_document(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read the list .*No such file.*; redo it$"):
        read_document(tmp_path / "a.json", "the list", None, "redo it")


@pytest.mark.parametrize(
    ("schema", "advice"), [("3", "upgrade oodzoo"), ("1", "extract into a"), ('"x"', "extract")]
)
def test_another_schema(tmp_path: Path, schema: str, advice: str) -> None:
    (tmp_path / "a.json").write_text(f'{{"schema": {schema}}}')
    with pytest.raises(InputError, match=rf"the list .* has the schema .*; {advice}"):
        read_document(tmp_path / "a.json", "the list", None, "redo it")


# --- a checksum in the document --------------------------------------------------------------

DOCUMENT = {"b": [1, None, 0.1], "a": {"ü\n": "\udc80"}}


def test_a_sealed_document() -> None:
    content = sealed(DOCUMENT)
    document = json.loads(content)
    assert document == DOCUMENT | {"sha256": document["sha256"]}
    text = json.dumps(DOCUMENT, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    expected = hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()
    assert document["sha256"] == expected
    assert unsealed(document, "the list") == DOCUMENT
    # the order of the keys and the white space do not matter
    assert sealed(dict(reversed(DOCUMENT.items()))) == content
    assert unsealed(json.loads(json.dumps(document, indent=4)), "the list") == DOCUMENT


@pytest.mark.parametrize("sha256", [None, "", "0" * 64, 7, ["x"], sealed(DOCUMENT).decode()])
def test_another_checksum(sha256: object) -> None:
    whole = "^the list is damaged: its content does not match its checksum$"
    with pytest.raises(InputError, match=whole):
        unsealed(DOCUMENT | {"sha256": sha256}, "the list")
    with pytest.raises(InputError, match=whole):
        unsealed(DOCUMENT, "the list")


def test_every_flipped_bit_of_a_sealed_document_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    content = sealed({"absent": {"4": None}, "n": 2})
    for bit in range(8 * len(content)):
        path.write_bytes(content)
        flip(path, bit)
        with pytest.raises(InputError, match="is damaged"):
            unsealed(read_json(path, "the list"), "the list")
