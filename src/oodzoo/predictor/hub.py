"""Predictors on the Hugging Face Hub: pushed as one commit, loaded through the cache of the hub."""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from oodzoo.core.errors import InputError
from oodzoo.core.io import explaining_disk_errors, read_json
from oodzoo.core.packages import optional_package
from oodzoo.core.remote.location import Url
from oodzoo.core.text import one_line
from oodzoo.predictor.card import CARD, is_own_card, warn_of_edited_card
from oodzoo.predictor.document import is_predictor, named_files
from oodzoo.predictor.folder import read_folder, write_files
from oodzoo.predictor.parts import PredictorParts
from oodzoo.predictor.remote import link, links_folder, read_url, require_inside
from oodzoo.zoo.hub import error_chain, offline, why_unreachable

_DOCUMENT = "predictor.json"
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
