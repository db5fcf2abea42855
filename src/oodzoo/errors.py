"""Errors caused by the input or the environment."""

from __future__ import annotations


class InputError(ValueError):
    """The input cannot be used.

    The message is one line: what was received, where, and what to do. The command line prints it
    and exits with code 2, without a traceback.
    """


class DiskError(InputError):
    """Disk full, read-only, or permission denied; all other work would fail too."""


class MissingPackageError(InputError, ImportError):
    """An optional package is required and not installed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(
            f'{purpose} needs the package {package}; install it with: pip install "oodzoo[{extra}]"'
        )
