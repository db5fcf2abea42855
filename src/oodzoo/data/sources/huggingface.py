"""Data sets of Hugging Face's library `datasets`, in memory or saved to disk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from oodzoo._packages import optional_package
from oodzoo._text import one_line
from oodzoo.data.listing import Listing
from oodzoo.data.sources.image_column import ImageColumn, has_files
from oodzoo.data.sources.labelled import collect_roles, list_labelled
from oodzoo.data.sources.metadata import read_metadata
from oodzoo.data.sources.names import (
    find_columns,
    name_columns,
    split_columns,
    used_columns,
)
from oodzoo.data.sources.options import Options, require_no_root, require_used
from oodzoo.data.sources.rows import list_columns
from oodzoo.errors import InputError, NoDomainsError
from oodzoo.remote.location import parse_location

_ROLES = ("label", "domain", "group")
_PARTS = frozenset({"train", "training", "test", "testing", "validation", "valid", "val", "dev"})
"""Names of splits that are parts of the same domains."""


@contextmanager
def using_datasets(purpose: str) -> Iterator[Any]:
    """Import the library `datasets`, and silence it in the with block."""
    datasets = optional_package("datasets", extra="datasets", purpose=purpose)
    hub = optional_package("huggingface_hub.utils", extra="datasets", purpose=purpose)
    level = datasets.logging.get_verbosity()
    hub_level = hub.logging.get_verbosity()
    bars = [part for part in (datasets, hub) if not part.are_progress_bars_disabled()]
    datasets.logging.set_verbosity(datasets.logging.CRITICAL)
    hub.logging.set_verbosity(hub.logging.CRITICAL)
    for part in bars:
        part.disable_progress_bars()
    try:
        yield datasets
    finally:
        for part in bars:
            part.enable_progress_bars()
        datasets.logging.set_verbosity(level)
        hub.logging.set_verbosity(hub_level)


def list_saved(path: Path, options: Options) -> Listing:
    """List a data set that `save_to_disk` has written; its files are memory-mapped."""
    with using_datasets(f"reading {str(path)!r}") as datasets:
        try:
            saved = datasets.load_from_disk(str(path))
        except Exception as error:  # of pyarrow, json, …
            raise InputError(
                f"cannot load {str(path)!r} with datasets: {one_line(error)}"
            ) from error
    return list_datasets(saved, options, name=str(path))


def list_datasets(source: Any, options: Options, *, name: str | None = None) -> Listing:
    """List a Dataset, or a DatasetDict: its splits are concatenated.

    If there is no column of domains, the splits are the domains, unless all of them have names
    such as train and test. Images have the bytes of the original files, undecoded. Formats and
    transforms that were set are ignored.

    Raises
    ------
    InputError
        If it is streamed, a column is missing, or several columns could be meant.
    """
    name = name or type(source).__name__
    require_used(options, name, ("root", "columns", "labels", "domains", "groups"))
    with using_datasets(f"reading a {name}") as datasets:
        if isinstance(source, datasets.IterableDataset | datasets.IterableDatasetDict):
            raise InputError(
                f"{name!r} is streamed and cannot be read at a position; load it without "
                "streaming=True"
            )
        splits = dict(source) if isinstance(source, Mapping) else {"": source}
        data = _concatenate(datasets, splits, name)
        return _list_rows(data, splits, options, name)


def _list_rows(data: Any, splits: Mapping[str, Any], options: Options, name: str) -> Listing:
    split_of = [split for split, part in splits.items() for _ in range(len(part))]
    own: dict[str, Any] = {}
    needed = options.missing(("label", "domain"))
    has_column = "domain" in (*data.column_names, *(options.columns or ()))
    named = options.domains is not None or has_column
    if not named and _are_domains(splits, data.column_names, name, options):
        own["domain"] = split_of
        needed = tuple(role for role in needed if role != "domain")
    columns = _find_columns(data.features, options, needed, name)
    own |= {role: _values(data, columns[role]) for role in _ROLES[1:] if role in columns}
    if "label" in columns:
        names = split_columns(columns["label"], data.column_names)
        own["label"] = {column: _values(data, column) for column in names}
    if "path" in columns:
        roles = collect_roles(name, len(data), options, own)
        root = None if options.root is None else parse_location(options.root)
        paths = _values(data, columns["path"])
        listing = list_columns(name, {"path": paths, **roles}, root, Path.cwd(), options.task)
    else:
        require_no_root(options, name)
        names, files = ImageColumn(data, columns["image"]).files(split_of, name)
        listing = list_labelled(name, names, files, own, options)
    if options.propose:
        plain = [c for c, feature in data.features.items() if _is_plain(feature)]
        used = used_columns(columns, data.column_names)
        listing.metadata = read_metadata(plain, used, lambda c: _values(data, c))
    return listing


def _is_plain(feature: Any) -> bool:
    """Whether values of a column can name domains."""
    kinds = ("string", "large_string", "int", "uint", "bool", "date", "timestamp")
    return str(getattr(feature, "dtype", "")).startswith(kinds)


def _concatenate(datasets: Any, splits: Mapping[str, Any], name: str) -> Any:
    parts = [part.with_format(None) for part in splits.values()]
    if not sum(map(len, parts)):
        raise InputError(f"{name!r} has no images")
    try:
        return parts[0] if len(parts) == 1 else datasets.concatenate_datasets(parts)
    except ValueError as error:
        raise InputError(
            f"the splits {', '.join(map(repr, splits))} of {name!r} have different columns; give "
            f"one of them: {one_line(error)}"
        ) from error


def _are_domains(
    splits: Mapping[str, Any], columns: Sequence[str], name: str, options: Options
) -> bool:
    """Whether the splits of a data set, which has no column of domains, are its domains."""
    if len(splits) > 1 and {*splits} <= _PARTS:
        if options.propose:
            return False
        raise NoDomainsError(
            f"{name!r} has no column 'domain', it has {', '.join(map(repr, columns))}; name it "
            f"with {name_columns(['domain'])}, or give dict(…) of it to use the splits "
            f"{', '.join(map(repr, splits))} as domains, or have domains proposed with --domains "
            "propose (domains='propose')"
        )
    return len(splits) > 1


def _find_columns(
    features: Mapping[str, Any], options: Options, needed: Sequence[str], name: str
) -> dict[str, str]:
    """Find the column of each role by its name, or because it is the only one of its type."""
    given = dict(options.columns or {})
    if "image" not in {*given, *features} and "path" not in given:
        images = [column for column, feature in features.items() if has_files(feature)]
        if len(images) > 1:
            raise InputError(
                f"{name!r} has several columns of images, {', '.join(map(repr, images))}; name "
                f"one with {name_columns(['image'])}"
            )
        if images:
            given["image"] = images[0]
    if "label" in needed and "label" not in {*given, *features}:
        taken = (*given.values(), *_ROLES)
        classes = [
            column
            for column, feature in features.items()
            if hasattr(feature, "int2str") and column not in taken
        ]
        if len(classes) == 1:
            given["label"] = classes[0]
    by_path = "path" in given or ("path" in features and "image" not in {*given, *features})
    needed = ("path" if by_path else "image", *needed)
    optional = tuple(role for role in _ROLES if role not in needed)
    found = find_columns(list(features), given, needed, name, optional=optional)
    if "image" in found and getattr(features[found["image"]], "dtype", "") in _TEXT:
        found["path"] = found.pop("image")
    return found


_TEXT = ("string", "large_string")


def _values(data: Any, column: str) -> list[Any]:
    """Return the values of a column; the names of classes for their numbers."""
    table = data.select_columns([column]).with_format("arrow")[:]
    values: list[Any] = table.column(0).to_pylist()
    feature = data.features[column]
    names = getattr(getattr(feature, "feature", feature), "names", None)  # also of lists
    return values if names is None else [_named(value, names) for value in values]


def _named(value: Any, names: Sequence[str]) -> Any:
    if isinstance(value, list):
        return [_named(each, names) for each in value]
    # the number of an unknown class is -1
    return names[value] if value is not None and 0 <= value < len(names) else None
