"""Errors caused by the input or the environment."""

from __future__ import annotations

_LONGEST = 2000
"""Characters of a message; what it quotes may have any length."""


class InputError(ValueError):
    """The input cannot be used.

    The message is one line: what was received, where, and what to do. The command line prints it
    and exits with code 2, without a traceback. The middle of a very long message is left out.
    """

    def __init__(self, message: str = "") -> None:
        if len(message) > _LONGEST:
            message = f"{message[: _LONGEST // 2]}…{message[-_LONGEST // 2 :]}"
        super().__init__(message)


InputError.__module__ = "oodzoo"  # as people import it, and as a traceback names it


class NoDomainsError(InputError):
    """The data have no domains, or a single one; they can be proposed."""


class DiskError(InputError):
    """Disk full, read-only, or permission denied; all other work would fail too."""


class MissingPackageError(InputError, ImportError):
    """Optional packages, joined by "and", are required and not installed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        what, them = ("packages", "them") if " and " in package else ("package", "it")
        super().__init__(
            f"{purpose} needs the {what} {package}; install {them} with: "
            f'pip install "oodzoo[{extra}]"'
        )
