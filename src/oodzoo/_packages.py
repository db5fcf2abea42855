"""Optional packages, imported only when they are needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from oodzoo._text import one_line
from oodzoo.errors import InputError, MissingPackageError


def optional_package(name: str, *, extra: str, purpose: str) -> Any:
    """Import a package that an extra installs; `purpose` begins the error message.

    Spell the extra with hyphens: old versions of pip do not find `open_clip`.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        missing = (error.name or name).partition(".")[0]
        raise MissingPackageError(missing, extra, purpose) from error
    except Exception as error:  # a mismatched binary, a broken installation, …
        raise InputError(
            f"{purpose} needs the package {name}, which is installed but fails to import: "
            f"{one_line(error)}"
        ) from error
