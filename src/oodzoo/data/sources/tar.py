"""Tar archives: WebDataset's, or of a folder `root/domain/class/image`."""

from __future__ import annotations

import json
import os
import posixpath
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple

from oodzoo.core.errors import InputError
from oodzoo.core.remote.location import Url
from oodzoo.core.text import one_line
from oodzoo.data.files import Container, FilePart, ImageFile, find_containers, read_each
from oodzoo.data.listing import SUFFIXES, Listing
from oodzoo.data.sources.base import SourceOptions, list_labelled
from oodzoo.data.sources.column_roles import name_columns
from oodzoo.data.sources.folder import list_by_path

_ROLES = ("image", "label", "domain", "group")
_DEFAULTS = {
    "label": ("cls", "label", "label.txt", "json.label"),
    "domain": ("domain", "domain.txt", "json.domain"),
    "group": ("group", "group.txt", "json.group"),
}
_LABELS = frozenset({"cls", "label", "label.txt", "json"})
"""Members that are beside an image in archives of WebDataset."""
_LONGEST = 16 << 20
"""Bytes of a member that has a label or a domain."""


class _Archive(NamedTuple):
    file: Container
    members: list[Member]


def list_tars(location: Path | Url, options: SourceOptions) -> Listing:
    """List the images in tar archives.

    In archives of WebDataset, the members `key.jpg`, `key.cls`, `key.json`, … are one sample.
    `columns` names the member of each role, such as `cls` or `domain.txt`, or a field of a JSON
    document, as `json.site`. In other archives the members are `domain/class/…/image`, with or
    without folders above.
    """
    roles = dict(options.columns or {})
    for role in roles:
        if role not in _ROLES:
            raise InputError(
                f"{str(location)!r} has no use for a column {role!r}; it uses {', '.join(_ROLES)}"
            )
    files = find_containers(location, (".tar", ".tar.gz", ".tgz"))
    archives = list(read_each(_open, files))
    if not any(_is_image(member.name) for archive in archives for member in archive.members):
        raise InputError(f"no image found in {str(location)!r}")
    if roles or any(_has_labels(archive.members) for archive in archives):
        return _list_keys(str(location), archives, roles, options)
    _require_once((m.name, archive) for archive in archives for m in archive.members)
    return list_by_path(str(location), _without_root(archives), "root")


def _open(file: Container) -> _Archive:
    return _Archive(file, list_members(file.local(), str(file)))


def _is_image(name: str) -> bool:
    return PurePosixPath(name).suffix.lower() in SUFFIXES


def _part(file: Container, member: Member) -> FilePart:
    return FilePart(file, member.name, member.offset, member.size)


def _require_once(names: Iterable[tuple[str, _Archive]]) -> None:
    first: dict[str, _Archive] = {}
    for name, archive in names:
        if first.setdefault(name, archive) is not archive:
            raise InputError(
                f"{str(first[name].file)!r} and {str(archive.file)!r} both have {name!r}; give "
                "each image a name of its own"
            )


# --- a folder in archives ---------------------------------------------------------------------


def _without_root(archives: Sequence[_Archive]) -> Iterator[tuple[str, ImageFile]]:
    """Yield the images without the folders that all of them are in: these are not domains."""
    images = [(a.file, m) for a in archives for m in a.members if _is_image(m.name)]
    folders = [os.path.dirname(member.name) for _, member in images]  # noqa: PTH120 - many
    shared = os.path.commonpath(folders).split("/")
    deepest = max(folder.count("/") for folder in folders)
    # a domain and a class remain
    start = sum(len(part) + 1 for part in shared[: max(deepest - 1, 0)] if part)
    for file, member in images:
        yield member.name[start:], _part(file, member)


# --- WebDataset -------------------------------------------------------------------------------


def _split(name: str) -> tuple[str, str]:
    """Split the name of a member at the first dot of its last part, as WebDataset does."""
    folder, slash, last = name.rpartition("/")
    stem, _, extension = last.partition(".")
    return folder + slash + stem, extension.lower()


def _by_key(members: Iterable[Member]) -> dict[str, dict[str, Member]]:
    keys: dict[str, dict[str, Member]] = {}
    for member in members:
        key, extension = _split(member.name)
        keys.setdefault(key, {})[extension] = member
    return keys


def _require_distinct(archive: _Archive, keys: Mapping[str, Mapping[str, Member]]) -> None:
    """Reject `1.jpg` beside `1.JPG`: only one of them would be the image."""
    for member in archive.members:
        key, extension = _split(member.name)
        other = keys[key][extension]
        if other is not member:
            raise InputError(
                f"{str(archive.file)!r} has {member.name!r} and {other.name!r}, which differ in "
                "upper case only; rename one"
            )


def _has_labels(members: Iterable[Member]) -> bool:
    """Whether some image has a member with its label beside it."""
    return any(
        _LABELS & parts.keys() and any(map(_is_image, _names(parts)))
        for parts in _by_key(members).values()
    )


def _names(parts: Mapping[str, Member]) -> list[str]:
    return [member.name for member in parts.values()]


class _KeyedImage(NamedTuple):
    image: FilePart
    values: dict[str, Any]


def _list_keys(
    name: str, archives: Sequence[_Archive], roles: Mapping[str, str], options: SourceOptions
) -> Listing:
    found: list[_KeyedImage] = []
    owners: list[tuple[str, _Archive]] = []
    for archive in archives:
        keys = _by_key(archive.members)
        _require_distinct(archive, keys)
        with archive.file.local().open("rb") as stream:
            for key, parts in keys.items():
                reader = _ArchiveKey(str(archive.file), key, parts, stream)
                image = reader.image(roles.get("image"))
                if image is None:
                    reader.require_unlabelled(roles)
                    continue
                own = {role: reader.value(role, roles.get(role)) for role in _DEFAULTS}
                found.append(_KeyedImage(_part(archive.file, image), own))
                owners.append((key, archive))
    _require_once(owners)
    files = [sample.image for sample in found]
    values = {role: [sample.values[role] for sample in found] for role in _DEFAULTS}
    return list_labelled(name, [file.name for file in files], files, values, options)


class _ArchiveKey:
    """The members of one key of an archive."""

    def __init__(
        self, archive: str, key: str, parts: Mapping[str, Member], stream: IO[bytes]
    ) -> None:
        self._where = f"{archive!r}, key {key!r}"
        self._parts = parts
        self._stream = stream

    def image(self, extension: str | None) -> Member | None:
        """Find the image; None if there is none."""
        if extension is not None:
            return self._parts.get(extension.lower())
        images = {ext: m for ext, m in self._parts.items() if _is_image(m.name)}
        plain = [member for ext, member in images.items() if "." not in ext]
        chosen = plain or list(images.values())
        if len(chosen) > 1:
            raise InputError(
                f"{self._where}: which one is the image, {' or '.join(map(repr, images))}? Name it "
                f"with {name_columns(['image'])}"
            )
        return chosen[0] if chosen else None

    def require_unlabelled(self, roles: Mapping[str, str]) -> None:
        """Reject a label without an image; other files, such as notes, are ignored."""
        for extension in self._parts:
            if extension in _LABELS or extension in roles.values():
                wanted = roles.get("image") or "image, such as .jpg,"
                raise InputError(
                    f"{self._where} has no {wanted} beside {self._parts[extension].name!r}"
                )

    def value(self, role: str, named: str | None) -> Any:
        """Read the label, domain or group; None for a group that is missing."""
        choices = _DEFAULTS[role] if named is None else (named,)
        for choice in choices:
            extension, fields = _field(choice)
            member = self._parts.get(extension.lower())
            if member is not None:
                value = self._read(member, fields)
                if value is not None:
                    return value
        if role == "group":
            return None
        have = ", ".join(map(repr, self._available()))
        raise InputError(
            f"{self._where} has no {role}: expected {' or '.join(choices)}, and there are {have}; "
            f"name the member or field with {name_columns([role])}"
        )

    def _available(self) -> Iterator[str]:
        """Yield the members, and the fields of JSON documents, as `columns` names them."""
        for extension, member in self._parts.items():
            is_json = extension.rpartition(".")[2] == "json"
            document = self._decode(member, json.loads, "JSON") if is_json else None
            if isinstance(document, dict):
                yield from (f"{extension}.{field}" for field in islice(document, 20))
            else:
                yield extension

    def _read(self, member: Member, fields: Sequence[str]) -> Any:
        if not fields:
            return self._decode(member, str.strip, "UTF-8 text") or None
        value = self._decode(member, json.loads, "JSON")
        for field in fields:
            value = value.get(field) if isinstance(value, dict) else None
        return None if value == "" else value

    def _decode(self, member: Member, convert: Callable[[str], Any], what: str) -> Any:
        if member.size > _LONGEST:
            raise InputError(f"{self._where}: {member.name!r} has {member.size:,} bytes")
        try:
            self._stream.seek(member.offset)
            return convert(self._stream.read(member.size).decode("utf-8-sig"))
        except (ValueError, RecursionError) as error:
            raise InputError(
                f"{self._where}: {member.name!r} is not {what}: {one_line(error)}"
            ) from error


def _field(reference: str) -> tuple[str, list[str]]:
    """Split `json.site` into a member and the field in it; other members have no fields."""
    before, json_, field = reference.partition("json.")
    if json_ and field and (not before or before.endswith(".")):
        return before + "json", field.split(".")
    return reference, []


# --- the members of an archive --------------------------------------------------------------------

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
