"""Texts as samples."""

from __future__ import annotations

import hashlib

import msgspec

from oodzoo.data.files import LocalFile, StoredFile, TextFile, absolute, modality_of, read_bytes


def test_the_bytes_are_the_text() -> None:
    file = TextFile("naïve 犬", "row 3 of reviews.csv")
    assert read_bytes(file) == "naïve 犬".encode()
    assert file.size() == len("naïve 犬".encode())
    assert (str(file), file.remote) == ("row 3 of reviews.csv", None)
    assert read_bytes(TextFile("a\ud800b", "row 0")) == b"a?b"  # half of a character


def test_other_processes_read_it() -> None:
    file = absolute(TextFile("a text", "row 0"))
    sent = msgspec.json.decode(msgspec.json.encode(file), type=StoredFile)
    assert sent == file
    assert hashlib.sha256(read_bytes(sent)).hexdigest() == hashlib.sha256(b"a text").hexdigest()


def test_modality() -> None:
    assert modality_of([TextFile("a", "b")]) == "text"
    assert modality_of([LocalFile("a.png")]) == modality_of([]) == "image"
