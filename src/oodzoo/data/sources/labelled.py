"""Images with their labels and domains, from a source that has them or from the user."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from oodzoo.core.errors import InputError
from oodzoo.core.text import count
from oodzoo.data.files import ImageFile
from oodzoo.data.listing import Listing, Sample
from oodzoo.data.sources.base import Options
from oodzoo.data.sources.columns import ONE_DOMAIN, as_groups, as_names
from oodzoo.data.sources.targets import read_targets
from oodzoo.tasks import Kind


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
