"""Shard files: writing, reading with verified checksums, and loading the rows of given images.

A shard has the rows of a model for some images of the index. Its record is written after its
files, once: of two processes that compute the same shard, the first one counts.
"""

from __future__ import annotations

import hashlib
import os
import tokenize
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

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
from oodzoo.store.format import (
    SCHEMA,
    ModelRecord,
    file_name,
    is_file_name,
    read_document,
    repair_advice,
    require_no_links,
    sealed,
    unsealed,
)
from oodzoo.store.mirror import (
    fetch_records,
    in_parallel,
    mirror_of,
    open_shard_file,
    remove_files,
    write_bytes,
    write_new,
)
from oodzoo.store.table import images_digest

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
    path, what = list_file(folder, digest), "the list of shards"
    records = read_document(store, path, _ShardList, what, digest, repair_advice(store)).shards
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
            if (mirror := mirror_of(path)) is None:
                raise
            mirror.drop_copy(path)  # which may be damaged, and not the remote file
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


Places = NDArray[np.int64]
"""Shard and row of each image, (n, 2); see :class:`Place`."""


class Place(NamedTuple):
    """A row of a shard; `shard` is a position in the list of shards of a model."""

    shard: int
    row: int


class Coverage:
    """The images that a model has rows of.

    Attributes
    ----------
    rows : dict of str to Place
        An image in several shards has the row in the last of them.
    unreadable : dict of str to str
        Why other images cannot be decoded.
    """

    def __init__(self, index: Mapping[str, Sequence[str]], shards: Iterable[Shard]) -> None:
        self.rows: dict[str, Place] = {}
        self.unreadable: dict[str, str] = {}
        for number, shard in enumerate(shards):
            row = 0
            for position, image in enumerate(index[shard.shard]):
                if position in shard.absent:
                    reason = shard.absent[position]
                    if reason is not None:
                        self.unreadable[image] = reason
                else:
                    self.rows[image] = Place(number, row)
                    row += 1
        for image in self.rows:
            self.unreadable.pop(image, None)

    def places(self, images: Sequence[str]) -> Places:
        """Return the places of images; raise KeyError for an image without a row."""
        return np.array([self.rows[image] for image in images], np.int64).reshape(-1, 2)

    def missing(self, images: Iterable[str]) -> list[str]:
        """List the images, each once, that have no row and are not known to be unreadable."""
        return [
            image
            for image in dict.fromkeys(images)
            if image not in self.rows and image not in self.unreadable
        ]


class Coverages:
    """Coverages of many models; those with the same shards share one."""

    def __init__(self) -> None:
        self._known: dict[Any, Coverage] = {}

    def of(self, index: Mapping[str, Sequence[str]], shards: Sequence[Shard]) -> Coverage:
        key = tuple((shard.shard, tuple(shard.absent.items())) for shard in shards)
        if key not in self._known:
            self._known[key] = Coverage(index, shards)
        return self._known[key]


_AHEAD = 16
"""Shards of a store at a URL that are fetched together."""


def gather_rows(
    store: Path,
    folder: Path,
    record: ModelRecord,
    shards: Sequence[Shard],
    index: Mapping[str, Sequence[str]],
    places: Places,
    output: str,
) -> Array:
    """Load rows in a given order; `folder` has the shard files of the model."""
    array = np.empty((len(places), record.widths[output]), record.dtype)
    order = np.argsort(places[:, 0], kind="stable")  # each shard is opened once
    numbers, starts = np.unique(places[order, 0], return_index=True)
    used = [folder / shards[number].files[output].file for number in numbers.tolist()]
    parts = zip(numbers.tolist(), np.split(order, starts[1:]), strict=False)
    for at, (number, positions) in enumerate(parts):
        if at % _AHEAD == 0 and (mirror := mirror_of(store)) is not None:
            in_parallel(mirror.copy_of, used[at : at + _AHEAD])
        shard = shards[number]
        file = shard.files[output]
        shape = (len(index[shard.shard]) - len(shard.absent), record.widths[output])
        opened = open_shard(store, used[at], file, shape, record.dtype)
        array[_slice(positions)] = opened[_slice(places[positions, 1])]
    return array


def _slice(rows: NDArray[np.intp]) -> slice | NDArray[np.intp]:
    """Return consecutive rows as a slice, which is faster."""
    consecutive = bool((np.diff(rows) == 1).all())
    return slice(int(rows[0]), int(rows[0]) + len(rows)) if consecutive else rows
