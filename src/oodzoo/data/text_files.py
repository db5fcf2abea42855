"""Texts as samples: the bytes of a sample are its text in UTF-8."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec


class TextFile(msgspec.Struct, frozen=True, tag="text"):
    """A text in a table; as a string, what messages call it."""

    text: str
    name: str

    @property
    def remote(self) -> None:
        return None

    def __str__(self) -> str:
        return self.name

    def size(self) -> int:
        return len(self.read())

    def read(self) -> bytes:
        return self.text.encode(errors="replace")


def modality_of(files: Iterable[Any]) -> Literal["image", "text"]:
    """Whether samples are texts; all are of one kind."""
    return "text" if isinstance(next(iter(files), None), TextFile) else "image"
