"""The manifest of a store: its table of samples, its index, and its complete models.

It is derived from the records of the finished shards and replaced as a whole, so a reader sees the
state before or after a change.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from oodzoo.core.errors import InputError
from oodzoo.core.io import (
    json_bytes,
    read_json,
    require_folder_name,
    require_schema,
    shown,
    structured,
)
from oodzoo.core.text import count, short_name, typed
from oodzoo.store.documents import sealed, unsealed
from oodzoo.store.files import write_bytes, write_new
from oodzoo.store.places import MANIFEST, NEW_STORE, SCHEMA, require_no_links

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
    def widths(self) -> dict[str, int]:
        """Number of columns of each output."""
        widths = {"features": self.feature_dim}
        return widths if self.n_logits is None else widths | {"logits": self.n_logits}

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

    def create(self, store: Path) -> None:
        """Write the manifest of a new store, unless another process has done so."""
        write_new(require_no_links(store, store / MANIFEST), self._content())

    def write(self, store: Path) -> None:
        write_bytes(require_no_links(store, store / MANIFEST), self._content())

    def _content(self) -> bytes:
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
