"""Model specifications, the zoo files that list them, and wildcards in their names."""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
import tomllib
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import msgspec

from oodzoo.core.errors import InputError
from oodzoo.core.io import file_digest, require_folder_name
from oodzoo.core.text import did_you_mean, one_line
from oodzoo.zoo.model_spec import ModelSpec
from oodzoo.zoo.preprocessing import Geometry
from oodzoo.zoo.sources import get_source, source_kinds

__all__ = [
    "ModelSpec",
    "check_spec",
    "local_path",
    "onnx_source",
    "portable_source",
    "read_geometry",
    "read_zoo_file",
    "require_unique_names",
    "verified_file",
]


_WILDCARDS = re.compile(r"[*?\[]")


def has_wildcard(text: str) -> bool:
    """Whether a text has one of the characters `*`, `?` and `[`."""
    return _WILDCARDS.search(text) is not None


def matching(pattern: str, names: Iterable[str], subject: str) -> list[str]:
    """Return the names that match a pattern, in order; `subject` begins the error if none does.

    Examples
    --------
    >>> matching("resnet*", ["resnet18", "resnet50", "vit"], "this zoo has no model")
    ['resnet18', 'resnet50']
    """
    known = list(names)
    found = [name for name in known if fnmatchcase(name, pattern)]
    if found:
        return found
    if not has_wildcard(pattern):
        hint = did_you_mean(pattern, known)
        raise InputError(f"{subject} {pattern!r}{hint and f'; {hint}'}")
    near = _near(pattern, known)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    raise InputError(f"{subject} that matches {pattern!r}{hint}")


def _near(pattern: str, names: list[str]) -> list[str]:
    """Patterns similar to one that matches nothing: with another text before its wildcard."""
    start = _WILDCARDS.split(pattern)[0]
    if start:
        starts = {name[: len(start)] for name in names}
        return [text + pattern[len(start) :] for text in _similar(start, starts, names, pattern)]
    longest = max(re.findall(r"[^*?\[\]]+", pattern), key=len, default="")
    words = {word for name in names for word in re.split(r"[._/-]", name) if word}
    return [pattern.replace(longest, word) for word in _similar(longest, words, names, pattern)]


def _similar(text: str, others: set[str], names: list[str], pattern: str) -> list[str]:
    """Texts similar to a part of a pattern that match something when they replace it."""
    near = difflib.get_close_matches(text, sorted(others), n=3, cutoff=0.6) if text else []
    return [
        other
        for other in near
        if any(fnmatchcase(name, pattern.replace(text, other, 1)) for name in names)
    ]


_TYPES: dict[str, tuple[str, ...]] = {
    "a non-empty string": (
        "name", "source", "features", "logits", "sha256",
        "pretraining", "architecture", "licence", "origin",
    ),
    "a positive integer": ("input_size", "feature_dim", "parameters"),
    "a list of three numbers": ("mean", "std"),
    "true or false": ("pretrained",),
    "a table of strings, numbers, booleans and lists": ("arguments", "geometry"),
}  # fmt: skip
_LARGEST = 1e6
"""Largest mean or std of a channel."""
_KEYS = {key: kind for kind, keys in _TYPES.items() for key in keys}


def read_zoo_file(path: Path) -> list[ModelSpec]:
    """Read a zoo file (TOML, one `[[model]]` table per model)."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError(f"cannot read the zoo file {str(path)!r}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # TOMLDecodeError, UnicodeDecodeError, ...
        reason = one_line(error)
        raise InputError(f"the zoo file {str(path)!r} is not valid TOML: {reason}") from error
    if unknown := sorted(set(content) - {"model"}):
        raise InputError(f"{str(path)!r}: unknown key {unknown[0]!r}; use [[model]] tables")
    tables = content.get("model")
    if not isinstance(tables, list) or not tables:
        raise InputError(f"{str(path)!r} contains no [[model]] table; add one per model")
    return [
        _parse_table(table, f"{path.name}, model {number}", path.parent)
        for number, table in enumerate(tables, start=1)
    ]


def _parse_table(table: object, context: str, folder: Path) -> ModelSpec:
    if not isinstance(table, dict):
        raise InputError(f"{context}: expected a [[model]] table, got {table!r}")
    if isinstance(table.get("name"), str):
        context = f"{context} ({table['name']!r})"
    for key in ("name", "source"):
        if key not in table:
            raise InputError(f"{context}: the key {key!r} is missing")
    values = {key: _parse_value(key, value, context) for key, value in table.items()}
    spec = check_spec(ModelSpec(**values, folder=folder), context)
    if has_wildcard(spec.identifier) and not ((path := local_path(spec)) and path.exists()):
        raise InputError(
            f"{context}: the source {spec.source!r} has a wildcard, but a [[model]] table is one "
            "model; give a table for each, or the pattern instead of a zoo file"
        )
    return spec


def _parse_value(key: str, value: Any, context: str) -> Any:
    if key not in _KEYS:
        raise InputError(f"{context}: unknown key {key!r}; expected one of {', '.join(_KEYS)}")
    kind = _KEYS[key]
    valid = {
        "a non-empty string": isinstance(value, str) and value != "",
        "a positive integer": _is_number(value) and isinstance(value, int) and 0 < value < 1 << 63,
        "a list of three numbers": isinstance(value, list)
        and len(value) == 3
        and all(_is_number(v) and abs(v) <= _LARGEST for v in value),
        "true or false": isinstance(value, bool),
        "a table of strings, numbers, booleans and lists": isinstance(value, dict)
        and _is_plain(value),
    }[kind]
    if not valid:
        raise InputError(f"{context}: {key} must be {kind}, got {value!r}")
    return tuple(map(float, value)) if isinstance(value, list) else value


def _is_plain(value: Any) -> bool:
    """Whether a value can be written as JSON and read back; a TOML file may have dates."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(each) for key, each in value.items())
    if isinstance(value, list):
        return all(_is_plain(each) for each in value)
    return isinstance(value, str | bool) or (_is_number(value) and math.isfinite(value))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_spec(spec: ModelSpec, context: str) -> ModelSpec:
    """Reject an unknown source, a name that cannot be a folder, or a wrong std or geometry."""
    if spec.kind not in source_kinds() or not spec.identifier:
        raise InputError(
            f"{context}: the source {spec.source!r} is not <kind>/<name> with a kind of "
            + ", ".join(source_kinds())
            + (
                f"; for this file, write {onnx_source(spec.source)}"
                if _is_onnx(spec.source)
                else ""
            )
        )
    source = get_source(spec.kind)
    for key, taken in (
        ("arguments", source.takes_arguments),
        ("pretrained", source.takes_untrained),
        ("geometry", source.takes_geometry),
    ):
        if getattr(spec, key) is not None and not taken:
            raise InputError(
                f"{context}: the source {spec.source!r} takes no {key}: a model of the kind "
                f"{spec.kind} is loaded as it was saved; remove the key"
            )
    if spec.geometry is not None:
        read_geometry(spec.geometry, context)
    require_folder_name(spec.name, context)
    if spec.std is not None and min(spec.std) <= 0:
        raise InputError(f"{context}: std must be positive, got {list(spec.std)}")
    return spec


def _is_onnx(source: str) -> bool:
    return source.lower().endswith(".onnx")


def onnx_source(path: str) -> str:
    """The source of an ONNX file.

    Examples
    --------
    >>> onnx_source("nets/a.onnx"), onnx_source("./a.onnx"), onnx_source("ONNX/a.onnx")
    ('onnx/nets/a.onnx', 'onnx/a.onnx', 'onnx/a.onnx')
    """
    return "onnx/" + re.sub(r"^(\./|onnx/)", "", path, flags=re.IGNORECASE)


def read_geometry(table: dict[str, Any], context: str) -> Geometry:
    """Read the table `geometry` of a zoo file; `context` begins the message of an error.

    Examples
    --------
    >>> read_geometry({"resize": [256, 256], "crop": [224, 224], "fit": "cover"}, "zoo").crop
    (224, 224)
    """
    known = [field.name for field in dataclasses.fields(Geometry)]
    if unknown := sorted(set(table) - set(known)):
        raise InputError(
            f"{context}: unknown key {unknown[0]!r} of geometry; expected one of {', '.join(known)}"
        )
    try:
        geometry = msgspec.convert(table, Geometry)
    except msgspec.ValidationError as error:
        raise InputError(f"{context}: the geometry {table} is wrong: {one_line(error)}") from error
    if not 0 <= geometry.fill <= 255:
        raise InputError(f"{context}: fill of geometry must be from 0 to 255, got {geometry.fill}")
    return geometry


def require_unique_names(
    names: Iterable[str], context: str, remedy: str = "rename one of them"
) -> None:
    """Reject two models with the same name: their features would share a folder."""
    seen: set[str] = set()
    for name in names:
        if name.casefold() in seen:  # some file systems ignore case
            raise InputError(f"{context} names two models {name!r}; {remedy}")
        seen.add(name.casefold())


def local_path(spec: ModelSpec) -> Path | None:
    """The local folder or file that the source of a model names; None for a hub."""
    return get_source(spec.kind).local_path(spec) if spec.kind in source_kinds() else None


def portable_source(spec: ModelSpec) -> str:
    """The source of a model; of a local folder or file, only its name."""
    return get_source(spec.kind).portable(spec) if spec.kind in source_kinds() else spec.source


def verified_file(spec: ModelSpec) -> tuple[Path, str]:
    """Return the file of a model and its SHA-256, checked against the one in its zoo file."""
    try:
        digest = file_digest(spec.file)
    except OSError as error:
        raise InputError(
            f"model {spec.name!r}: cannot read {str(spec.file)!r}: {error.strerror}"
        ) from error
    if spec.sha256 is not None and digest != spec.sha256.lower():
        raise InputError(
            f"model {spec.name!r}: {str(spec.file)!r} has the sha256 {digest[:12]}…, but its zoo "
            f"file sets {spec.sha256[:12]}…; download the file again or correct the zoo file"
        )
    return spec.file, digest
