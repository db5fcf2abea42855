"""A predictor at a URL or on the Hugging Face Hub: the same files as in a folder.

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
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote

from oodzoo.core.errors import InputError
from oodzoo.core.io import (
    explaining_disk_errors,
    file_digest,
    locked,
    read_json,
    temporary_name,
)
from oodzoo.core.packages import optional_package
from oodzoo.core.remote.cache import cache_folder, cached_file, drop_cached
from oodzoo.core.remote.location import Url, parse_location
from oodzoo.core.remote.objects import (
    RemoteError,
    RemoteFile,
    find_file,
    list_files,
    read_file,
    remove_files,
    write_file,
)
from oodzoo.core.text import one_line
from oodzoo.predictor.card import CARD, is_own_card, warn_of_edited_card
from oodzoo.predictor.document import is_predictor, named_files
from oodzoo.predictor.folder import read_folder, require_free, write_files
from oodzoo.predictor.models import remove_at_exit
from oodzoo.predictor.parts import PredictorParts
from oodzoo.zoo.hub import error_chain, offline, why_unreachable

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


_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_URL = re.compile(r"hf://([^/@]+/[^/@]+)(?:@([^/]+))?(?:/(.+))?")
_OTHER = ("datasets/", "spaces/", "buckets/")
_NEW = re.compile(r"\.gitattributes|README\.md|LICENSE.*")
"""Files of a repository that may have nothing else."""


# --- pushing -----------------------------------------------------------------------------------


def push_to_hub(
    parts: PredictorParts,
    repo_id: str,
    *,
    private: bool | None = None,
    token: str | None = None,
    revision: str | None = None,
    commit_message: str | None = None,
) -> str:
    """Push a predictor to a repository of the hub; see :meth:`oodzoo.Predictor.push_to_hub`."""
    hub = optional_package("huggingface_hub", extra="hub", purpose="push_to_hub")
    if not _NAME.fullmatch(repo_id):
        raise InputError(f"the name of a repository must be 'owner/name', got {repo_id!r}")
    what = f"cannot push to {repo_id!r}: "
    if reason := why_unreachable():
        raise InputError(what + reason)
    if token is None and hub.get_token() is None:
        raise InputError(
            f"{what}there is no token; log in with `hf auth login`, set HF_TOKEN, or give token="
        )
    api = hub.HfApi(token=token)
    with tempfile.TemporaryDirectory(prefix="oodzoo-") as name:
        folder = Path(name)
        with explaining_disk_errors(folder):
            write_files(parts, folder, location=f"hf://{repo_id}")
        with _explaining_refusals(what):
            url = str(api.create_repo(repo_id, private=private, exist_ok=True))
            if revision is not None:
                api.create_branch(repo_id, branch=revision, exist_ok=True)
            api.create_commit(
                repo_id,
                _operations(hub, api, folder, repo_id, revision),
                commit_message=commit_message or "Upload a predictor of oodzoo",
                revision=revision,
            )
    return url if revision is None else f"{url}/tree/{revision}"


def _operations(hub: Any, api: Any, folder: Path, repo_id: str, revision: str | None) -> list[Any]:
    """The new files, and the removal of those of the predictor that is replaced."""
    found = set(api.list_repo_files(repo_id, revision=revision))

    def read(name: str) -> Path:
        return Path(api.hf_hub_download(repo_id, name, revision=revision))

    old: set[str] = set()
    if _DOCUMENT in found:
        content = read_json(read(_DOCUMENT), "the file")
        if is_predictor(content):
            old = set(named_files(content, f"the predictor {repo_id!r}"))
    if not old and not all(_NEW.fullmatch(path) for path in found):
        raise InputError(f"{repo_id!r} exists and is not a predictor; choose another name")
    files = [file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()]
    if CARD in found and not is_own_card(read(CARD).read_bytes()):
        warn_of_edited_card(f"hf://{repo_id}/{CARD}")
        files.remove(CARD)
    added = [hub.CommitOperationAdd(path, folder / path) for path in sorted(files)]
    unused = sorted((old & found) - set(files))
    return [*added, *(hub.CommitOperationDelete(path) for path in unused)]


@contextlib.contextmanager
def _explaining_refusals(what: str) -> Iterator[None]:
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # its class depends on the version
        status = getattr(getattr(error, "response", None), "status_code", None)
        remedy = {
            401: "; the token is not valid: log in with `hf auth login`, or give another token=",
            403: "; the token may not write there: check its permissions and the owner",
        }.get(status or 0, "")
        raise InputError(f"{what}{one_line(error).rstrip('.')}{remedy}") from error


# --- loading -----------------------------------------------------------------------------------


def read_remote(url: Url) -> PredictorParts:
    """Read a predictor from the hub or any other URL."""
    is_model = url.scheme == "hf" and not str(url).removeprefix("hf://").startswith(_OTHER)
    return read_hub(url) if is_model else read_url(url)


@dataclass(frozen=True)
class _Place:
    """Where a predictor is on the hub."""

    url: Url
    repo_id: str
    revision: str | None
    prefix: str

    @classmethod
    def of(cls, url: Url) -> _Place:
        found = _URL.fullmatch(str(url))
        if found is None:
            raise InputError(
                f"{str(url)!r} is not a repository; expected hf://owner/name[@revision]"
            )
        repo_id, revision, folder = found.groups()
        prefix = "" if folder is None else f"{folder}/"
        return cls(url, repo_id, None if revision is None else unquote(revision), prefix)

    def fetch(self, path: str, commit: str | None = None) -> Path:
        """Download a file into the cache of the hub, unless it is there."""
        hub = optional_package("huggingface_hub", extra="hub", purpose=f"{str(self.url)!r}: hf://")
        reason = why_unreachable()
        try:
            with offline(reason is not None):
                return Path(
                    hub.HfApi().hf_hub_download(
                        self.repo_id, self.prefix + path, revision=commit or self.revision
                    )
                )
        except Exception as error:
            raise self._explained(path, error, reason) from error

    def _explained(self, path: str, error: Exception, reason: str | None) -> InputError:
        names = {kind.__name__ for each in error_chain(error) for kind in type(each).__mro__}
        what, constants = repr(str(self.url)), import_module("huggingface_hub.constants")
        if reason is not None:
            cache = str(constants.HF_HUB_CACHE)
            return InputError(f"{what} is not in the cache {cache!r}, and {reason}")
        if "RemoteEntryNotFoundError" in names or "EntryNotFoundError" in names:
            if path == _DOCUMENT:
                return InputError(f"{what} is not a predictor: it has no {_DOCUMENT}")
            return InputError(f"the predictor {what} lacks {path!r}; push it again")
        if {"RepositoryNotFoundError", "RevisionNotFoundError"} & names:
            return InputError(
                f"{constants.ENDPOINT} has nothing at {what} that you may read; check its name, or "
                "log in with `hf auth login` if it is private"
            )
        return InputError(f"{what} cannot be read: {one_line(error)}")


def read_hub(url: Url) -> PredictorParts:
    """Read a predictor from the hub, and check every file against its checksum.

    All files are of one commit.
    """
    place, what = _Place.of(url), f"the predictor {str(url)!r}"
    document = place.fetch(_DOCUMENT)
    # <cache>/models--<owner>--<name>/snapshots/<commit>/<path>
    commit = document.parts[-2 - place.prefix.count("/")]
    folder = links_folder(f"{url} {commit}")
    try:
        content = read_json(document, "the predictor")
        for path in named_files(content, what) if is_predictor(content) else ():
            require_inside(path, what)
            link(place.fetch(path, commit).resolve(), folder / path)
        link(document.resolve(), folder / _DOCUMENT)
        return read_folder(folder)
    except InputError as error:
        text = str(error).replace(str(folder), str(url)).replace(str(document), str(url))
        raise InputError(text) from error
