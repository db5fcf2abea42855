"""The members of a tar archive and where their bytes are, found by one pass over its headers."""

from __future__ import annotations

import os
import posixpath
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

from oodzoo._text import one_line
from oodzoo.data.listing import SUFFIXES
from oodzoo.errors import InputError

_BLOCK = 512
_CHUNK = 1 << 20
_GZIP = b"\x1f\x8b"
_MOST_LINKS = 40


class Member(NamedTuple):
    """A regular file in a tar archive: its bytes are at `offset`."""

    name: str
    offset: int
    size: int


def list_members(path: Path, name: str) -> list[Member]:
    """List the regular files in an uncompressed tar archive, and links to them, in order.

    Parameters
    ----------
    path : Path
        A local file.
    name : str
        What messages call it.

    Raises
    ------
    InputError
        If the file is not a tar archive, or is compressed, truncated or damaged; for a name that
        leads outside or occurs twice, and for a member whose bytes are not in one piece.
    """
    with path.open("rb") as file:
        if file.read(2) == _GZIP:
            raise InputError(
                f"{name!r} is compressed, and images are read from it in any order; decompress it "
                "first, with gunzip"
            )
        members: dict[str, Member | _Link] = {}
        for info in _headers(file, os.fstat(file.fileno()).st_size, name):
            found = _member(info, name)
            if found is None or _is_hidden(found.name):
                continue
            if found.name in members:
                raise InputError(f"{name!r} has the member {found.name!r} twice")
            members[found.name] = found
    resolved = (_resolved(member, members, name) for member in members.values())
    return [member for member in resolved if member is not None]


class _Link(NamedTuple):
    name: str
    target: str


def _headers(file: IO[bytes], size: int, name: str) -> Iterator[tarfile.TarInfo]:
    """Yield the headers of an archive; raise an InputError if it is not complete."""
    file.seek(0)
    end = 0
    try:
        with tarfile.open(fileobj=file, mode="r:", encoding="utf-8") as archive:
            while (info := archive.next()) is not None and end < archive.offset <= size:
                end = archive.offset
                archive.members.clear()  # type: ignore[attr-defined]  # it keeps all headers
                yield info
            cut = info if archive.offset > size else None
    except tarfile.ReadError as error:
        what = "truncated" if "unexpected end" in str(error) else "not a tar file"
        raise InputError(f"{name!r} is {what}: {one_line(error)}") from error
    except (OSError, MemoryError):
        raise
    except Exception as error:  # of a damaged header: ValueError, OverflowError, …
        raise InputError(f"{name!r} is a damaged tar file: {one_line(error)}") from error
    if cut is not None:
        raise InputError(f"{name!r} is truncated: it ends within the member {cut.name!r}")
    _require_end(file, end, name)


def _require_end(file: IO[bytes], end: int, name: str) -> None:
    """Require zeros after the last member: otherwise members are missing."""
    file.seek(end)
    block = file.read(_BLOCK)
    if len(block) < _BLOCK:
        raise InputError(f"{name!r} is truncated: it ends after {end:,} bytes, without an end mark")
    if any(block):
        raise InputError(f"{name!r} is damaged: there is no header at byte {end:,}")
    while block := file.read(_CHUNK):
        if block.strip(b"\0"):
            raise InputError(
                f"{name!r} has data after its end mark, at byte {end:,}; if tar files were "
                "concatenated, give them one by one"
            )


def _member(info: tarfile.TarInfo, name: str) -> Member | _Link | None:
    if not (info.isreg() or info.islnk() or info.issym()):
        return None  # a folder or a device
    own = _inside(info.name, name)
    if info.issym():
        return _Link(own, posixpath.normpath(posixpath.join(posixpath.dirname(own), info.linkname)))
    if info.islnk():
        return _Link(own, posixpath.normpath(info.linkname.lstrip("/")))
    if info.sparse is not None:
        raise InputError(
            f"{name!r}: the member {own!r} is stored with holes; write the archive without --sparse"
        )
    return Member(own, info.offset_data, info.size)


def _inside(member: str, name: str) -> str:
    """Return the normal form of the name of a member."""
    try:
        member.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{name!r} has a member whose name is not UTF-8: {member!r}") from error
    normal = posixpath.normpath(member.lstrip("/"))
    if normal.split("/")[0] in ("..", "."):
        raise InputError(f"{name!r} has a member whose name leads outside: {member!r}")
    return normal


def _is_hidden(member: str) -> bool:
    return any(part.startswith(".") for part in member.split("/"))


def _resolved(
    member: Member | _Link, members: dict[str, Member | _Link], name: str
) -> Member | None:
    """Follow links; those that lead to no regular file are None, unless they should be images."""
    target: Member | _Link | None = member
    for _ in range(_MOST_LINKS):
        if isinstance(target, Member):
            return target._replace(name=member.name)
        target = None if target is None else members.get(target.target)
    if posixpath.splitext(member.name)[1].lower() in SUFFIXES:
        raise InputError(
            f"{name!r}: the member {member.name!r} is a link to a file that is not in the archive; "
            "write it with --dereference"
        )
    return None
