"""Facts about a model that depend on time and place: timings and location.

They are not part of the fingerprint of a store, and losing them loses nothing else.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec

from oodzoo.core.errors import InputError
from oodzoo.core.io import read_json, structured
from oodzoo.store.files import write_json
from oodzoo.store.places import model_folder, require_no_links

_WHAT = "the facts of a model"

_Amount = Annotated[float, msgspec.Meta(ge=0, le=1e15)]


class LocalFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """Location and timings of a model on the machine of the extraction."""

    source: str | None = None
    folder: str | None = None
    seconds: _Amount = 0.0
    images: int = 0
    milliseconds_per_image: _Amount | None = None
    measured: str | None = None


def read_local(store: Path, model: str) -> dict[str, Any]:
    """Read the facts of a model; empty if the file is missing or damaged."""
    try:
        path = require_no_links(store, model_folder(store, model) / "local.json")
        facts = structured(read_json(path, _WHAT), LocalFacts, _WHAT)
    except InputError:
        return {}
    return dict(msgspec.to_builtins(facts))


def update_local(store: Path, model: str, facts: dict[str, Any]) -> None:
    """Add facts to those of a model."""
    path = require_no_links(store, model_folder(store, model) / "local.json")
    write_json(path, read_local(store, model) | facts)
