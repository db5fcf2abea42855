"""What a source of images is, what the user says about it, and images with labels and domains."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from oodzoo.core.errors import InputError
from oodzoo.core.text import count
from oodzoo.data.files import ImageFile
from oodzoo.data.listing import Listing, Sample
from oodzoo.data.sources.columns import ONE_DOMAIN, as_groups, as_names
from oodzoo.data.sources.targets import read_targets
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


def list_labelled(
    name: str,
    paths: Sequence[str],
    files: Sequence[ImageFile],
    own: Mapping[str, Any],
    options: Options,
) -> Listing:
    """List images; see :func:`collect_roles`.

    Parameters
    ----------
    name : str
        What messages call the source.
    paths : sequence of str
        The path of each image, without the domain where the options name one for all images.
    files : sequence of ImageFile
        Where the bytes of each image are.
    own : dict of str to sequence
        The label, domain and group of each image, where the source has them. Labels may be
        columns by name.
    options : Options
    """
    if not files:
        raise InputError(f"{name!r} has no images")
    roles = collect_roles(name, len(files), options, own)
    start = f"{options.domains}/" if isinstance(options.domains, str) else ""
    return list_roles(name, [start + path for path in paths], files, roles, options.task)


def list_roles(
    name: str,
    paths: Sequence[str],
    files: Sequence[ImageFile],
    roles: Mapping[str, Any],
    task: Kind | None,
) -> Listing:
    """List images whose labels, domains and, where there are any, groups are known by role."""
    targets = read_targets(roles["label"], name, task)
    domains = as_names(roles["domain"], "domain", name)
    groups = as_groups(roles.get("group", [None] * len(files)), name)
    samples = list(map(Sample, paths, domains, targets.texts, groups))
    return Listing(name, samples, list(files), task=targets.task)


def collect_roles(name: str, n: int, options: Options, own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the label, domain and, where there is one, group of each of n images.

    What the options give comes before what the source has.

    Raises
    ------
    InputError
        If there are no labels or domains, or not as many as images.
    """
    found: dict[str, Any] = {}
    for role in ("label", "domain", "group"):
        given = options.given(role)
        if given is not None:
            found[role] = _one_each(given, n, role, name)
        elif role in own:
            found[role] = own[role]
        elif role == "domain" and options.propose:
            found[role] = [ONE_DOMAIN] * n
        elif role != "group":
            other = ", or a dict of data sets by domain" if role == "domain" else ""
            raise InputError(f"{name!r} has no {role}s; give {role}s=, one for each image{other}")
    return found


def row_names(n: int) -> list[str]:
    """Return the paths of images without file names: numbers that are sorted as text.

    Examples
    --------
    >>> row_names(2)
    ['000000', '000001']
    """
    width = max(6, len(str(n - 1)))
    return [f"{row:0{width}d}" for row in range(n)]


def as_list(values: Any) -> list[Any]:
    """Convert a sequence, or an array of NumPy, PyTorch or pandas, to a list of Python objects."""
    to_list = getattr(values, "tolist", None)
    found = list(values) if to_list is None else to_list()
    if not isinstance(found, list):
        raise TypeError(f"{type(values).__name__} is not a sequence")
    return found


def _one_each(given: Any, n: int, role: str, name: str) -> Any:
    if isinstance(given, str):
        return [given] * n
    if role == "label" and hasattr(given, "columns"):  # a data frame
        columns = {str(column): list(given[column]) for column in given.columns}
        _require_length(next(iter(columns.values()), []), n, role, name)
        return columns
    try:
        values = as_list(given)
    except TypeError as error:
        raise InputError(
            f"{role}s= must be a sequence, one for each image; got {type(given).__name__}"
        ) from error
    _require_length(values, n, role, name)
    column = getattr(given, "name", None)  # of a series
    return {column: values} if role == "label" and isinstance(column, str) and column else values


def _require_length(values: Sequence[Any], n: int, role: str, name: str) -> None:
    if len(values) != n:
        raise InputError(
            f"{role}s= has {count(len(values), 'value')}, but {name!r} has {count(n, 'image')}; "
            "give one for each image"
        )
