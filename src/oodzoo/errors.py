"""The errors a person can cause."""

from __future__ import annotations


class InputError(ValueError):
    """What a person gave cannot be used.

    The message is one line: what was received, where, and what to do. The command line prints it
    and ends with exit code 2, without a traceback.
    """


class DiskError(InputError):
    """The disk refuses: it is full, read-only, or not ours. Nothing else can go on either."""


class MissingPackageError(InputError, ImportError):
    """An optional package is needed for what was asked."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(
            f'{purpose} needs the package {package}; install it with: pip install "oodzoo[{extra}]"'
        )
