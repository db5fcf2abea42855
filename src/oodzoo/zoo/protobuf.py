"""The wire format of protobuf, as far as reading and extending ONNX files needs it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def fields(view: Any) -> Iterator[tuple[int, Any]]:
    """The (field number, value) pairs of a message."""
    at = 0
    while at < len(view):
        key, at = _varint(view, at)
        kind = key & 7
        value: Any
        if kind == 0:
            value, at = _varint(view, at)
        elif kind == 2:
            length, at = _varint(view, at)
            value, at = view[at : at + length], at + length
        else:
            width = 8 if kind == 1 else 4
            value, at = view[at : at + width], at + width
        yield key >> 3, value


def values(message: Any, number: int) -> Iterator[Any]:
    """The values of one field of a message."""
    return (value for key, value in fields(message) if key == number)


def varints(view: memoryview) -> Iterator[int]:
    """The numbers of a packed field."""
    at = 0
    while at < len(view):
        value, at = _varint(view, at)
        yield value


def encode(number: int, value: int | str | bytes) -> bytes:
    """Encode a field: a number that is not negative, a text, or the content of a message.

    Examples
    --------
    >>> list(fields(encode(1, 300) + encode(2, "a")))
    [(1, 300), (2, b'a')]
    """
    if isinstance(value, int):
        return _encoded(number << 3) + _encoded(value)
    content = value.encode() if isinstance(value, str) else value
    return _encoded(number << 3 | 2) + _encoded(len(content)) + content


def _encoded(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _varint(view: Any, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = view[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
