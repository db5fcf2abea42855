"""Pooling: which one fits the shape of an output, and its result against a literal oracle."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.oracles.pooling import pool_map, pool_tokens

from oodzoo.errors import InputError
from oodzoo.zoo.layers_pooling import POOLINGS, Pool, choose_pool, prefix_tokens

SQUARE = (224, 224)


@pytest.mark.parametrize(
    ("shape", "crop", "expected"),
    [
        ((2, 64), SQUARE, Pool("vector", None)),
        ((2, 64, 7, 7), SQUARE, Pool("map", "mean")),
        ((2, 64, 1, 1), SQUARE, Pool("map", "mean")),
        ((2, 7, 7, 768), SQUARE, Pool("map_last", "mean")),
        ((2, 1, 1, 768), SQUARE, Pool("map_last", "mean")),
        ((2, 7, 7, 7), SQUARE, Pool("map", "mean")),
        ((2, 64, 7, 14), (224, 448), Pool("map", "mean")),
        ((2, 7, 14, 64), (224, 448), Pool("map_last", "mean")),
        ((2, 64, 8, 13), (230, 400), Pool("map", "mean")),
        ((2, 196, 384), SQUARE, Pool("tokens", "mean")),
        ((2, 197, 384), SQUARE, Pool("tokens", "cls", 1)),
        ((2, 201, 384), SQUARE, Pool("tokens", "cls", 5)),
        ((2, 99, 384), (224, 448), Pool("tokens", "cls", 1)),
        ((2, 1000, 384), SQUARE, Pool("tokens", "mean")),
    ],
)
def test_the_default_follows_from_the_shape(
    shape: tuple[int, ...], crop: tuple[int, int], expected: Pool
) -> None:
    assert choose_pool(shape, 2, crop, None) == expected


def test_registers_without_a_class_token() -> None:
    """Networks that have register tokens only: they are left out of the mean."""
    assert choose_pool((2, 260, 8), 2, (256, 256), None, class_token=False) == Pool(
        "tokens", "mean", 4
    )
    with pytest.raises(InputError, match="tokens without a class token; use ':mean'"):
        choose_pool((2, 260, 8), 2, (256, 256), "cls", class_token=False)


def test_a_network_with_a_class_token_that_is_added_later() -> None:
    assert choose_pool((2, 196, 8), 2, SQUARE, None, class_token=True) == Pool("tokens", "mean")


@pytest.mark.parametrize(
    ("shape", "pooling", "words"),
    [
        ((2,), None, r"gives an output of shape \(2,\) for 2 images; expected \(n, d\)"),
        ((2, 3, 4, 5, 6), None, "choose another layer"),
        ((98, 49, 32), None, r"shape \(98, 49, 32\) for 2 images"),
        ((2, 0, 32), None, "choose another layer"),
        ((2, 64), "mean", "which needs no pooling; remove ':mean'"),
        ((2, 64), "cls", "remove ':cls'"),
        ((2, 64, 7, 7), "cls", "a feature map without a class token; use ':mean' instead of"),
        ((2, 64, 7, 7), "both", "a feature map without a class token"),
        ((2, 196, 64), "both", "tokens without a class token; use ':mean' instead of ':both'"),
        ((2, 197, 64), "max", "unknown pooling 'max'; use cls, mean, both"),
    ],
)
def test_a_pooling_that_does_not_fit(shape: tuple[int, ...], pooling: Any, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        choose_pool(shape, 2, SQUARE, pooling)
    assert "\n" not in str(caught.value)


@given(side=st.integers(2, 64), prefix=st.integers(0, 5))
def test_tokens_before_a_square_grid_are_counted(side: int, prefix: int) -> None:
    n_tokens = side * side + prefix
    if (side + 1) ** 2 > n_tokens:
        assert prefix_tokens(n_tokens, SQUARE) == prefix


@given(
    height=st.integers(1, 40), width=st.integers(1, 40), patch=st.integers(4, 32), more=st.just(1)
)
def test_one_class_token_is_found_in_images_of_any_shape(
    height: int, width: int, patch: int, more: int
) -> None:
    crop = (height * patch, width * patch)
    if prefix_tokens(height * width + more, crop):
        assert prefix_tokens(height * width + more, crop) == more
    assert prefix_tokens(height * width, crop) == 0


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_pooled_values_equal_the_oracle(torch: Any, dtype: str) -> None:
    noise = torch.Generator().manual_seed(0)
    values = torch.randn((3, 6, 6, 6), generator=noise).to(getattr(torch, dtype))
    exact = values.float().numpy()
    close = partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6)
    pooled = Pool("map", "mean")(values)
    assert pooled.dtype == torch.float32
    close(pooled, pool_map(exact))
    last = Pool("map_last", "mean")(values)
    close(last, pool_map(exact.transpose(0, 3, 1, 2)))
    tokens = values.reshape(3, 36, 6)[:, :26]
    for pooling in POOLINGS:
        pooled = Pool("tokens", pooling, prefix=1)(tokens)
        expected = pool_tokens(tokens.float().numpy(), pooling, 1)
        close(pooled, expected)


@pytest.mark.parametrize(
    "pool", [Pool("vector", None), Pool("tokens", "cls", 1), Pool("tokens", "mean")]
)
def test_later_changes_in_place_do_not_reach_the_result(torch: Any, pool: Pool) -> None:
    values = torch.ones((2, 5) if pool.layout == "vector" else (2, 5, 3))
    pooled = pool(values)
    values.zero_()
    assert (pooled == 1).all()
