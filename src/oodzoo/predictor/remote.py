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
from collections.abc import Callable
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
from oodzoo.predictor.card import CARD, keeps_card
from oodzoo.predictor.models import remove_at_exit
from oodzoo.predictor.parts import PredictorParts
from oodzoo.predictor.saved import (
    is_predictor,
    named_files,
    read_folder,
    require_free,
    write_files,
)
from oodzoo.zoo.hub import error_chain, offline, why_unreachable

_DOCUMENT = "predictor.json"
_VERSION = re.compile(r"version-(?P<time>[0-9a-f]{8})[0-9a-f]{8}")
_UNUSED_SECONDS = 24 * 3600
_NEW_SECONDS = 60
"""A folder this new may not have its lock yet."""
_READ_ATTEMPTS = 3
_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_HUB_URL = re.compile(r"hf://([^/@]+/[^/@]+)(?:@([^/]+))?(?:/(.+))?")
_OTHER = ("datasets/", "spaces/", "buckets/")
_NEW = re.compile(r"\.gitattributes|README\.md|LICENSE.*")
"""Files of a repository that may have nothing else."""


# --- writing -----------------------------------------------------------------------------------


def require_free_location(given: str) -> None:
    """Raise InputError if anything but a predictor or an empty folder is there."""
    location = parse_location(given)
    if isinstance(location, Url):
        _require_free_url(location)
    else:
        require_free(location)


def _require_free_url(url: Url) -> list[str]:
    """Raise InputError if anything but a predictor has this URL; return the paths of its files."""
    file = find_file(url / _DOCUMENT)
    if file is not None:
        with contextlib.suppress(InputError):  # damaged
            content = read_json(_cached_document(file, url), "the predictor")
            if is_predictor(content):
                return list(named_files(content, str(url)))
    elif find_file(url) is None and not list_files(url):
        return []
    raise InputError(f"{str(url)!r} exists and is not a predictor; choose another URL")


def write_url(parts: PredictorParts, url: Url) -> Url:
    """Write a predictor to a URL; at any moment it has the old predictor or the new one."""
    old = _require_free_url(url)
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
        card = find_file(url / CARD)
        is_kept = keeps_card(None if card is None else read_file(card), str(url / CARD))
        if card is not None and not is_kept:
            remove_files([url / CARD])
        write_file(url / _DOCUMENT, (folder / _DOCUMENT).read_bytes())
        if not is_kept:
            write_file(url / CARD, (folder / CARD).read_bytes())
    with contextlib.suppress(RemoteError):  # they only take up space
        unused = []
        for path in [file.url.removeprefix(f"{url}/") for file in list_files(url)]:
            found = _VERSION.fullmatch(path.partition("/")[0])
            age = 0.0 if found is None else time.time() - int(found["time"], 16)
            if path in old or age > _UNUSED_SECONDS:  # left by a killed process
                unused.append(url / path)
        remove_files(unused)
    return url


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
        try:
            url = str(api.create_repo(repo_id, private=private, exist_ok=True))
            if revision is not None:
                api.create_branch(repo_id, branch=revision, exist_ok=True)
            api.create_commit(
                repo_id,
                _operations(hub, api, folder, repo_id, revision),
                commit_message=commit_message or "Upload a predictor of oodzoo",
                revision=revision,
            )
        except InputError:
            raise
        except Exception as error:  # its class depends on the version
            status = getattr(getattr(error, "response", None), "status_code", None)
            remedy = {
                401: "; the token is not valid: log in with `hf auth login`, or give another "
                "token=",
                403: "; the token may not write there: check its permissions and the owner",
            }.get(status or 0, "")
            raise InputError(f"{what}{one_line(error).rstrip('.')}{remedy}") from error
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
    if CARD in found and keeps_card(read(CARD).read_bytes(), f"hf://{repo_id}/{CARD}"):
        files.remove(CARD)
    added = [hub.CommitOperationAdd(path, folder / path) for path in sorted(files)]
    unused = sorted((old & found) - set(files))
    return [*added, *(hub.CommitOperationDelete(path) for path in unused)]


# --- reading -----------------------------------------------------------------------------------


def read_remote(url: Url) -> PredictorParts:
    """Read a predictor from a URL, and check every file against its checksum."""
    on_hub = url.scheme == "hf" and not str(url).removeprefix("hf://").startswith(_OTHER)
    folder = _folder_of_repository(url) if on_hub else _folder_of_url(url)
    try:
        return read_folder(folder)
    except InputError as error:
        raise InputError(str(error).replace(str(folder), str(url))) from error


def _folder_of_url(url: Url) -> Path:
    """A local folder with the files of a predictor."""
    what = f"the predictor {str(url)!r}"

    def fetch(path: str, sha256: str) -> Path:
        file = find_file(url / path)
        if file is None:
            raise RemoteError(f"{what} lacks {path!r}; copy the whole folder, or fit again")
        return _verified(file, sha256)

    for remaining in reversed(range(_READ_ATTEMPTS)):
        document = find_file(url / _DOCUMENT)
        if document is None:
            hint = "make one with oodzoo fit"
            if find_file(url / "model" / _DOCUMENT) is not None:
                hint = f"did you mean {str(url / 'model')!r}?"
            raise InputError(f"{str(url)!r} is not a predictor: it has no {_DOCUMENT}; {hint}")
        try:
            return _linked(url, document.version, _cached_document(document, url), fetch)
        except RemoteError:
            # it may have been replaced in the meantime, and its files removed
            if not remaining or find_file(url / _DOCUMENT) == document:
                raise
    raise AssertionError


def _cached_document(file: RemoteFile, url: Url) -> Path:
    """A local copy of predictor.json; one that is damaged is not kept."""
    cached = cached_file(file)
    try:
        read_json(cached, "the predictor")
    except InputError as error:
        drop_cached(file)
        raise InputError(f"{str(error).replace(str(cached), str(url))}; fit again") from error
    return cached


def _verified(file: RemoteFile, sha256: str) -> Path:
    """A local copy; one that is damaged is fetched again."""
    cached = cached_file(file)
    if file_digest(cached) != sha256:
        drop_cached(file)
        cached = cached_file(file)
    return cached


def _folder_of_repository(url: Url) -> Path:
    """A local folder with the files of a predictor on the hub, all of one commit."""
    found = _HUB_URL.fullmatch(str(url))
    if found is None:
        raise InputError(f"{str(url)!r} is not a repository; expected hf://owner/name[@revision]")
    repo_id, branch, folder = found.groups()
    prefix = "" if folder is None else f"{folder}/"
    revision = None if branch is None else unquote(branch)
    document = _fetch_from_hub(url, repo_id, revision, prefix, _DOCUMENT)
    # <cache>/models--<owner>--<name>/snapshots/<commit>/<path>
    commit = document.parts[-2 - prefix.count("/")]

    def fetch(path: str, sha256: str) -> Path:
        return _fetch_from_hub(url, repo_id, commit, prefix, path).resolve()

    try:
        return _linked(url, commit, document.resolve(), fetch)
    except InputError as error:
        raise InputError(str(error).replace(str(document.resolve()), str(url))) from error


def _fetch_from_hub(url: Url, repo_id: str, revision: str | None, prefix: str, path: str) -> Path:
    """Download a file into the cache of the hub, unless it is there."""
    what = repr(str(url))
    hub = optional_package("huggingface_hub", extra="hub", purpose=f"{what}: hf://")
    reason = why_unreachable()
    try:
        with offline(reason is not None):
            return Path(hub.HfApi().hf_hub_download(repo_id, prefix + path, revision=revision))
    except Exception as error:
        names = {kind.__name__ for each in error_chain(error) for kind in type(each).__mro__}
        constants = import_module("huggingface_hub.constants")
        text = f"{what} cannot be read: {one_line(error)}"
        if reason is not None:
            text = f"{what} is not in the cache {str(constants.HF_HUB_CACHE)!r}, and {reason}"
        elif {"RemoteEntryNotFoundError", "EntryNotFoundError"} & names:
            text = f"the predictor {what} lacks {path!r}; push it again"
            if path == _DOCUMENT:
                text = f"{what} is not a predictor: it has no {_DOCUMENT}"
        elif {"RepositoryNotFoundError", "RevisionNotFoundError"} & names:
            text = (
                f"{constants.ENDPOINT} has nothing at {what} that you may read; check its name, or "
                "log in with `hf auth login` if it is private"
            )
        raise InputError(text) from error


def _linked(url: Url, version: str, document: Path, fetch: Callable[[str, str], Path]) -> Path:
    """A folder of this process with links to the files of a version of a predictor.

    `fetch` returns a local copy of a file by its path and SHA-256.
    """
    content, what = read_json(document, "the predictor"), f"the predictor {str(url)!r}"
    name = hashlib.sha256(f"{url} {version}".encode()).hexdigest()[:32]
    folder = _process_folder(cache_folder() / "predictors", os.getpid()) / name
    files = named_files(content, what) if is_predictor(content) else {}
    for path, sha256 in [*files.items(), (_DOCUMENT, "")]:
        if PurePosixPath(path).is_absolute() or {"..", "."} & set(path.split("/")) or "\\" in path:
            raise InputError(f"{what} names {path!r}, which is not inside its folder; fit again")
        file = document if path == _DOCUMENT else fetch(path, sha256)
        target = folder / path
        with explaining_disk_errors(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            temporary = target.parent / temporary_name()
            try:
                os.link(file, temporary)  # so that it remains if the cache removes it
            except OSError:  # the disk has no hard links
                shutil.copyfile(file, temporary)
            temporary.replace(target)
    return folder


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
