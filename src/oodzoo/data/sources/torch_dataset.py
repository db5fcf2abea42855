"""Data sets of PyTorch (torchvision's folders of classes, or any of map style) and of WILDS."""

from __future__ import annotations

import os
import sys
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from oodzoo.core.errors import InputError
from oodzoo.data.files import ImageFile, LocalFile
from oodzoo.data.listing import SUFFIXES, Listing
from oodzoo.data.sources.base import (
    SourceOptions,
    SourceTable,
    as_list,
    list_labelled,
    row_names,
)
from oodzoo.data.sources.column_roles import (
    find_columns,
)
from oodzoo.data.sources.sequences import name_classes, read_items


def list_torch_dataset(dataset: Any, options: SourceOptions) -> Listing:
    """List a data set of PyTorch.

    - torchvision's `ImageFolder` and others with `samples` or `imgs` of `(path, class)`, and
      `Subset` and `ConcatDataset` of them: the files are read as they are; transforms of images
      are ignored.
    - Any other data set of map style: see :func:`oodzoo.data.sources.sequences.read_items`.
    - DomainBed's, with a data set for each environment: the domains are the folders of these, or
      else the names of the environments.

    Raises
    ------
    InputError
        If it cannot be indexed, or has no labels or domains.
    """
    name = type(dataset).__name__
    parts = _parts_by_environment(dataset, name, options)
    if parts is None:
        parts = _parts(dataset, range(_length(dataset, name)), options)
    root = _common_root(parts)
    if root is None:
        paths = row_names(len(parts))
    else:
        paths = [Path(os.path.relpath(str(part.path), root)).as_posix() for part in parts]
    columns = {role: [getattr(part, role) for part in parts] for role in _ROLES}
    own = {role: column for role, column in columns.items() if any(v is not None for v in column)}
    listing = list_labelled(name, paths, [part.file for part in parts], own, options)
    listing.root = None if isinstance(options.domains, str) else root
    return listing


_ROLES = ("label", "domain", "group")


class _TorchSample(NamedTuple):
    """One sample; `path` and `root` are those of a file."""

    file: ImageFile
    label: Any = None
    domain: Any = None
    group: Any = None
    path: Path | None = None
    root: Path | None = None


def _parts(dataset: Any, positions: Sequence[int], options: SourceOptions) -> list[_TorchSample]:
    """Return the samples at some positions of a data set."""
    torch = sys.modules["torch.utils.data"]
    if _is_plain(dataset, torch.Subset):
        inner = as_list(dataset.indices)
        return _parts(dataset.dataset, [inner[i] for i in positions], options)
    if _is_plain(dataset, torch.ConcatDataset):
        return _concatenated_parts(dataset, positions, options)
    found = _folder_parts(dataset)
    if found is not None:
        return [found[i] for i in positions]
    files, own = read_items(dataset, type(dataset).__name__, options, positions)
    return [
        _TorchSample(file, **{role: own[role][row] for role in own})
        for row, file in enumerate(files)
    ]


def _is_plain(dataset: Any, kind: Any) -> bool:
    """Whether a data set is of a kind, and not of a subclass that gives other samples."""
    return isinstance(dataset, kind) and type(dataset).__getitem__ is kind.__getitem__


def _concatenated_parts(
    dataset: Any, positions: Sequence[int], options: SourceOptions
) -> list[_TorchSample]:
    ends = dataset.cumulative_sizes
    rows_of: dict[int, list[tuple[int, int]]] = {}
    for row, position in enumerate(positions):
        which = bisect_right(ends, position)
        start = ends[which - 1] if which else 0
        rows_of.setdefault(which, []).append((row, position - start))
    found: dict[int, _TorchSample] = {}
    for which, rows in rows_of.items():
        parts = _parts(dataset.datasets[which], [inner for _, inner in rows], options)
        found.update(zip((row for row, _ in rows), parts, strict=True))
    return [found[row] for row in range(len(positions))]


def _folder_parts(dataset: Any) -> list[_TorchSample] | None:
    """Return the samples of a data set that lists image files; None if it does not."""
    samples = getattr(dataset, "samples", getattr(dataset, "imgs", None))
    if not isinstance(samples, list | tuple) or not all(map(_is_file_with_class, samples)):
        return None
    labels = [label for _, label in samples]
    transform = getattr(dataset, "target_transform", None)
    if transform is None:
        labels = name_classes(labels, getattr(dataset, "classes", None))
    else:
        labels = [transform(label) for label in labels]
    folder = getattr(dataset, "root", None)
    paths = [Path(os.path.abspath(path)) for path, _ in samples]  # noqa: PTH100 - keeps links
    return [
        _TorchSample(
            LocalFile(str(path)),
            label,
            path=path,
            root=path.parent if folder is None else Path(os.path.abspath(folder)),  # noqa: PTH100
        )
        for path, label in zip(paths, labels, strict=True)
    ]


def _is_file_with_class(sample: Any) -> bool:
    return (
        isinstance(sample, tuple | list)
        and len(sample) == 2
        and isinstance(sample[0], str | os.PathLike)
        and Path(sample[0]).suffix.lower() in SUFFIXES
    )


def _parts_by_environment(
    dataset: Any, name: str, options: SourceOptions
) -> list[_TorchSample] | None:
    """Return the samples of a data set of DomainBed; None if it is not one."""
    environments = getattr(dataset, "datasets", None)
    names = getattr(dataset, "ENVIRONMENTS", None)
    if not isinstance(environments, list | tuple) or not isinstance(names, list | tuple):
        return None
    folders = [Path(getattr(part, "root", "")).name for part in environments]
    domains = folders if len({*folders} - {""}) == len(folders) else list(map(str, names))
    if len(set(domains)) != len(environments):
        raise InputError(
            f"{name!r} has {len(environments)} environments, but ENVIRONMENTS names "
            f"{len(set(domains))}: {', '.join(map(repr, domains))}"
        )
    return [
        part._replace(domain=domain)
        for domain, environment in zip(domains, environments, strict=True)
        for part in _parts(
            environment, range(_length(environment, name)), options._replace(domains=domain)
        )
    ]


def _length(dataset: Any, name: str) -> int:
    if isinstance(dataset, sys.modules["torch.utils.data"].IterableDataset):
        raise InputError(
            f"{name!r} is an iterable data set, which cannot be read at a position; give one with "
            "__len__ and __getitem__, or the files that it reads"
        )
    try:
        return len(dataset)
    except TypeError as error:
        raise InputError(f"{name!r} has no length; give it __len__") from error


def _common_root(parts: Sequence[_TorchSample]) -> Path | None:
    """Return the folder that the roots of all files are in; None unless all are files."""
    roots = {part.root for part in parts}
    if not roots or None in roots:
        return None
    try:
        return Path(os.path.commonpath([str(root) for root in roots]))
    except ValueError:  # on several drives
        return None


# --- WILDS ----------------------------------------------------------------------------------------


def list_wilds(dataset: Any, options: SourceOptions) -> Listing:
    """List a data set of WILDS or a subset of one; `columns` names the field of the domain.

    Transforms of a subset are ignored.
    """
    name = type(dataset).__name__
    fields = list(dataset.metadata_fields)
    needed = options.missing("domain")
    optional = ("label", "group") if needed else ("label", "domain", "group")
    found = find_columns(fields, options.columns, needed, name, optional=optional)
    names = getattr(dataset, "metadata_map", None) or {}
    by_field = {
        field: _named(as_list(dataset.metadata_array[:, at]), names.get(field))
        for at, field in enumerate(fields)
    }
    own = {"label": _named(as_list(dataset.y_array), names.get("y"))}
    inputs = _WildsInputs(dataset)
    files, _ = read_items(inputs, name, SourceOptions(), range(len(inputs)))
    further = [field for field in fields if field != "y"]
    table = SourceTable(name, fields, by_field.__getitem__, further=further)
    return table.list(found, options, (row_names(len(files)), files), own)


def _named(values: list[Any], names: Any) -> list[Any]:
    return values if names is None else name_classes(values, list(map(str, as_list(names))))


class _WildsInputs:
    """The images of a data set, without its labels."""

    def __init__(self, dataset: Any) -> None:
        self._positions: Sequence[int] = range(len(dataset))
        if hasattr(dataset, "indices"):  # a subset has no get_input of its own
            self._positions = as_list(dataset.indices)
            dataset = dataset.dataset
        self._dataset = dataset

    def __len__(self) -> int:
        return len(self._positions)

    def __getitem__(self, i: int) -> Any:
        return self._dataset.get_input(self._positions[i])
