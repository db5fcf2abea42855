"""Named zoos: catalogues of public models, shipped with the library."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from oodzoo.core.errors import InputError
from oodzoo.zoo.spec import ModelSpec, read_zoo_file

_FOLDER = Path(__file__).parent / "catalogues"
_CATALOGUES = ("paper", "modern")


@dataclass(frozen=True)
class Entry:
    """One model of a catalogue.

    `spec` is None if no source can load a public checkpoint; `missing` then gives the reason.
    `number` and `group` are those of the ZooD paper and are set only in its zoo.
    """

    name: str
    architecture: str
    data: str
    method: str
    origin: str
    spec: ModelSpec | None = None
    missing: str | None = None
    number: int | None = None
    group: int | None = None


def zoo_names() -> tuple[str, ...]:
    """Return the names of the named zoos."""
    return ("demo", *_CATALOGUES)


def named_zoo(name: str) -> list[ModelSpec]:
    """List the models of a named zoo that can be loaded."""
    if name == "demo":
        from oodzoo.demo import zoo_file

        return read_zoo_file(zoo_file())
    return [entry.spec for entry in catalogue(name) if entry.spec is not None]


def missing(name: str) -> list[Entry]:
    """List the models of a named zoo that cannot be loaded, each with the reason.

    Examples
    --------
    >>> [entry.name for entry in missing("paper")]
    ['resnet50-byol', 'resnet50-insdis', 'resnet50-pirl']
    """
    return [entry for entry in catalogue(name) if entry.spec is None]


@cache
def catalogue(name: str) -> tuple[Entry, ...]:
    """Return all entries of a catalogue in order, including the missing ones."""
    if name == "demo":
        return ()
    if name not in _CATALOGUES:
        raise InputError(f"unknown zoo {name!r}; expected one of {', '.join(zoo_names())}")
    text = (_FOLDER / f"{name}.toml").read_text(encoding="utf-8")
    return tuple(_entry(table) for table in tomllib.loads(text)["model"])


def filter_models(
    specs: Iterable[ModelSpec],
    *,
    pattern: str | None = None,
    source: str | None = None,
    pretraining: str | None = None,
) -> list[ModelSpec]:
    """Keep the models that match all criteria.

    Parameters
    ----------
    specs : iterable of ModelSpec
        The models to filter, e.g. `load_zoo("modern")`.
    pattern : str, optional
        Wildcard pattern (`vit_*`) that the name or the identifier within the source must match.
    source : str, optional
        The kind of source: `timm`, `hf`, …
    pretraining : str, optional
        Substring of the pre-training note, ignoring case.

    Examples
    --------
    >>> found = filter_models(named_zoo("modern"), pattern="convnext*", pretraining="DINOv3")
    >>> [spec.name for spec in found]
    ['convnext_base.dinov3_lvd1689m']
    """
    return [
        spec
        for spec in specs
        if (
            pattern is None
            or any(fnmatchcase(text, pattern) for text in (spec.name, spec.identifier))
        )
        and (source is None or spec.kind == source)
        and (pretraining is None or pretraining.lower() in (spec.pretraining or "").lower())
    ]


def _entry(table: dict[str, Any]) -> Entry:
    known = dict(table)
    about = {key: known.pop(key) for key in ("name", "architecture", "data", "method", "origin")}
    optional = {key: known.pop(key, None) for key in ("missing", "number", "group")}
    spec = None
    if "source" in known:
        # No input size, mean or std: the source provides them.
        spec = ModelSpec(
            name=about["name"],
            architecture=about["architecture"],
            origin=about["origin"],
            pretraining=f"{about['data']}, {about['method']}",
            **known,
        )
    return Entry(**about, **optional, spec=spec)
