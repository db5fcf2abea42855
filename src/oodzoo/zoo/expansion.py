"""Specs with wildcards, and models of named zoos: from a pattern to the models that match it."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from oodzoo._text import count
from oodzoo.errors import InputError
from oodzoo.zoo.catalogue import named_zoo, zoo_names
from oodzoo.zoo.layers import expand_layers
from oodzoo.zoo.sources import get_source, listing_of, source_kinds
from oodzoo.zoo.spec import ModelSpec, local_path
from oodzoo.zoo.wildcards import has_wildcard, matching


def is_pattern(text: str) -> bool:
    """Whether a spec stands for several models: with wildcards, or of a named zoo."""
    kind, slash, name = text.partition("/")
    if kind in zoo_names() and slash:
        return True
    if kind not in source_kinds() or not has_wildcard(name):
        return False
    path = local_path(ModelSpec("", text))
    return path is None or not path.exists()  # the name of a file may have such characters


def expand(text: str, parse: Callable[[str], list[ModelSpec]]) -> list[ModelSpec]:
    """List the models that match a pattern; `parse` makes the specs of a source.

    Layers may follow a pattern: `timm/vit_small*@all`.
    """
    text, layers = _split_layers(text)
    kind, _, pattern = text.partition("/")
    if kind in zoo_names():
        specs = {spec.name: spec for spec in named_zoo(kind)}
        names = matching(pattern, specs, f"the zoo {kind} has no model")
        found = [replace(specs[name], source=specs[name].source + layers) for name in names]
        return [
            spec
            for each in found
            for spec in expand_layers(each, text, name=lambda network: network.name)
        ]
    if local_path(ModelSpec("", text)) is not None:
        return [spec for source in _local_sources(text) for spec in parse(source + layers)]
    listing = listing_of(kind)
    if listing is None:
        raise InputError(f"{text!r}: the source {kind} cannot list its models; name them")
    known = listing.identifiers(pattern)
    names = matching(pattern, known, f"{kind} has no pre-trained model")
    return [spec for name in names for spec in parse(f"{kind}/{name}{layers}")]


def _split_layers(text: str) -> tuple[str, str]:
    """Split a pattern from the layers after it, which begin with `@`."""
    end = max((text.rfind(character) for character in "*?]"), default=0)
    at = text.find("@", max(end, 0))
    if at < 0:
        if (
            "@" in text
            and text.partition("/")[0] not in zoo_names()
            and local_path(ModelSpec("", text)) is None
        ):
            raise InputError(
                f"{text!r}: the name of a layer cannot have wildcards; name several layers, such "
                "as @blocks.4+blocks.8, or use @all"
            )
        return text, ""
    return text[:at], text[at:]


def _local_sources(text: str) -> list[str]:
    """The sources of the files or folders that a path with wildcards matches."""
    kind, _, path = text.partition("/")
    if ":" in path:
        path = path.partition(":")[2]
    elif kind == "open_clip":
        path = path.partition("/")[2]
    paths = sorted(glob.glob(os.path.expanduser(path), recursive=True))  # noqa: PTH111, PTH207
    found = [each for each in paths if get_source(kind).is_model(Path(each))]
    if not found:
        hint = f"; {count(len(paths), 'path')} matched, but none is a model" if paths else ""
        raise InputError(f"no model matches {text!r}{hint}")
    return [text.removesuffix(path) + each for each in found]
