"""Model specifications, and the zoo files that list them."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oodzoo._io import file_digest, require_folder_name
from oodzoo._text import one_line
from oodzoo.errors import InputError
from oodzoo.zoo.wildcards import has_wildcard

SOURCES = ("onnx", "timm", "torchvision", "hf", "open_clip", "sentence-transformers")

Triple = tuple[float, float, float]


@dataclass(frozen=True)
class ModelSpec:
    """One model of a zoo.

    `source` is `<kind>/<identifier>`: `onnx/path/to/file.onnx`, `timm/resnet50.a1_in1k`,
    `torchvision/resnet50`, `hf/facebook/dinov2-small`, `open_clip/ViT-B-16/openai`. Fields that
    are None are taken from the source when the model is loaded.
    """

    name: str
    source: str
    input_size: int | None = None
    mean: Triple | None = None
    std: Triple | None = None
    features: str | None = None
    logits: str | None = None
    feature_dim: int | None = None
    parameters: int | None = None
    sha256: str | None = None
    pretraining: str | None = None
    architecture: str | None = None
    licence: str | None = None
    origin: str | None = None
    folder: Path = dataclasses.field(default=Path(), compare=False)
    """The folder that a relative path in `source` is relative to."""

    @property
    def kind(self) -> str:
        return self.source.partition("/")[0]

    @property
    def identifier(self) -> str:
        """Everything after the first slash of the source."""
        return self.source.partition("/")[2]

    @property
    def file(self) -> Path:
        """The file of a model whose identifier is a path."""
        return self.folder / self.identifier

    def to_dict(self) -> dict[str, Any]:
        """The fields that are set, without the folder; suitable for JSON."""
        fields = dataclasses.asdict(self)
        del fields["folder"]
        return {key: value for key, value in fields.items() if value is not None}


_TYPES: dict[str, tuple[str, ...]] = {
    "a non-empty string": (
        "name", "source", "features", "logits", "sha256",
        "pretraining", "architecture", "licence", "origin",
    ),
    "a positive integer": ("input_size", "feature_dim", "parameters"),
    "a list of three numbers": ("mean", "std"),
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
    }[kind]
    if not valid:
        raise InputError(f"{context}: {key} must be {kind}, got {value!r}")
    return tuple(map(float, value)) if isinstance(value, list) else value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_spec(spec: ModelSpec, context: str) -> ModelSpec:
    """Reject an unknown source, a name that cannot be a folder, or a std that is not positive."""
    if spec.kind not in SOURCES or not spec.identifier:
        raise InputError(
            f"{context}: the source {spec.source!r} is not <kind>/<name> with a kind of "
            + ", ".join(SOURCES)
        )
    require_folder_name(spec.name, context)
    if spec.std is not None and min(spec.std) <= 0:
        raise InputError(f"{context}: std must be positive, got {list(spec.std)}")
    return spec


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
    if spec.kind == "onnx":
        return spec.file
    scheme, colon, path = spec.identifier.partition(":")
    if colon:
        return spec.folder / path if scheme == "local-dir" else None
    tag = spec.identifier.partition("/")[2] if spec.kind == "open_clip" else spec.identifier
    if spec.kind in ("hf", "open_clip", "sentence-transformers") and tag.startswith(
        (".", "/", "~")
    ):
        try:
            return spec.folder / Path(tag).expanduser()
        except RuntimeError as error:
            raise InputError(f"the source {spec.source!r}: no such home folder") from error
    return None


def portable_source(spec: ModelSpec) -> str:
    """The source of a model; of a local folder or file, only its name."""
    local = local_path(spec)
    return spec.source if local is None else f"{spec.kind}/{local.absolute().name}"


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
