"""What a source of images is, and what the user says about it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from oodzoo.core.errors import InputError
from oodzoo.data.listing import Sample
from oodzoo.tasks import Kind


@runtime_checkable
class ImageSource(Protocol):
    """Images with labels and domains; :class:`oodzoo.ImageDomains` takes any object of this form.

    Attributes
    ----------
    samples : sequence of Sample
        Path (unique, for messages and the order), domain, label and group of each image.

    Examples
    --------
    >>> from oodzoo.data.listing import Sample
    >>> class Pixels:
    ...     samples = [Sample(f"{n}.ppm", f"d{n % 2}", f"c{n // 2 % 2}") for n in range(8)]
    ...     def open(self, i):
    ...         return b"P6 1 1 255 " + bytes([i, i, i])
    >>> import oodzoo
    >>> oodzoo.ImageDomains(Pixels())
    ImageDomains('Pixels': 8 images, 2 domains, 2 classes)
    """

    samples: Sequence[Sample]

    def open(self, i: int, /) -> bytes:
        """Return the bytes of the image file of `samples[i]`; called from several threads."""


# --- options --------------------------------------------------------------------------------------


class Options(NamedTuple):
    """What is known about a source besides the source itself; see :class:`oodzoo.ImageDomains`.

    A single string for `labels`, `domains` or `groups` is that of all samples. With `propose`, a
    source may have no domains, and lists its further columns as metadata. With `classes`, a folder
    may be `root/class/image`: if more images are in folders of these names than in folders below.
    """

    root: str | os.PathLike[str] | None = None
    columns: Mapping[str, str] | None = None
    labels: Iterable[Any] | None = None
    domains: Iterable[Any] | None = None
    groups: Iterable[Any] | None = None
    propose: bool = False
    task: Kind | None = None
    classes: Sequence[str] | None = None

    def given(self, role: str) -> Iterable[Any] | None:
        """Return `labels` for the role label, and so on."""
        return {"label": self.labels, "domain": self.domains, "group": self.groups}[role]

    def missing(self, roles: Sequence[str]) -> tuple[str, ...]:
        """Return those of the roles label, domain and group that a source must have itself."""
        if self.propose:
            roles = [role for role in roles if role != "domain"]
        return tuple(role for role in roles if self.given(role) is None)


def require_columns(columns: Any) -> None:
    """Reject columns that are not a dict of names by role."""
    is_dict = isinstance(columns, Mapping)
    if columns is not None and not (is_dict and all(isinstance(c, str) for c in columns.values())):
        raise InputError(f"columns= must be a dict such as {{'label': 'y'}}, got {columns!r}")


def require_each(options: Options) -> None:
    """Reject a single string as the labels, domains or groups of a user."""
    for role in ("label", "domain", "group"):
        given = options.given(role)
        if isinstance(given, str):
            raise InputError(
                f"{role}s= is one string, {given!r}; give one value for each image, or name a "
                f"column with columns={{{role!r}: {given!r}}}"
            )


def require_no_root(options: Options, source: str) -> None:
    """Reject a root of images that are not files."""
    if options.root is not None:
        raise InputError(f"root= is not used with {source!r}: its images are not given by paths")


def require_used(options: Options, source: str, used: Sequence[str]) -> None:
    """Reject an option that a kind of source does not use."""
    for name, value in options._asdict().items():
        if value is not None and name not in (*used, "propose", "task", "classes"):
            if name == "domains" and isinstance(value, str):  # of a dict of sources by domain
                raise InputError(f"{source!r} has domains of its own; give it without a domain")
            raise InputError(
                f"{name}= is not used with {source!r}; "
                + (f"it takes {' and '.join(used)}" if used else "leave it out")
            )
