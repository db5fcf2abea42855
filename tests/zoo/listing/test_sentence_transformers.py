from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.text_models import save_text_model
from tests.zoo.listing.data import cache_file

from oodzoo.errors import InputError
from oodzoo.zoo import ModelSpec, load_zoo
from oodzoo.zoo.listing import ListedModel
from oodzoo.zoo.sources import get_source
from oodzoo.zoo.weights import Weights

listing: Any = get_source("sentence-transformers")


def test_local_folder(tmp_path: Path) -> None:
    save_text_model(tmp_path / "text")
    listed = ListedModel(ModelSpec("text", f"sentence-transformers/{tmp_path}/text"))
    assert (listed.is_local, listed.licence, listed.parameters) == (True, None, None)
    assert (listed.size or 0) >= (tmp_path / "text" / "model.safetensors").stat().st_size


def test_hub(hub_cache: Path) -> None:
    own = ModelSpec("text", "sentence-transformers/all-MiniLM-L6-v2")
    other = ModelSpec("text", "sentence-transformers/owner/net")
    assert listing.weights(own) == listing.weights(other) == Weights(hub_cache, False)
    name = "sentence-transformers/all-MiniLM-L6-v2"
    cache_file(hub_cache, name, "model.safetensors", b"123")
    cache_file(hub_cache, "owner/net", "model.safetensors", b"12")
    assert listing.weights(own) == Weights(hub_cache, True, 3)
    assert listing.weights(other) == Weights(hub_cache, True, 2)
    assert listing.licence(own) is None


def test_wildcards_are_for_folders() -> None:
    with pytest.raises(InputError, match=r"'sentence-transformers/all-.' has a wildcard"):
        load_zoo("sentence-transformers/all-*")
