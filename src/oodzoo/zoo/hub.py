"""Weights on the Hugging Face Hub, in caches and in files; errors of access explained.

The libraries try again for half a minute per file if there is no connection, and their messages
repeat each other. So the hub is asked for a sign of life first; without one, they are told to be
offline, which loads a model from the cache at once.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from oodzoo.core.errors import InputError
from oodzoo.core.packages import optional_package
from oodzoo.core.text import one_line
from oodzoo.zoo.model import Weights
from oodzoo.zoo.spec import ModelSpec

_SECONDS = 5.0
"""Time limit of the first request; after a failure, the hub is asked again after six times this."""
_NOT_CACHED = ("LocalEntryNotFoundError", "OfflineModeIsEnabled", "ConnectError", "ConnectionError")
_REFUSED = ("GatedRepoError", "RepositoryNotFoundError", "RevisionNotFoundError")

_reached = False
_failure = (float("-inf"), "")
"""When the hub could not be reached, and why."""


@contextmanager
def hub_access(spec: ModelSpec, *, is_local: bool, needed: bool = True) -> Iterator[None]:
    """Load a model that may be on the hub; a failure is an InputError of one line.

    A caller who needs no file of the hub sets `needed` to False, so that it is not asked.
    Messages that libraries log meanwhile are suppressed, as are progress bars of transformers;
    those of downloads are not. Pickles are not read.
    """
    reason = None if is_local or not needed else why_unreachable()
    constants = _hub("constants")
    before = logging.root.manager.disable
    try:
        logging.disable(logging.ERROR)
        with no_unpickling(), _without_bars(), offline(reason is not None):
            yield
    except InputError:
        raise
    except Exception as error:
        classes = {kind.__name__ for each in error_chain(error) for kind in type(each).__mro__}
        if reason is not None and not classes.isdisjoint(_NOT_CACHED):
            message = (
                f"{spec.source} is not in the cache {str(constants.HF_HUB_CACHE)!r}, and "
                f"{reason}, or point HF_HOME to a folder that contains its weights"
            )
        elif not is_local and not classes.isdisjoint(_REFUSED):
            message = (
                f"{constants.ENDPOINT} has nothing for {spec.source} that you may read; check "
                "its name, or log in with `hf auth login` if it is private or gated"
            )
        else:
            remedy = "arguments" if spec.arguments else "folder" if is_local else "name"
            message = f"cannot load {spec.source}: {one_line(error)}; check the {remedy}"
        raise InputError(f"model {spec.name!r}: {message}") from error
    finally:
        logging.disable(before)


def error_chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error, and those that it was raised from or during."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def why_unreachable() -> str | None:
    """Why the hub cannot be asked, and what to do; None if it answers, whatever it answers."""
    global _reached, _failure
    constants = _hub("constants")
    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is on; unset it"
    if _reached:
        return None
    since, why = _failure
    if time.monotonic() - since > 6 * _SECONDS:
        try:
            session = _hub("utils").get_session()
            session.head(constants.ENDPOINT, timeout=_SECONDS)
            _reached = True
            return None
        except Exception as error:  # its class depends on the version
            why = f"{constants.ENDPOINT} cannot be reached ({one_line(error, 60)}); try again later"
            _failure = (time.monotonic(), why)
    return why


@contextmanager
def offline(is_offline: bool) -> Iterator[None]:
    """Use only the cache of the hub, if the argument is true."""
    constants = _hub("constants")
    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = before or is_offline
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


@contextmanager
def _without_bars() -> Iterator[None]:
    """Switch the progress bars of transformers off, which it shows while it loads weights."""
    bars: Any = None
    if "transformers" in sys.modules:
        bars = import_module("transformers.utils.logging")
    if bars is None or not bars.is_progress_bar_enabled():
        yield
        return
    downloads = _hub("utils")
    shows_downloads = not downloads.are_progress_bars_disabled()
    bars.disable_progress_bar()  # those of downloads, too
    if shows_downloads:
        downloads.enable_progress_bars()
    try:
        yield
    finally:
        bars.enable_progress_bar()
        if not shows_downloads:
            downloads.disable_progress_bars()


@contextmanager
def no_unpickling() -> Iterator[None]:
    """Force `torch.load` to read only tensors and plain containers, whoever calls it.

    Libraries call `torch.load` in many places, and before torch 2.6 it unpickled anything by
    default.
    """
    variable = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
    before = os.environ.get(variable)
    os.environ[variable] = "1"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(variable, None)
        else:
            os.environ[variable] = before


# --- weights that are not loaded ------------------------------------------------------------------


def local_weights(path: Path) -> Weights:
    """The weights in a local file or folder."""
    files = [path] if path.is_file() else [file for file in path.glob("*") if file.is_file()]
    return Weights(path.parent, True, sum(file.stat().st_size for file in files))


def url_weights(torch: Any, url: str, size: int | None) -> Weights:
    """Weights that torch.hub downloads from a URL."""
    file = url_file(torch, url)
    if file.is_file():
        return Weights(file.parent, True, file.stat().st_size)
    return Weights(file.parent, False, size)


def url_file(torch: Any, url: str) -> Path:
    """The file that torch.hub downloads from a URL."""
    return Path(torch.hub.get_dir()) / "checkpoints" / Path(urlsplit(url).path).name


def hub_weights(repository: str, files: Sequence[str], size: int | None) -> Weights:
    """Weights in a repository of the Hugging Face Hub, in one of several files."""
    hub = _hub()
    folder = Path(_hub("constants").HF_HUB_CACHE)
    repository, _, revision = repository.partition("@")
    for name in files:
        found = hub.try_to_load_from_cache(repository, name, revision=revision or None)
        if isinstance(found, str):
            is_whole = not name.endswith(".index.json")  # which lists the parts
            return Weights(folder, True, Path(found).stat().st_size if is_whole else size)
    return Weights(folder, False, size)


@dataclass(frozen=True)
class HubCard:
    """What the Hugging Face Hub says about a repository; None where it says nothing."""

    licence: str | None = None
    size: int | None = None


@cache
def hub_card(repository: str) -> HubCard:
    """Ask the Hugging Face Hub for the licence and the size of a repository.

    Both are unknown if it cannot be reached.
    """
    api = _hub().HfApi()
    if why_unreachable() is not None:
        return HubCard()
    name, _, revision = repository.partition("@")
    try:
        info = api.model_info(name, revision=revision or None, files_metadata=True, timeout=10)
    except Exception:  # no such repository, a gated one, no connection any more
        return HubCard()
    card = info.card_data or {}
    licence = known_licence(card.get("license")) or known_licence(card.get("license_name"))
    sizes = {file.rfilename: file.size or 0 for file in info.siblings or []}
    for suffix in (".safetensors", ".bin"):
        size = sum(n for file, n in sizes.items() if file.endswith(suffix) and "/" not in file)
        if size:
            return HubCard(licence, size)
    return HubCard(licence)


def known_licence(licence: object) -> str | None:
    """The name of a licence; None if a source only says that there is one."""
    is_name = isinstance(licence, str) and licence not in ("", "other", "unknown")
    return licence if is_name else None  # type: ignore[return-value]


def _hub(module: str = "") -> Any:
    """Import huggingface_hub, or a module of it, which it does not always import itself."""
    name = f"huggingface_hub.{module}".rstrip(".")
    return optional_package(name, extra="hf", purpose="a model of the Hub")
