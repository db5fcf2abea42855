"""How many models to concatenate."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.evaluation.data import zoo

from oodzoo import InputError
from oodzoo.features.source import ArraySource
from oodzoo.ranking.top_k import choose_top_k, one_top_k, parse_top_k


def test_numbers_are_sorted_and_distinct() -> None:
    assert parse_top_k(2) == [2]
    numbers: Any = [5, 1, np.int64(5)]
    assert parse_top_k(numbers) == [1, 5]
    assert parse_top_k("auto") is None


@pytest.mark.parametrize("wrong", [0, -1, True, [], [3, 0], 2.0, "all", "3", None])
def test_anything_else_is_rejected(wrong: Any) -> None:
    with pytest.raises(InputError, match=r"top_k must be a positive integer, several .* or 'auto'"):
        parse_top_k(wrong)


def test_numbers_beyond_the_models_are_not_tried() -> None:
    source = ArraySource(*zoo())
    assert choose_top_k(source, ["best", "good"], [5, 1, 9]) == 1


def test_one_number_of_several_is_chosen_on_left_out_domains() -> None:
    """Three views show a bit of the class each: two of them are not enough, noise is no help."""
    rng = np.random.default_rng(0)
    y, domains = np.tile(np.arange(8), 15), np.repeat(["a", "b", "c"], 40)
    views = {
        f"view{bit}": ((y >> bit) & 1)[:, None] + 0.1 * rng.normal(size=(120, 1))
        for bit in range(3)
    }
    noise = {f"noise{n}": rng.normal(size=(120, 30)) for n in range(2)}
    source = ArraySource(views | noise, y, domains)
    order = list(source.models)
    assert one_top_k("auto", source, order) == 3
    assert one_top_k([1, 2, 3], source, order) == 3
    assert one_top_k([2, 5], source, order) == choose_top_k(source, order, [2, 5])
    assert one_top_k(4, source, order) == 4
    assert one_top_k(9, source, order) == one_top_k([7, 9], source, order) == 5
