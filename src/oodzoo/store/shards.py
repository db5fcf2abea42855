"""Shard files and their records: writing, and reading with verified checksums.

A shard has the rows of a model for some images of the index. Its record is written after its
files, once: of two processes that compute the same shard, the first one counts.
"""

from __future__ import annotations

import hashlib
import os
import tokenize
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import xxhash
from numpy.typing import NDArray

from oodzoo.core.errors import InputError
from oodzoo.core.io import (
    file_digest,
    npy_bytes,
    read_json,
    shown,
    structured,
)
from oodzoo.store.documents import read_document, sealed, unsealed
from oodzoo.store.files import (
    drop_copy,
    fetch_records,
    open_shard_file,
    remove_files,
    write_bytes,
    write_new,
)
from oodzoo.store.places import (
    SCHEMA,
    file_name,
    is_file_name,
    repair_advice,
    require_no_links,
)

Array = NDArray[Any]


class ShardFile(msgspec.Struct, frozen=True):
    """A file of a shard."""

    file: str
    sha256: str
    xxh3: str


class Shard(msgspec.Struct, frozen=True, omit_defaults=True):
    """The record of a finished shard of a model.

    Attributes
    ----------
    shard : str
        Its name in the index of images.
    absent : dict of int to str or None
        The positions of images without a row: why the image cannot be decoded, or None if its
        file was not in the data set when the shard was computed.
    model : str
        Digest of the identity of the model.
    images : str
        Digest of the images of the shard, those without a row included.
    """

    shard: str
    features: ShardFile
    logits: ShardFile | None = None
    absent: dict[int, str | None] = {}
    model: str = ""
    images: str = ""

    @property
    def content(self) -> bytes:
        """The record as a file."""
        return sealed(msgspec.to_builtins(self, str_keys=True))

    @property
    def files(self) -> dict[str, ShardFile]:
        files = {"features": self.features}
        return files if self.logits is None else files | {"logits": self.logits}


def images_digest(images: Sequence[str]) -> str:
    """Compute a digest of the images of a shard."""
    return hashlib.sha256("\n".join(images).encode(errors="surrogatepass")).hexdigest()[:16]


# --- writing ---------------------------------------------------------------------------------


def write_shard(
    folder: Path,
    shard: str,
    images: Sequence[str],
    model: str,
    outputs: Mapping[str, Array],
    absent: Mapping[int, str | None],
) -> Shard:
    """Write the outputs of a model for a shard, then its record, which is returned.

    If another process has finished the shard in the meantime, its files are kept instead.
    """
    files = {}
    for output, array in outputs.items():
        content = npy_bytes(array)
        sha256 = hashlib.sha256(content).hexdigest()
        name = file_name(shard, output, sha256)
        write_bytes(require_no_links(folder, folder / name), content)
        files[output] = ShardFile(name, sha256, checksum(content))
    record = Shard(
        shard,
        files["features"],
        files.get("logits"),
        dict(absent),
        model,
        images_digest(images),
    )
    path = require_no_links(folder, record_file(folder, shard))
    content = record.content
    if write_new(path, content):
        return record
    other = read_record(path)
    kept = set() if other is None else {file.file for file in other.files.values()}
    if (
        other is None  # damaged
        or other.model != model  # another model had this name
        or other.images != record.images  # a lost segment of the index had this number
        or not all((folder / file).exists() for file in kept)
    ):
        write_bytes(path, content)
        return record
    remove_files([folder / file.file for file in files.values() if file.file not in kept])
    return other


def record_file(folder: Path, shard: str) -> Path:
    return folder / f"{shard}.json"


def read_record(path: Path) -> Shard | None:
    """Read the record of a shard; None if it is missing or damaged."""
    fetch_records([path])
    try:
        what = "the record of a shard"
        record = structured(unsealed(read_json(path, what), what), Shard, what)
    except InputError:
        return None
    names = [file.file for file in record.files.values()]
    valid = record.shard == path.stem and all(map(is_file_name, names))
    return record if valid else None


def write_list(folder: Path, records: Sequence[Shard]) -> str:
    """Write the list of the shards of a complete model; return its SHA-256, which names it."""
    content = msgspec.json.encode({"schema": SCHEMA, "shards": records})
    digest = hashlib.sha256(content).hexdigest()
    path = require_no_links(folder, list_file(folder, digest))
    if not path.is_file() or file_digest(path) != digest:
        write_bytes(path, content)
    return digest


def read_list(store: Path, folder: Path, digest: str) -> list[Shard]:
    """Read a list of shards and verify its checksum."""
    path = require_no_links(store, list_file(folder, digest))
    what = "the list of shards"
    document = read_document(path, what, digest, repair_advice(store))
    records = structured(document, _ShardList, f"{what} {shown(path)!r}").shards
    for record in records:
        for file in record.files.values():
            if not is_file_name(file.file):
                raise InputError(
                    f"{what} {shown(path)!r} names {file.file!r} as a file; extract into a new "
                    "store"
                )
    return records


def list_file(folder: Path, digest: str) -> Path:
    return folder / f"shards.{digest[:16]}.json"


class _ShardList(msgspec.Struct, frozen=True):
    shards: list[Shard]


def record_files(folder: Path) -> list[Path]:
    """List the records of the shards of a model."""
    return sorted(folder.glob("[0-9][0-9][0-9][0-9][0-9]-[0-9][0-9][0-9][0-9][0-9].json"))


# --- reading ---------------------------------------------------------------------------------

_Header = tuple[int, tuple[int, ...], np.dtype[Any]]
"""Where the array of a .npy file begins, its shape and dtype."""

_verified: dict[tuple[str, int, int, int], _Header] = {}
"""Path, inode, size and time of change of the files that this process has verified."""


def checksum(content: Any) -> str:
    """Compute the XXH3 (64 bits) of a buffer."""
    return xxhash.xxh3_64_hexdigest(content)


def open_shard(
    store: Path, path: Path, file: ShardFile, shape: tuple[int, int], dtype: str
) -> Array:
    """Open a shard file as a memory map.

    Its checksum is verified when this process opens it for the first time.
    """
    require_no_links(store, path)
    try:
        try:
            array = _open(path, file)
        except ValueError:
            if not drop_copy(path):  # else the copy of a remote file may be damaged, not the file
                raise
            array = _open(path, file)
    except FileNotFoundError as error:
        raise InputError(f"the shard {shown(path)!r} is missing; {repair_advice(store)}") from error
    except (OSError, ValueError, SyntaxError, tokenize.TokenError) as error:  # of the header
        raise InputError(
            f"the shard {shown(path)!r} is damaged ({error}); {repair_advice(store)}"
        ) from error
    if array.shape != shape or array.dtype != np.dtype(dtype):
        raise InputError(
            f"the shard {shown(path)!r} contains {array.dtype} {array.shape} instead of "
            f"{dtype} {shape}; {repair_advice(store)}"
        )
    return array


def _open(path: Path, file: ShardFile) -> Array:
    with open_shard_file(path) as opened:
        status = os.fstat(opened.fileno())
        key = (str(path), status.st_ino, status.st_size, status.st_mtime_ns)
        content: Array = np.memmap(opened, np.uint8, "r")
        if key not in _verified:
            _verify(content, file)
            opened.seek(0)
            _verified[key] = _header(opened)
    start, shape, dtype = _verified[key]
    return content[start:].view(dtype).reshape(shape)


def _verify(content: Array, file: ShardFile) -> None:
    if (found := checksum(content.data)) != file.xxh3:
        raise ValueError(f"its checksum is {found}, expected {file.xxh3[:16]}")


def _header(opened: Any) -> _Header:
    """Read the header of a verified .npy file."""
    version = np.lib.format.read_magic(opened)
    read = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }.get(version)
    if read is None:
        raise ValueError(f"version {version} of the .npy format")
    shape, fortran, dtype = read(opened)
    if fortran or dtype.hasobject:
        raise ValueError("not a plain array in C order")
    return opened.tell(), shape, dtype
