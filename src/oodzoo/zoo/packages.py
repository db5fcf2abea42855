"""Packages that only some models need: imported when a model asks for them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from oodzoo._text import one_line
from oodzoo.errors import InputError, MissingPackageError


def optional_package(name: str, *, extra: str, purpose: str) -> Any:
    """Import a package that comes with an extra of ours.

    Parameters
    ----------
    name : str
        What is imported.
    extra : str
        The extra that brings it, in the spelling every pip understands (`open-clip`, with a
        hyphen: an old pip does not find `open_clip`).
    purpose : str
        Who needs it; the message begins with it.

    Raises
    ------
    MissingPackageError
        When it, or a package it imports, is not installed.
    InputError
        When it is installed and does not import.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        missing = (error.name or name).partition(".")[0]
        raise MissingPackageError(missing, extra, purpose) from error
    except Exception as error:  # a binary of another build, a half-removed installation, ...
        raise InputError(
            f"{purpose} needs the package {name}, which is installed but does not import: "
            f"{one_line(error)}"
        ) from error
