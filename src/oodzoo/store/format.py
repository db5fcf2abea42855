"""The format of a store: names of files, documents with checksums, and the manifest.

Layout on disk::

    STORE/manifest.json                      written last: table, index and complete models
    STORE/samples/00000.json                 table of samples: path, domain, class, group, image
    STORE/images/00000.json                  index: the images of each shard
    STORE/models/<model>/model.json          description of a model
    STORE/models/<model>/local.json          its timings and location; not part of the fingerprint
    STORE/models/<model>/class_embeddings.json   of its text tower; can be added and replaced
    STORE/models/<model>/00000-00000.json    record of a finished shard
    STORE/models/<model>/shards.<digest>.json    all records of a complete model
    STORE/models/<model>/00000-00000.features.<digest>.npy, 00000-00000.logits.<digest>.npy
    STORE/cache/                             arrays computed from the features

Nothing outside the store is read or written. Documents and caches have checksums, which are
verified when they are read. The manifest is derived from the records of the finished shards and
replaced as a whole, so a reader sees the state before or after a change.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
import xxhash

from oodzoo.core.errors import InputError
from oodzoo.core.io import (
    file_digest,
    json_bytes,
    read_json,
    require_folder_name,
    require_schema,
    shown,
    structured,
)
from oodzoo.core.text import count, short_name, typed

T = TypeVar("T")

SCHEMA = 2
NEW_STORE = "extract into a new store"
"""What to do about a store of another schema."""

MANIFEST = "manifest.json"
PREDICTOR = "predictor.json"
RUN = "run.json"
_FILES = {"store": MANIFEST, "model": PREDICTOR}
"""What the parts of a run contain, by the names of their folders."""
SAMPLES = "samples"
IMAGES = "images"
MODELS = "models"
CACHE = "cache"

_FILE_NAME = re.compile(r"[0-9]{5}-[0-9]{5}\.(features|logits)\.[0-9a-f]{16}\.npy", re.ASCII)


def model_folder(store: Path, model: str) -> Path:
    require_folder_name(model, f"the store {shown(store)!r}")
    return store / MODELS / model


def file_name(shard: str, output: str, digest: str) -> str:
    """Return the name of a shard file; it contains its digest, so equal names mean equal files."""
    return f"{shard}.{output}.{digest[:16]}.npy"


def is_file_name(name: str) -> bool:
    """Whether a name from a manifest can only mean a shard file in the folder of its model."""
    return _FILE_NAME.fullmatch(name) is not None


def require_no_links(store: Path, path: Path) -> Path:
    """Return a path inside a store; reject symbolic links between the store and it."""
    here = store
    for part in path.relative_to(store).parts:
        here = here / part
        if os.path.islink(here):  # noqa: PTH114 - faster, called for every shard
            raise InputError(
                f"{shown(here)!r} is a symbolic link; a store contains none: remove it, or extract "
                "into a new store"
            )
    return path


def part_of_run(path: Path, wanted: str) -> Path:
    """Return the feature store or the predictor of a run if the folder of the run is given.

    Parameters
    ----------
    path : Path
    wanted : {"store", "model"}

    Returns
    -------
    Path
        The given one if it is not the folder of a run, or the run has no such part.
    """
    is_run = (path / RUN).is_file() and not (path / _FILES[wanted]).is_file()
    return path / wanted if is_run and (path / wanted).is_dir() else path


def mistaken_folder(path: Path, wanted: str) -> str:
    """Say that a folder is a predictor and no feature store, or the reverse, and what to give.

    Parameters
    ----------
    path : Path
    wanted : {"store", "model"}

    Returns
    -------
    str
        Empty if it is neither.
    """
    other = "model" if wanted == "store" else "store"
    if not (path / _FILES[other]).is_file():
        return ""
    what = "it is a predictor" if wanted == "store" else "it is a feature store"
    meant = path.parent / wanted
    if (meant / _FILES[wanted]).is_file():
        advice = f"did you mean {shown(meant)!r}?"
    elif wanted == "model":
        advice = f"make a predictor of it with `oodzoo fit {typed(shown(path))} --out MODEL`"
    else:
        advice = "give the feature store that it was fitted to"
    return f"{what}; {advice}"


def repair_advice(store: Path) -> str:
    """Say how damaged or missing shards are repaired."""
    return (
        f"remove damaged files with `oodzoo store check {typed(shown(store))} --repair`, "
        "then rerun `oodzoo extract`"
    )


# --- documents, caches and local facts ------------------------------------------------------------


def read_document(
    store: Path, path: Path, kind: type[T], what: str, sha256: str | None, advice: str
) -> T:
    """Read a document; reject one with another checksum, and say how to repair it."""
    require_no_links(store, path)
    try:
        document = read_json(path, what)
        if sha256 is not None and file_digest(path) != sha256:
            raise InputError(f"{what} {shown(path)!r} is damaged: its checksum differs")
    except InputError as error:
        raise InputError(f"{error}; {advice}") from error
    require_schema(document, SCHEMA, f"{what} {shown(path)!r}", NEW_STORE)
    return structured(document, kind, f"{what} {shown(path)!r}")


def sealed(document: dict[str, Any]) -> bytes:
    """Serialise a document with a checksum of its content."""
    digest = hashlib.sha256(json_bytes(document)).hexdigest()
    return json_bytes({**document, "sha256": digest})


def unsealed(document: dict[str, Any], what: str) -> dict[str, Any]:
    """Return the content of a document; reject one that does not match its checksum."""
    content = {key: value for key, value in document.items() if key != "sha256"}
    try:
        digest = hashlib.sha256(json_bytes(content)).hexdigest()
    except RecursionError as error:
        raise InputError(f"{what} is damaged: it is nested too deeply") from error
    if digest != document.get("sha256"):
        raise InputError(f"{what} is damaged: its content does not match its checksum")
    return content


def sealed_bytes(content: bytes) -> bytes:
    """Append the XXH3 (64 bits) of the content of a cache to it."""
    return content + xxhash.xxh3_64_digest(content)


def unsealed_bytes(path: Path) -> bytes:
    """Read the content of a cache; raise InputError if it does not match its checksum."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}") from error
    content, digest = content[:-8], content[-8:]
    if xxhash.xxh3_64_digest(content) != digest:
        raise InputError("does not match its checksum; it is computed again when it is needed")
    return content


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


# --- the manifest ---------------------------------------------------------------------------------

IDENTITY = ("fingerprint", "feature_dim", "n_logits", "precision", "dtype", "preprocessing")
"""Fields of a model's record that determine its features."""

# digests and numbers name files: nothing else may be in a manifest
_Digest = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]
_Number = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{5}\Z")]
_Width = Annotated[int, msgspec.Meta(ge=1, le=1 << 24)]
_Dtype = Annotated[str, msgspec.Meta(pattern=r"^float(16|32)\Z")]


class ModelRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Description of a model, written when it is added to a store.

    Attributes
    ----------
    spec : dict or None
        The fields of a :class:`oodzoo.zoo.ModelSpec`, besides name and source, with which the model
        loads again from any location: `input_size` (int), `mean` and `std` (lists of three floats)
        as stated in the zoo, and for an ONNX file the output names in use, `features` and `logits`,
        and its `sha256`. All six keys are present; a value is None where it was not stated or does
        not apply. `pretrained`, `arguments` and `geometry` are present only if they were stated.
        None instead of a dict: a Python model, or imported features.
    versions : dict of str to str
        Versions of the packages that computed the features.
    """

    source: str
    fingerprint: str
    feature_dim: _Width
    n_logits: _Width | None
    parameters: int | None
    pretraining: str | None
    precision: str
    dtype: _Dtype
    preprocessing: dict[str, Any] | None
    licence: str | None = None
    spec: dict[str, Any] | None = None
    versions: dict[str, str] = {}

    @property
    def decode(self) -> Literal["full", "reduced"]:
        """How JPEG images were decoded, see :class:`oodzoo.zoo.Geometry`."""
        geometry = (self.preprocessing or {}).get("geometry") or {}
        return "reduced" if geometry.get("decode") == "reduced" else "full"

    @property
    def widths(self) -> dict[str, int]:
        """Number of columns of each output."""
        widths = {"features": self.feature_dim}
        return widths if self.n_logits is None else widths | {"logits": self.n_logits}

    @property
    def record(self) -> ModelRecord:
        """The description alone, without what a store adds to it."""
        fields = {field: getattr(self, field) for field in ModelRecord.__struct_fields__}
        return ModelRecord(**fields)

    def stored(
        self, name: str, shards: str = "", unreadable: Mapping[str, str] | None = None
    ) -> StoredModel:
        """Return the record as that of a complete model."""
        fields = {field: getattr(self, field) for field in ModelRecord.__struct_fields__}
        return StoredModel(name=name, shards=shards, unreadable=dict(unreadable or {}), **fields)

    @property
    def identity(self) -> str:
        """Digest of the fields that determine the features."""
        fields = {key: getattr(self, key) for key in IDENTITY}
        return hashlib.sha256(json_bytes(fields)).hexdigest()[:16]


class StoredModel(ModelRecord, frozen=True, kw_only=True):
    """A model whose features are complete.

    Attributes
    ----------
    shards : str
        SHA-256 of the list of its shards.
    unreadable : dict of str to str
        Why images of the table could not be decoded.
    """

    name: str = ""
    shards: _Digest = ""
    unreadable: dict[str, str] = {}

    def __repr__(self) -> str:
        source = f", source {short_name(self.source, 80)!r}" if self.source else ""
        return (
            f"StoredModel({short_name(self.name)!r}: {count(self.feature_dim, 'feature')}{source})"
        )


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The content of manifest.json.

    Attributes
    ----------
    table : str or None
        Number of the table of samples; None in a new store.
    samples : str or None
        SHA-256 of the table of samples.
    segments : dict of str to str
        SHA-256 of each segment of the index that the models use.
    """

    table: _Number | None = None
    samples: _Digest | None = None
    segments: dict[_Number, _Digest] = {}
    models: dict[str, StoredModel] = {}

    @property
    def skipped(self) -> dict[str, str]:
        """Why images of the table cannot be decoded, for some model."""
        return {image: why for m in self.models.values() for image, why in m.unreadable.items()}

    @property
    def content(self) -> bytes:
        """The manifest as a file."""
        document = {"schema": SCHEMA, **msgspec.to_builtins(self, str_keys=True)}
        for model in document["models"].values():
            del model["name"]
        return sealed(document)


def read_manifest(store: Path) -> Manifest:
    """Read and verify the manifest of a store."""
    what = f"the manifest of the store {shown(store)!r}"
    path = require_no_links(store, store / MANIFEST)
    advice = f"restore it with `oodzoo store check {typed(shown(store))} --repair`"
    try:
        document = read_json(path, "the manifest")
    except InputError as error:
        raise InputError(f"{error}; {advice}") from error
    if "schema" not in document:
        raise InputError(f"{shown(path)!r} is not the manifest of a feature store")
    require_schema(document, SCHEMA, f"the store {shown(store)!r}", NEW_STORE)
    try:
        document = unsealed(document, what)
    except InputError as error:
        raise InputError(f"{error}; {advice}") from error
    manifest = structured(document, Manifest, what)
    models = {}
    for name, model in manifest.models.items():
        require_folder_name(name, what)
        models[name] = msgspec.structs.replace(model, name=name)
    return msgspec.structs.replace(manifest, models=models)
