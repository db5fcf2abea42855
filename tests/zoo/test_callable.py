from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.zoo.data import noise

from oodzoo.core.errors import InputError
from oodzoo.zoo.callable import CallableModel, model_from_callable
from oodzoo.zoo.preprocessing import square

MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)


def _model(function: Any, version: str = "1", **options: Any) -> CallableModel:
    return model_from_callable(
        function, name="mine", preprocessing=square(8, MEAN, STD), version=version, **options
    )


def _colours(batch: Any) -> Any:
    return batch.mean(axis=(2, 3))


@pytest.fixture
def pixels() -> Any:
    return noise(3, 8)


def test_a_function_gets_the_normalised_batch(pixels: Any) -> None:
    model = _model(_colours)
    features, logits = model(pixels)
    expected = (pixels.mean(axis=(1, 2)) / 255 - MEAN) / STD
    np.testing.assert_allclose(features, expected, atol=1e-5)
    assert logits is None
    assert features.dtype == np.float32
    assert (model.info.feature_dim, model.info.n_logits) == (3, None)


def test_tensors_with_gradients_and_in_half_precision_are_accepted(torch: Any, pixels: Any) -> None:
    def function(batch: Any) -> Any:
        features = torch.from_numpy(batch).mean((2, 3)) @ torch.ones(3, 4, requires_grad=True)
        return features, features.bfloat16()

    features, logits = _model(function)(pixels)
    np.testing.assert_allclose(features[:, 0], _model(_colours)(pixels).features.sum(1), atol=1e-5)
    np.testing.assert_allclose(np.asarray(logits), features, rtol=0.01)


def test_fingerprint_depends_on_the_version() -> None:
    first = _model(_colours).info.fingerprint
    assert _model(lambda batch: -_colours(batch)).info.fingerprint == first
    assert _model(_colours, version="2").info.fingerprint != first


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda batch: batch, r"features of shape \(2, 3, 8, 8\) for a batch of 2"),
        (lambda batch: batch.mean(axis=(2, 3))[0], r"features of shape \(3,\)"),
        (lambda batch: (_colours(batch), batch), r"logits of shape \(2, 3, 8, 8\)"),
        (lambda batch: (batch, batch, batch), "returned a tuple of 3; expected features, or"),
        (lambda batch: "features", "returned str as features; expected an array"),
        (lambda batch: _colours(batch) * np.nan, "returned NaN or infinite features"),
        (lambda batch: batch["x"], "the callable failed on a batch .* with IndexError"),
        (3, "expected a callable, got 3"),
    ],
)
def test_bad_outputs_are_rejected_in_one_line(function: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        _model(function)
    assert "\n" not in str(caught.value)
