"""Where the bytes of an image are: a local or remote file, a part of one, or an object."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from oodzoo.core.errors import InputError
from oodzoo.core.remote.cache import cached_file
from oodzoo.core.remote.location import Url
from oodzoo.core.remote.objects import RemoteFile, find_file
from oodzoo.core.text import one_line
from oodzoo.core.threads import Budget
from oodzoo.data.row_groups import read_cell

MAX_FILE_BYTES = 1 << 30
"""Largest image file that is read. The most pixels that Pillow decodes need less, uncompressed."""

# What all threads together hold at the same time; the largest image fits in.
_BYTES = Budget(MAX_FILE_BYTES)


class UnreadableImageError(Exception):
    """The image cannot be read or decoded; the message is the reason, without the path.

    Attributes
    ----------
    transient : bool
        True if the file could not be read now: it is missing, not a regular file or may not be
        read, there was an I/O error, or not enough memory. A transient error is not a property of
        the image, which may be readable later. False if the content of the file cannot be decoded.
    """

    def __init__(self, reason: str, *, transient: bool = False) -> None:
        super().__init__(reason)
        self.transient = transient


class ImageFile(Protocol):
    """Where the bytes of one image are; as a string, what messages call it."""

    @property
    def remote(self) -> RemoteFile | None:
        """What reading fetches into the local cache, unless it is there; None for local files."""

    def size(self) -> int | None:
        """Return the number of bytes; None if it is known only after reading."""

    def read(self) -> bytes:
        """Return the bytes of the image file."""


class ImageOpener(Protocol):
    """A Python object that has images."""

    def open(self, i: int, /) -> bytes:
        """Return the bytes of the image file at a position."""


class LocalFile(msgspec.Struct, frozen=True, tag="local"):
    """A file on a local disk."""

    path: str

    @property
    def remote(self) -> None:
        return None

    def __str__(self) -> str:
        return self.path

    def local(self) -> Path:
        return Path(self.path)

    def size(self) -> int:
        found = Path(self.path).stat()
        # reading a pipe may block, reading a device may never end
        if not stat.S_ISREG(found.st_mode):
            raise UnreadableImageError("not a regular file", transient=True)
        return found.st_size

    def read(self) -> bytes:
        with Path(self.path).open("rb") as file:
            return file.read(os.fstat(file.fileno()).st_size + 1)


class RemoteImage(msgspec.Struct, frozen=True, tag="remote"):
    """A remote file; it is read through the local cache."""

    file: RemoteFile

    @classmethod
    def at(cls, url: Url) -> RemoteImage:
        """Return the image at a URL; InputError if there is none."""
        found = find_file(url)
        if found is None:
            raise InputError(f"no such file: {str(url)!r}")
        return cls(found)

    @property
    def remote(self) -> RemoteFile:
        return self.file

    def __str__(self) -> str:
        return self.file.url

    def local(self) -> Path:
        return cached_file(self.file)

    def size(self) -> int | None:
        return self.file.size

    def read(self) -> bytes:
        return _read_local(self, Path.read_bytes)


Container = LocalFile | RemoteImage
T = TypeVar("T")


def _read_local(file: Container, read: Callable[[Path], T]) -> T:
    """Read a local file, or the local copy of a remote one."""
    try:
        return read(file.local())
    except FileNotFoundError:
        if file.remote is None:
            raise
        return read(file.local())  # another process needed the space in the cache


class _Contained(msgspec.Struct, frozen=True):
    """An image in a file that contains many."""

    file: Container
    name: str

    @property
    def remote(self) -> RemoteFile | None:
        return self.file.remote

    def __str__(self) -> str:
        return f"{self.file}: {self.name}"


class FilePart(_Contained, frozen=True, tag="part"):
    """Consecutive bytes of a file, such as a member of a tar archive."""

    offset: int
    length: int

    def size(self) -> int:
        return self.length

    def read(self) -> bytes:
        return _read_local(self.file, self._read)

    def _read(self, path: Path) -> bytes:
        with path.open("rb") as file:
            file.seek(self.offset)
            return file.read(self.length)


class ParquetCell(_Contained, frozen=True, tag="parquet"):
    """A cell of a Parquet file: its row group, the row in it, and its column."""

    group: int
    row: int
    column: str

    def size(self) -> None:
        return None

    def read(self) -> bytes:
        content = _read_local(
            self.file, lambda path: read_cell(path, self.group, self.row, self.column)
        )
        if content is None:
            raise UnreadableImageError("the cell is empty")
        return content


class ObjectImage:
    """An image that an object of this process opens; other processes cannot."""

    __slots__ = ("name", "opener", "position")

    @property
    def remote(self) -> None:
        return None

    def __init__(self, opener: ImageOpener, position: int, name: str) -> None:
        self.opener = opener
        self.position = position
        self.name = name

    def __str__(self) -> str:
        return self.name

    def size(self) -> None:
        return None

    def read(self) -> bytes:
        return self.opener.open(self.position)


class EmbeddedFile(msgspec.Struct, frozen=True, tag="embedded"):
    """The bytes of a small image file."""

    content: bytes

    @property
    def remote(self) -> None:
        return None

    def __str__(self) -> str:
        return "an embedded image"

    def size(self) -> int:
        return len(self.content)

    def read(self) -> bytes:
        return self.content


class TextFile(msgspec.Struct, frozen=True, tag="text"):
    """A text in a table; as a string, what messages call it."""

    text: str
    name: str

    @property
    def remote(self) -> None:
        return None

    def __str__(self) -> str:
        return self.name

    def size(self) -> int:
        return len(self.read())

    def read(self) -> bytes:
        return self.text.encode(errors="replace")


StoredFile = LocalFile | RemoteImage | FilePart | ParquetCell | EmbeddedFile | TextFile
"""A file that other processes can read, too."""


def modality_of(files: Iterable[Any]) -> Literal["image", "text"]:
    """Whether samples are texts; all are of one kind."""
    return "text" if isinstance(next(iter(files), None), TextFile) else "image"


def absolute(file: ImageFile) -> StoredFile:
    """Return a file as another process finds it, whatever its working folder."""
    if isinstance(file, LocalFile):
        return LocalFile(str(Path(file.path).absolute()))
    if isinstance(file, FilePart | ParquetCell) and isinstance(file.file, LocalFile):
        return msgspec.structs.replace(file, file=absolute(file.file))
    assert isinstance(file, StoredFile)
    return file


@contextmanager
def reading(given: ImageFile | str | Path) -> Iterator[bytes]:
    """Read the content of an image file, for use in the with block.

    Threads wait for each other rather than hold more bytes at the same time than a fixed number.

    Raises
    ------
    UnreadableImageError
        If the file has more than `MAX_FILE_BYTES`; transient if it cannot be read.
    """
    file = LocalFile(str(given)) if isinstance(given, str | Path) else given
    with ExitStack() as reserved:
        yield _read(file, reserved)


def read_bytes(file: ImageFile | str | Path) -> bytes:
    """Read the content of an image file; see :func:`reading`."""
    with reading(file) as content:
        return content


def _read(file: ImageFile, reserved: ExitStack) -> bytes:
    try:
        size = file.size()
        if size is not None:
            _reserve(size, reserved)
        content = file.read()
    except UnreadableImageError:
        raise
    except OSError as error:
        raise UnreadableImageError(error.strerror or one_line(error), transient=True) from error
    except MemoryError as error:
        raise UnreadableImageError("not enough memory", transient=True) from error
    except InputError as error:
        raise UnreadableImageError(str(error), transient=True) from error
    except Exception as error:  # of a source that somebody else has written
        reason = f"{type(error).__name__}: {one_line(error)}"
        raise UnreadableImageError(reason, transient=True) from error
    if not isinstance(content, bytes):
        raise UnreadableImageError(f"its source gave {type(content).__name__} instead of bytes")
    if size is None:
        _reserve(len(content), reserved)
    elif len(content) != size:
        raise UnreadableImageError("the file changed while it was read", transient=True)
    return content


def _reserve(size: int, reserved: ExitStack) -> None:
    if size > MAX_FILE_BYTES:
        raise UnreadableImageError(f"the file has {size:,} bytes; the limit is {MAX_FILE_BYTES:,}")
    reserved.enter_context(_BYTES.reserve(size))
