"""JSON documents, caches and local facts of a store, with checksums that are verified when read.

They are not part of the fingerprint of a store, and losing them loses nothing else.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated, Any

import msgspec
import xxhash

from oodzoo.core.errors import InputError
from oodzoo.core.io import file_digest, json_bytes, read_json, require_schema, shown, structured
from oodzoo.store.files import write_json
from oodzoo.store.places import NEW_STORE, SCHEMA, model_folder, require_no_links


def read_document(path: Path, what: str, sha256: str | None, advice: str) -> dict[str, Any]:
    """Read a document; reject one with another checksum, and say how to repair it."""
    try:
        document = read_json(path, what)
        if sha256 is not None and file_digest(path) != sha256:
            raise InputError(f"{what} {shown(path)!r} is damaged: its checksum differs")
    except InputError as error:
        raise InputError(f"{error}; {advice}") from error
    require_schema(document, SCHEMA, f"{what} {shown(path)!r}", NEW_STORE)
    return document


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


def update_local(store: Path, model: str, facts: dict[str, Any]) -> None:
    """Add facts to those of a model."""
    path = require_no_links(store, model_folder(store, model) / "local.json")
    write_json(path, read_local(store, model) | facts)
