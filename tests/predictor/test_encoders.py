"""Functions that compute features."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oodzoo import InputError
from oodzoo.predictor.inputs import BATCH_SIZE, batches, encode, encode_all, require_encoders


def lengths(texts: Any) -> Any:
    return [[len(text), text.count("a")] for text in texts]


def test_all_inputs_in_batches() -> None:
    sizes: list[int] = []

    def counting(texts: list[str]) -> Any:
        sizes.append(len(texts))
        return np.float64(lengths(texts))

    texts = ["a" * (number % 7) for number in range(BATCH_SIZE + 3)]
    encoded = encode_all({"counting": counting, "lengths": lengths}, iter(texts))
    assert sizes == [BATCH_SIZE, 3]
    for features in encoded.features.values():
        assert features.dtype == np.float32
        np.testing.assert_array_equal(features, lengths(texts))
    assert set(encoded.milliseconds) == {"counting", "lengths"}
    assert min(encoded.milliseconds.values()) > 0


@pytest.mark.parametrize("start", [0, 3, 7])
def test_arrays_and_tables_are_sliced(start: int) -> None:
    torch = pytest.importorskip("torch")
    array = np.arange(14).reshape(7, 2)
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame(array, columns=["x", "y"], index=np.arange(7) / 2)
    for inputs in (array, table, torch.tensor(array), table["x"]):
        found = list(batches(inputs, 3, start))
        assert all(type(batch) is type(inputs) for batch in found)
        together = [row for batch in found for row in np.asarray(batch).tolist()]
        assert together == np.asarray(inputs)[start:].tolist()
    rows = list(batches(iter(array.tolist()), 3, start))
    assert [row for batch in rows for row in batch] == array[start:].tolist()


def test_tensors() -> None:
    torch = pytest.importorskip("torch")

    def encoder(texts: list[str]) -> Any:
        return torch.ones((len(texts), 2), requires_grad=True).bfloat16()

    np.testing.assert_array_equal(encode("ones", encoder, ["x", "y"]), np.ones((2, 2)))


@pytest.mark.parametrize(
    ("encoder", "message"),
    [
        (lambda texts: 1 / 0, "the encoder 'net' failed with ZeroDivisionError: division by zero"),
        (lambda texts: None, r"returned the shape \(\) for a batch of 2; expected \(2, d\)"),
        (lambda texts: {"x": 1}, "returned dict; expected an array or a tensor of numbers"),
        (lambda texts: [["x"], ["y"]], "returned list; expected an array or a tensor of numbers"),
        (lambda texts: np.ones(2), r"returned the shape \(2,\) for a batch of 2"),
        (lambda texts: np.ones((1, 4)), r"returned the shape \(1, 4\) for a batch of 2"),
        (lambda texts: np.ones((2, 0)), r"returned the shape \(2, 0\) for a batch of 2"),
    ],
)
def test_what_an_encoder_may_return(encoder: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        encode("net", encoder, ["x", "y"])


def test_widths_that_differ() -> None:
    def encoder(texts: list[str]) -> Any:
        return np.ones((len(texts), 1 + len(texts) % 2))

    with pytest.raises(InputError, match="'odd' returned between 1 and 2 features; it must"):
        encode_all({"odd": encoder}, ["x"] * (BATCH_SIZE + 1))


def test_no_inputs() -> None:
    with pytest.raises(InputError, match="inputs must have one or more samples, got none"):
        encode_all({"lengths": lengths}, [])


def test_what_is_not_an_encoder() -> None:
    with pytest.raises(InputError, match=r"encoders must be a dict \{model: function\}, got list"):
        require_encoders([lengths])
    with pytest.raises(InputError, match="the encoder 'x' must be a function, got ndarray"):
        require_encoders({"x": np.ones(3)})
