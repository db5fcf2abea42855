"""Where the bytes of an image are: a file, a part of one, a cell of a table, or an object."""

from __future__ import annotations

import glob
import os
import re
import stat
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

import msgspec

from oodzoo.core.errors import InputError
from oodzoo.core.packages import optional_package
from oodzoo.core.remote.cache import SIZE, cache_size, cached_file
from oodzoo.core.remote.location import Url
from oodzoo.core.remote.objects import RemoteFile, find_file, list_files
from oodzoo.core.text import count, one_line
from oodzoo.core.threads import Budget, Prefetch

MAX_GROUP_BYTES = 1 << 30
"""Most bytes of images in one row group, and of the row groups that are kept together."""


class _RowGroup(NamedTuple):
    path: Path
    changed: int
    size: int
    number: int
    column: str


def read_cell(path: Path, number: int, row: int, column: str) -> bytes | None:
    """Return the bytes in a cell of a Parquet file; None if it is empty.

    Parameters
    ----------
    path : Path
    number : int
        The row group.
    row : int
        The row in this group.
    column : str
        A column of bytes, such as `image`, or a field of one, such as `image.bytes`.

    Raises
    ------
    InputError
        If the row group cannot be decoded.
    """
    cells = _cells(path, number, column)
    if row >= len(cells):
        raise InputError(f"{str(path)!r} changed while it was read")
    value = cells[row]
    return value.as_buffer().to_pybytes() if value.is_valid else None


def is_empty(path: Path, n_groups: int, column: str) -> bool:
    """Whether all cells of a column are empty."""
    return all(
        cells.null_count == len(cells)
        for cells in (_cells(path, n, column) for n in range(n_groups))
    )


def _cells(path: Path, number: int, column: str) -> Any:
    found = path.stat()
    group = _RowGroup(path, found.st_mtime_ns, found.st_size, number, column)
    return _KEPT.get(group, lambda: _decode(group))


class GroupCache:
    """Decoded row groups, the least recently used of which are dropped; for several threads.

    Threads that need the same group wait for one of them to decode it.

    Parameters
    ----------
    most : int
        Bytes that are kept; a larger group is kept alone.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._groups: OrderedDict[_RowGroup, Future[Any]] = OrderedDict()
        self._sizes: dict[_RowGroup, int] = {}
        self._lock = Lock()

    def get(self, group: _RowGroup, decode: Callable[[], Any]) -> Any:
        """Return a group, which is decoded unless it is kept."""
        with self._lock:
            future = self._groups.get(group)
            if future is not None:
                self._groups.move_to_end(group)
            else:
                mine = self._groups[group] = Future()
        if future is not None:
            return future.result()
        try:
            cells = decode()
        except BaseException as error:
            with self._lock:
                del self._groups[group]
            mine.set_exception(error)
            raise
        mine.set_result(cells)
        with self._lock:
            self._sizes[group] = cells.nbytes
            self._drop(group)
        return cells

    def _drop(self, newest: _RowGroup) -> None:
        for group in [group for group in self._groups if group in self._sizes]:
            if sum(self._sizes.values()) <= self._most:
                return
            if group != newest:
                del self._groups[group], self._sizes[group]


_KEPT = GroupCache(MAX_GROUP_BYTES)
_DECODING = Budget(MAX_GROUP_BYTES)  # of all threads together


def _decode(group: _RowGroup) -> Any:
    parquet = optional_package("pyarrow.parquet", extra="parquet", purpose="reading a Parquet file")
    try:
        metadata = _metadata(group.path, group.changed, group.size)
        with (
            _DECODING.reserve(metadata.row_group(group.number).total_byte_size),
            parquet.ParquetFile(group.path, metadata=metadata) as file,
        ):
            table = file.read_row_group(group.number, [group.column], use_threads=False)
            return _column(table, group.column)
    except MemoryError:
        raise
    except Exception as error:  # of a damaged file: of pyarrow, OSError, ValueError, …
        raise InputError(
            f"row group {group.number} of {str(group.path)!r} cannot be decoded: {one_line(error)}"
        ) from error


def _column(table: Any, column: str) -> Any:
    """Return a column of bytes; of one of structs, only the field was read."""
    import pyarrow.compute

    if column in table.column_names:
        return table.column(column)
    return pyarrow.compute.struct_field(table.column(column.rpartition(".")[0]), 0)


@lru_cache(maxsize=64)
def _metadata(path: Path, changed: int, size: int) -> Any:
    import pyarrow.parquet

    return pyarrow.parquet.read_metadata(path)


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


class _OnThisMachine:
    """Images that nothing has to be fetched for."""

    __slots__ = ()

    @property
    def remote(self) -> None:
        return None


class LocalFile(_OnThisMachine, msgspec.Struct, frozen=True, tag="local"):
    """A file on a local disk."""

    path: str

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


@dataclass(slots=True, eq=False)
class ObjectImage(_OnThisMachine):
    """An image that an object of this process opens; other processes cannot."""

    opener: ImageOpener
    position: int
    name: str

    def __str__(self) -> str:
        return self.name

    def size(self) -> None:
        return None

    def read(self) -> bytes:
        return self.opener.open(self.position)


class EmbeddedFile(_OnThisMachine, msgspec.Struct, frozen=True, tag="embedded"):
    """The bytes of a small image file."""

    content: bytes

    def __str__(self) -> str:
        return "an embedded image"

    def size(self) -> int:
        return len(self.content)

    def read(self) -> bytes:
        return self.content


class TextFile(_OnThisMachine, msgspec.Struct, frozen=True, tag="text"):
    """A text in a table; as a string, what messages call it."""

    text: str
    name: str

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


# --- files that contain many images, as paths, URLs and patterns name them ------------------------

_MOST = 100_000
_FETCHED_TOGETHER = 4
_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"([0-9]{1,18})\.\.([0-9]{1,18})")
_SIGNS = frozenset("*?[")


def find_containers(location: Path | Url, suffixes: tuple[str, ...]) -> list[Container]:
    """Find the files that a path or URL means, sorted.

    It is one file, a folder of files with one of the suffixes, or a pattern with `*`, `?`, `[…]`,
    `{000..012}` or `{day,night}`.

    Raises
    ------
    InputError
        If there is no such file, or remote files do not fit into the cache.
    """
    if isinstance(location, Url):
        files = _remote(location, suffixes)
        _require_room(files, str(location))
        return [RemoteImage(file) for file in files]
    return [LocalFile(str(path)) for path in _local(location, suffixes)]


def read_each(function: Callable[[Container], T], files: Sequence[Container]) -> Iterator[T]:
    """Call a function with each file; several remote files are fetched at the same time."""
    threads = _FETCHED_TOGETHER if any(file.remote for file in files) else 1
    return Prefetch(function, [(file,) for file in files], n_threads=threads, ahead=2 * threads)


def expand_braces(pattern: str) -> list[str]:
    """List the names that a pattern with braces means.

    Examples
    --------
    >>> expand_braces("{day,night}-{08..10}.tar")[:4]
    ['day-08.tar', 'day-09.tar', 'day-10.tar', 'night-08.tar']
    """
    names = list(islice(_expanded(pattern), _MOST + 1))
    if not names or len(names) > _MOST:
        n = f"more than {count(_MOST, 'file')}" if names else "no file"
        raise InputError(f"the braces in {pattern!r} mean {n}")
    return names


def _expanded(pattern: str) -> Iterator[str]:
    for found in _BRACES.finditer(pattern):
        numbers = _RANGE.fullmatch(found[1])
        choices: Iterator[str] | list[str] | None = None
        if numbers:
            width = len(numbers[1])
            choices = (f"{n:0{width}}" for n in range(int(numbers[1]), int(numbers[2]) + 1))
        elif "," in found[1]:
            choices = found[1].split(",")
        if choices is not None:
            before, after = pattern[: found.start()], pattern[found.end() :]
            for choice in choices:
                yield from _expanded(before + choice + after)
            return
    yield pattern


def _local(location: Path, suffixes: tuple[str, ...]) -> list[Path]:
    if location.is_dir():
        names = [path.name for path in location.iterdir()]
        return [location / name for name in _of_folder(names, suffixes, str(location))]
    if location.exists():
        return [location]
    paths: dict[str, None] = {}
    for pattern in expand_braces(str(location)):
        # Path.glob takes no absolute pattern
        found = sorted(glob.glob(pattern)) if _SIGNS & set(pattern) else []  # noqa: PTH207
        if not found and not Path(pattern).is_file():
            raise _nothing(pattern, str(location))
        paths |= dict.fromkeys(found or [pattern])
    return [Path(path) for path in paths]


def _remote(location: Url, suffixes: tuple[str, ...]) -> list[RemoteFile]:
    names = [Url(text) for text in expand_braces(str(location))]
    if not location.name.lower().endswith(suffixes):
        here = {
            Url(file.url).name: file for file in list_files(location) if _parent(file) == location
        }
        return [here[name] for name in _of_folder(here, suffixes, str(location))]
    plain = [(url,) for url in names if not _SIGNS & set(str(url))]
    single = dict(zip(plain, Prefetch(find_file, plain, n_threads=16), strict=True))
    files: dict[RemoteFile, None] = {}
    for url in names:
        one = single.get((url,))
        found = [one] if one else _matching(url)
        if not found:
            raise _nothing(str(url), str(location))
        files |= dict.fromkeys(found)
    return list(files)


def _matching(pattern: Url) -> list[RemoteFile]:
    """List the remote files whose URLs match a pattern part by part."""
    parts = str(pattern).split("/")
    first = next((n for n, part in enumerate(parts) if _SIGNS & set(part)), None)
    if first is None:
        return []
    found = []
    for file in list_files(Url("/".join(parts[:first]))):
        names = file.url.split("/")
        hidden = any(name.startswith(".") for name in names[first:])
        if len(names) == len(parts) and all(map(fnmatchcase, names, parts)) and not hidden:
            found.append(file)
    return found


def _parent(file: RemoteFile) -> Url:
    return Url(file.url).parent


def _of_folder(
    names: Sequence[str] | dict[str, RemoteFile], suffixes: tuple[str, ...], folder: str
) -> list[str]:
    found = sorted(n for n in names if n.lower().endswith(suffixes) and not n.startswith("."))
    if not found:
        raise InputError(f"no {' or '.join(suffixes)} file in {folder!r}")
    return found


def _nothing(name: str, pattern: str) -> InputError:
    if _SIGNS & set(name):
        return InputError(f"no file matches {name!r}")
    return InputError(
        f"no such file: {name!r}" + (f", which {pattern!r} means" if name != pattern else "")
    )


def _require_room(files: Sequence[RemoteFile], name: str) -> None:
    total, bound = sum(file.size or 0 for file in files), cache_size()
    if total > bound:
        raise InputError(
            f"{name!r} has {total / 1e9:.1f} GB in {count(len(files), 'file')}, and the cache "
            f"holds {bound / 1e9:.1f} GB; set {SIZE} to more, such as {total // 10**9 + 1}G"
        )
