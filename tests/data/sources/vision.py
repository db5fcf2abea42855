"""torchvision, for tests that need it."""

from __future__ import annotations

from typing import Any

import pytest

from oodzoo.zoo.torchvision_import import import_torchvision, torchvision_installed


def torchvision(part: str) -> Any:
    """Import a part of torchvision, or skip the test or module that needs it."""
    pytest.importorskip("torch")
    if not torchvision_installed():
        pytest.skip("needs torchvision", allow_module_level=True)
    import_torchvision(extra="torchvision", purpose="this test")
    return pytest.importorskip(f"torchvision.{part}")
