"""Access to the Hugging Face Hub: it is asked only if it can be reached, and its errors explained.

The libraries try again for half a minute per file if there is no connection, and their messages
repeat each other. So the hub is asked for a sign of life first; without one, they are told to be
offline, which loads a model from the cache at once.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from oodzoo.core.errors import InputError
from oodzoo.core.text import one_line
from oodzoo.zoo.model_spec import ModelSpec
from oodzoo.zoo.spec import local_path
from oodzoo.zoo.torch_model import no_unpickling

_SECONDS = 5.0
"""Time limit of the first request; after a failure, the hub is asked again after six times this."""
_NOT_CACHED = ("LocalEntryNotFoundError", "OfflineModeIsEnabled", "ConnectError", "ConnectionError")
_REFUSED = ("GatedRepoError", "RepositoryNotFoundError", "RevisionNotFoundError")

_reached = False
_failure = (float("-inf"), "")
"""When the hub could not be reached, and why."""


@contextmanager
def hub_access(spec: ModelSpec, *, needed: bool = True) -> Iterator[None]:
    """Load a model that may be on the hub; a failure is an InputError of one line.

    A caller who needs no file of the hub sets `needed` to False, so that it is not asked.
    Messages that libraries log meanwhile are suppressed, as are progress bars of transformers;
    those of downloads are not. Pickles are not read.
    """
    is_local = local_path(spec) is not None
    reason = None if is_local or not needed else why_unreachable()
    try:
        with no_unpickling(), _quiet(), _without_bars(), offline(reason is not None):
            yield
    except InputError:
        raise
    except Exception as error:
        raise _explained(spec, error, is_local, reason) from error


def _explained(spec: ModelSpec, error: Exception, is_local: bool, reason: str | None) -> InputError:
    classes = {kind.__name__ for each in error_chain(error) for kind in type(each).__mro__}
    what = f"model {spec.name!r}: "
    if reason is not None and not classes.isdisjoint(_NOT_CACHED):
        folder = str(_constants().HF_HUB_CACHE)
        return InputError(
            f"{what}{spec.source} is not in the cache {folder!r}, and {reason}, or point HF_HOME "
            "to a folder that contains its weights"
        )
    if not is_local and not classes.isdisjoint(_REFUSED):
        return InputError(
            f"{what}{_constants().ENDPOINT} has nothing for {spec.source} that you may read; check "
            "its name, or log in with `hf auth login` if it is private or gated"
        )
    remedy = "check the folder" if is_local else "check the name"
    if spec.arguments:
        remedy = "check the arguments"
    return InputError(f"{what}cannot load {spec.source}: {one_line(error)}; {remedy}")


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
    constants = _constants()
    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is on; unset it"
    if _reached:
        return None
    since, why = _failure
    if time.monotonic() - since > 6 * _SECONDS:
        try:
            session = import_module("huggingface_hub.utils").get_session()
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
    constants = _constants()
    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = before or is_offline
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


@contextmanager
def _quiet() -> Iterator[None]:
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(before)


@contextmanager
def _without_bars() -> Iterator[None]:
    """Switch the progress bars of transformers off, which it shows while it loads weights."""
    if "transformers" not in sys.modules:
        yield
        return
    bars = import_module("transformers.utils.logging")
    downloads = import_module("huggingface_hub.utils")
    if not bars.is_progress_bar_enabled():
        yield
        return
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


def _constants() -> Any:
    return import_module("huggingface_hub.constants")
