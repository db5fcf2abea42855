"""The wire format of protobuf: what is encoded is read back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from oodzoo.zoo.protobuf import encode, fields, values, varints

numbers = st.integers(1, 2**29 - 1)
contents = st.one_of(st.integers(0, 2**64 - 1), st.text(), st.binary())


@given(st.lists(st.tuples(numbers, contents)))
def test_encoded_fields_are_read_back(pairs: list[tuple[int, int | str | bytes]]) -> None:
    message = b"".join(encode(number, value) for number, value in pairs)
    expected = [(n, v.encode() if isinstance(v, str) else v) for n, v in pairs]
    assert [(n, v if isinstance(v, int) else bytes(v)) for n, v in fields(message)] == expected
    for number, _ in pairs:
        assert list(values(message, number)) == [v for n, v in expected if n == number]


@given(st.lists(st.integers(0, 2**63 - 1)))
def test_packed_numbers(found: list[int]) -> None:
    ((_, packed),) = fields(encode(1, b"".join(encode(0, number)[1:] for number in found)))
    assert list(varints(packed)) == found


def test_fixed_numbers_are_skipped() -> None:
    message = bytes([1 << 3 | 1]) + b"12345678" + bytes([2 << 3 | 5]) + b"1234" + encode(3, 7)
    assert list(fields(message)) == [(1, b"12345678"), (2, b"1234"), (3, 7)]
