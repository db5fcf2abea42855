"""The devices that compute."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture(params=[None, "cpu", "cuda"])
def device(request: pytest.FixtureRequest) -> str | None:
    """NumPy, PyTorch, and PyTorch on a GPU if there is one."""
    if request.param is not None:
        torch: Any = pytest.importorskip("torch", reason="PyTorch is an extra")
        if request.param == "cuda" and not torch.cuda.is_available():
            pytest.skip("no CUDA device")
    name: str | None = request.param
    return name
