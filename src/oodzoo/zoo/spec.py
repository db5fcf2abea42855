"""What is known of a model before it is loaded, and zoo files that list such models."""

from __future__ import annotations

import dataclasses
import math
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oodzoo._io import file_digest
from oodzoo.errors import InputError

SOURCES = ("onnx", "timm", "torchvision", "hf", "open_clip")

Triple = tuple[float, float, float]


@dataclass(frozen=True)
class ModelSpec:
    """One model of a zoo.

    `source` is `<kind>/<where>`: `onnx/path/to/file.onnx`, `timm/resnet50.a1_in1k`,
    `torchvision/resnet50`, `hf/facebook/dinov2-small`, `open_clip/ViT-B-16/openai`. What is not
    given is taken from the source when the model is loaded.
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
    def where(self) -> str:
        """Everything after the first slash of the source."""
        return self.source.partition("/")[2]

    @property
    def file(self) -> Path:
        """The file of a model that comes as a file."""
        return self.folder / self.where


_TYPES: dict[str, tuple[str, ...]] = {
    "a text": (
        "name", "source", "features", "logits", "sha256",
        "pretraining", "architecture", "licence", "origin",
    ),
    "a whole number above 0": ("input_size", "feature_dim", "parameters"),
    "a list of three numbers": ("mean", "std"),
}  # fmt: skip
_KEYS = {key: kind for kind, keys in _TYPES.items() for key in keys}


def read_zoo_file(path: Path) -> list[ModelSpec]:
    """Read a zoo file (TOML, one `[[model]]` table for each model)."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError(f"cannot read the zoo file {str(path)!r}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"the zoo file {str(path)!r} is not valid TOML: {error}") from error
    if unknown := sorted(set(content) - {"model"}):
        raise InputError(f"{str(path)!r}: unknown key {unknown[0]!r}; models go under [[model]]")
    tables = content.get("model")
    if not isinstance(tables, list) or not tables:
        raise InputError(f"{str(path)!r} lists no model; each needs a [[model]] table")
    return [
        _model(table, f"{path.name}, model {number}", path.parent)
        for number, table in enumerate(tables, start=1)
    ]


def _model(table: object, where: str, folder: Path) -> ModelSpec:
    if not isinstance(table, dict):
        raise InputError(f"{where}: expected a table [[model]], got {table!r}")
    if isinstance(table.get("name"), str):
        where = f"{where} ({table['name']!r})"
    for key in ("name", "source"):
        if key not in table:
            raise InputError(f"{where} lacks the key {key!r}")
    values = {key: _value(key, value, where) for key, value in table.items()}
    return check_spec(ModelSpec(**values, folder=folder), where)


def _value(key: str, value: Any, where: str) -> Any:
    if key not in _KEYS:
        raise InputError(f"{where}: unknown key {key!r}; known are {', '.join(_KEYS)}")
    kind = _KEYS[key]
    number = isinstance(value, int | float) and not isinstance(value, bool)
    right = {
        "a text": isinstance(value, str) and value != "",
        "a whole number above 0": number and isinstance(value, int) and value > 0,
        "a list of three numbers": isinstance(value, list)
        and len(value) == 3
        and all(isinstance(v, int | float) and not isinstance(v, bool) for v in value)
        and all(map(math.isfinite, value)),
    }[kind]
    if not right:
        raise InputError(f"{where}: {key} must be {kind}, and is {value!r}")
    return tuple(map(float, value)) if isinstance(value, list) else value


def check_spec(spec: ModelSpec, where: str) -> ModelSpec:
    """Refuse a model whose name cannot be a folder or whose source is of no known kind."""
    if spec.kind not in SOURCES or not spec.where:
        raise InputError(
            f"{where}: the source {spec.source!r} is not <kind>/<name> with a kind of "
            + ", ".join(SOURCES)
        )
    require_folder_name(spec.name, where)
    if spec.std is not None and min(spec.std) <= 0:
        raise InputError(f"{where}: std must be positive, and is {list(spec.std)}")
    return spec


def require_folder_name(name: str, where: str) -> None:
    """Refuse a name under which features could not be stored, here or on another system."""
    if (
        not name
        or name.startswith(".")  # would be hidden, or lead upwards
        or any(c in '/\\:*?"<>|' or not c.isprintable() for c in name)
        or name != name.strip()
        or len(name.encode()) > 180
    ):
        raise InputError(f"{where}: the name {name!r} cannot be the name of a folder")


def require_unique_names(names: Iterable[str], where: str) -> None:
    """Refuse two models of one name: their features would share a folder."""
    seen: set[str] = set()
    for name in names:
        if name.casefold() in seen:  # to some file systems A and a are one folder
            raise InputError(f"{where} names two models {name!r}; rename one of them")
        seen.add(name.casefold())


def verified_file(spec: ModelSpec) -> tuple[Path, str]:
    """The file of a model and its SHA-256, checked against the one its zoo states."""
    try:
        digest = file_digest(spec.file)
    except OSError as error:
        raise InputError(
            f"model {spec.name!r}: cannot read {str(spec.file)!r}: {error.strerror}"
        ) from error
    if spec.sha256 is not None and digest != spec.sha256.lower():
        raise InputError(
            f"model {spec.name!r}: {str(spec.file)!r} has the sha256 {digest[:12]}…, its zoo "
            f"states {spec.sha256[:12]}…; fetch the file again or correct the zoo"
        )
    return spec.file, digest


def described(specs: list[ModelSpec]) -> Iterator[dict[str, Any]]:
    """Each model as a JSON object, what is not known left out."""
    for spec in specs:
        fields = dataclasses.asdict(spec)
        del fields["folder"]
        yield {key: value for key, value in fields.items() if value is not None}
