"""Optional packages, imported only when they are needed."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from importlib import import_module
from importlib.metadata import requires
from importlib.util import find_spec
from typing import Any

from oodzoo.core.errors import InputError, MissingPackageError
from oodzoo.core.text import one_line


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


def is_installed(package: str) -> bool:
    """Whether a package can be imported, without importing it."""
    name = _MODULES.get(package, package.replace("-", "_"))
    try:
        return find_spec(name) is not None
    except ValueError:  # an entry of sys.modules without a spec
        return sys.modules.get(name) is not None


_MODULES = {"open-clip-torch": "open_clip"}
"""Names of modules that are not those of their packages."""


def require_extras(extras: Iterable[str], purpose: str) -> None:
    """Raise one error for all packages of some extras that are not installed."""
    packages, lacking = _missing(extras)
    if packages:
        raise MissingPackageError(packages, lacking, purpose)


def install_hint(*extras: str) -> str:
    """What a suggested command needs that is not installed; empty if it works as it is."""
    packages, lacking = _missing(extras)
    return f'needs {packages}: pip install "oodzoo[{lacking}]"' if packages else ""


def _missing(extras: Iterable[str]) -> tuple[str, str]:
    """The packages of extras that are not installed, in words, and the extras that have them."""
    known, packages, lacking = set(extras), set(), set()
    for line in requires("oodzoo") or ():
        found = re.match(r"""([\w.-]+).*\bextra == ['"]([\w-]+)['"]""", line)
        if found and found[2] in known and not is_installed(found[1]):
            packages.add(found[1])
            lacking.add(found[2])
    *names, last = sorted(packages) or [""]
    return " and ".join(filter(None, [", ".join(names), last])), ",".join(sorted(lacking))
