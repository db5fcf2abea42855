"""What all exported files have in common."""

from __future__ import annotations

import numpy as np
import pytest

from oodzoo import InputError
from oodzoo.predictor.export import TOLERANCE, require_close


@pytest.mark.parametrize("difference", [1.1 * TOLERANCE, np.nan])
def test_probabilities_that_differ(difference: float) -> None:
    expected = np.full((2, 3), 1 / 3)
    require_close(expected + 0.9 * TOLERANCE, expected)
    found = expected.copy()
    found[1, 2] += difference
    with pytest.raises(InputError, match="from the predictor's, more than 1e-05; no file was wri"):
        require_close(found, expected)
