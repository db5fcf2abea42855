"""Empty caches of weights."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache of Hugging Face, which is empty."""
    constants = pytest.importorskip("huggingface_hub.constants")
    folder = tmp_path / "hub"
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder))
    return folder
