"""A predictor at a URL: the same files as in a folder, each of them a whole object.

The files of each predictor are in URL/version-<time><random>/, and URL/predictor.json names them.
It is written last and replaced as a whole, so at any moment there is the old predictor or the new
one, also if several processes write. The files of the old one are removed after that; those that
a killed process left are removed a day later. The model card is URL/README.md, as in a folder.

A predictor is read from a local folder, with links to the files of the cache.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import secrets
import shutil
import tempfile
import time
from pathlib import Path, PurePosixPath
from typing import Any

from oodzoo.core.errors import InputError
from oodzoo.core.io import (
    explaining_disk_errors,
    file_digest,
    locked,
    read_json,
    temporary_name,
)
from oodzoo.core.remote.cache import cache_folder, cached_file, drop_cached
from oodzoo.core.remote.failures import RemoteError
from oodzoo.core.remote.location import Url, parse_location
from oodzoo.core.remote.objects import (
    RemoteFile,
    find_file,
    list_files,
    read_file,
    remove_files,
    write_file,
)
from oodzoo.predictor.card import CARD, is_own_card, warn_of_edited_card
from oodzoo.predictor.document import is_predictor, named_files
from oodzoo.predictor.folder import read_folder, require_free, write_files
from oodzoo.predictor.parts import PredictorParts
from oodzoo.predictor.temporaries import remove_at_exit

_DOCUMENT = "predictor.json"
_VERSION = re.compile(r"version-(?P<time>[0-9a-f]{8})[0-9a-f]{8}")
_UNUSED_SECONDS = 24 * 3600
_NEW_SECONDS = 60
"""A folder this new may not have its lock yet."""
_READ_ATTEMPTS = 3


# --- writing -----------------------------------------------------------------------------------


def write_url(parts: PredictorParts, url: Url) -> Url:
    """Write a predictor to a URL; at any moment it has the old predictor or the new one."""
    old = require_free_url(url)
    version = f"version-{int(time.time()):08x}{secrets.token_hex(4)}"
    with tempfile.TemporaryDirectory(prefix="oodzoo-") as name:
        folder = Path(name)
        with explaining_disk_errors(folder):
            (folder / version).mkdir()
            write_files(parts, folder, f"{version}/", str(url))
        files = [file.relative_to(folder) for file in sorted(folder.rglob("*")) if file.is_file()]
        paths = [file.as_posix() for file in files if file.parts[0] == version]
        try:
            for path in paths:
                write_file(url / path, (folder / path).read_bytes())
        except BaseException:  # including KeyboardInterrupt
            with contextlib.suppress(RemoteError):
                remove_files(url / path for path in paths)
            raise
        is_kept = _keeps_card(url / CARD)
        write_file(url / _DOCUMENT, (folder / _DOCUMENT).read_bytes())
        if not is_kept:
            write_file(url / CARD, (folder / CARD).read_bytes())
    _remove_unused(url, old)
    return url


def require_free_location(given: str) -> None:
    """Raise InputError if anything but a predictor or an empty folder is there."""
    location = parse_location(given)
    if isinstance(location, Url):
        require_free_url(location)
    else:
        require_free(location)


def require_free_url(url: Url) -> list[str]:
    """Raise InputError if anything but a predictor has this URL; return the paths of its files."""
    file = find_file(url / _DOCUMENT)
    if file is not None:
        with contextlib.suppress(InputError):  # damaged
            content = _read_document(file, url)
            if is_predictor(content):
                return list(named_files(content, str(url)))
    elif find_file(url) is None and not list_files(url):
        return []
    raise InputError(f"{str(url)!r} exists and is not a predictor; choose another URL")


def _keeps_card(url: Url) -> bool:
    """Remove the model card, unless somebody has edited it; return whether it is kept."""
    card = find_file(url)
    if card is None:
        return False
    if is_own_card(read_file(card)):
        remove_files([url])
        return False
    warn_of_edited_card(str(url))
    return True


def _remove_unused(url: Url, old: list[str]) -> None:
    """Remove the files of the old predictor, and those that killed processes left."""
    with contextlib.suppress(RemoteError):  # they only take up space
        paths = [file.url.removeprefix(f"{url}/") for file in list_files(url)]
        remove_files(url / path for path in paths if path in old or _is_forgotten(path))


def _is_forgotten(path: str) -> bool:
    version = _VERSION.fullmatch(path.partition("/")[0])
    return version is not None and time.time() - int(version["time"], 16) > _UNUSED_SECONDS


# --- reading -----------------------------------------------------------------------------------


def read_url(url: Url) -> PredictorParts:
    """Read a predictor from a URL, and check every file against its checksum."""
    folder = _fetched(url)
    try:
        return read_folder(folder)
    except InputError as error:
        raise InputError(str(error).replace(str(folder), str(url))) from error


def _fetched(url: Url) -> Path:
    """A local folder with the files of a predictor."""
    for remaining in reversed(range(_READ_ATTEMPTS)):
        document = find_file(url / _DOCUMENT)
        if document is None:
            raise _no_predictor(url)
        try:
            return _fetch(url, document)
        except RemoteError:
            # it may have been replaced in the meantime, and its files removed
            if not remaining or find_file(url / _DOCUMENT) == document:
                raise
    raise AssertionError


def _fetch(url: Url, document: RemoteFile) -> Path:
    content = _read_document(document, url)
    what = f"the predictor {str(url)!r}"
    files = named_files(content, what) if is_predictor(content) else {}
    folder = links_folder(f"{url} {document.version}")
    for path, sha256 in files.items():
        require_inside(path, what)
        file = find_file(url / path)
        if file is None:
            raise RemoteError(f"{what} lacks {path!r}; copy the whole folder, or fit again")
        link(_verified(file, sha256), folder / path)
    link(cached_file(document), folder / _DOCUMENT)
    return folder


def require_inside(path: str, what: str) -> None:
    """Raise InputError if a file of a predictor is not inside its folder."""
    if PurePosixPath(path).is_absolute() or {"..", "."} & set(path.split("/")) or "\\" in path:
        raise InputError(f"{what} names {path!r}, which is not inside its folder; fit again")


def _read_document(file: RemoteFile, url: Url) -> dict[str, Any]:
    cached = cached_file(file)
    try:
        return read_json(cached, "the predictor")
    except InputError as error:
        drop_cached(file)
        raise InputError(f"{str(error).replace(str(cached), str(url))}; fit again") from error


def _verified(file: RemoteFile, sha256: str) -> Path:
    """A local copy; one that is damaged is fetched again."""
    cached = cached_file(file)
    if file_digest(cached) != sha256:
        drop_cached(file)
        cached = cached_file(file)
    return cached


def link(file: Path, target: Path) -> None:
    """Link a file of a cache, so that it remains if the cache removes it."""
    with explaining_disk_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.parent / temporary_name()
        try:
            os.link(file, temporary)
        except OSError:  # the disk has no hard links
            shutil.copyfile(file, temporary)
        temporary.replace(target)


def links_folder(version: str) -> Path:
    """The folder of this process for links to the files of a version of a predictor."""
    name = hashlib.sha256(version.encode()).hexdigest()[:32]
    return _process_folder(cache_folder() / "predictors", os.getpid()) / name


@functools.cache
def _process_folder(parent: Path, process: int) -> Path:
    """A folder of this process, removed at its end; those of killed processes are removed now."""
    with explaining_disk_errors(parent):
        parent.mkdir(parents=True, exist_ok=True)
        for other in list(parent.iterdir()):
            if time.time() - other.stat().st_mtime > _NEW_SECONDS:
                with contextlib.suppress(InputError), locked(other):  # not if its process runs
                    shutil.rmtree(other, ignore_errors=True)
    folder = parent / secrets.token_hex(8)
    held = contextlib.ExitStack()
    held.enter_context(locked(folder))
    return remove_at_exit(folder, held.close)


def _no_predictor(url: Url) -> InputError:
    if find_file(url / "model" / _DOCUMENT) is not None:
        hint = f"did you mean {str(url / 'model')!r}?"
    else:
        hint = "make one with oodzoo fit"
    return InputError(f"{str(url)!r} is not a predictor: it has no {_DOCUMENT}; {hint}")
