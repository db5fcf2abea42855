"""Data sets of Hugging Face's `datasets`: in memory, saved to disk, or by name on the Hub."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from oodzoo.core.errors import InputError, NoDomainsError
from oodzoo.core.packages import optional_package
from oodzoo.core.remote.location import Url
from oodzoo.core.text import did_you_mean, one_line
from oodzoo.data.files import ImageFile, LocalFile, ObjectImage
from oodzoo.data.listing import Listing
from oodzoo.data.sources.base import (
    SourceOptions,
    SourceTable,
    require_root_unused,
    row_names,
)
from oodzoo.data.sources.column_roles import (
    find_columns,
    name_columns,
)
from oodzoo.data.sources.sequences import image_bytes

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


def list_saved(path: Path, options: SourceOptions) -> Listing:
    """List a data set that `save_to_disk` has written; its files are memory-mapped."""
    with using_datasets(f"reading {str(path)!r}") as datasets:
        try:
            saved = datasets.load_from_disk(str(path))
        except Exception as error:  # of pyarrow, json, …
            raise InputError(
                f"cannot load {str(path)!r} with datasets: {one_line(error)}"
            ) from error
    return list_datasets(saved, options, name=str(path))


def list_datasets(source: Any, options: SourceOptions, *, name: str | None = None) -> Listing:
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
    with using_datasets(f"reading a {name}") as datasets:
        if isinstance(source, datasets.IterableDataset | datasets.IterableDatasetDict):
            raise InputError(
                f"{name!r} is streamed and cannot be read at a position; load it without "
                "streaming=True"
            )
        splits = dict(source) if isinstance(source, Mapping) else {"": source}
        data = _concatenate(datasets, splits, name)
        return _list_rows(data, splits, options, name)


def _list_rows(data: Any, splits: Mapping[str, Any], options: SourceOptions, name: str) -> Listing:
    split_of = [split for split, part in splits.items() for _ in range(len(part))]
    own: dict[str, Any] = {}
    needed = options.missing("label", "domain")
    has_column = "domain" in (*data.column_names, *(options.columns or ()))
    named = options.domains is not None or has_column
    if not named and _are_domains(splits, data.column_names, name, options):
        own["domain"] = split_of
        needed = tuple(role for role in needed if role != "domain")
    found = _find_columns(data.features, options, needed, name)
    plain = [column for column, feature in data.features.items() if _is_plain(feature)]
    table = SourceTable(name, data.column_names, lambda c: _values(data, c), Path.cwd(), plain)
    if "path" in found:
        return table.list(found, options, own=own)
    require_root_unused(options, name)
    return table.list(found, options, ImageColumn(data, found["image"]).files(split_of, name), own)


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
    splits: Mapping[str, Any], columns: Sequence[str], name: str, options: SourceOptions
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
    features: Mapping[str, Any], options: SourceOptions, needed: Sequence[str], name: str
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


# --- by name --------------------------------------------------------------------------------------

_FORM = "hf://datasets/OWNER/NAME[@REVISION][?config=CONFIG&split=SPLIT]"


class HubName(NamedTuple):
    """What a URL of the Hub names."""

    repository: str
    revision: str | None = None
    config: str | None = None
    split: str | None = None


def parse_hub_url(url: Url) -> HubName:
    """Read `hf://datasets/OWNER/NAME@REVISION?config=CONFIG&split=SPLIT`.

    Raises
    ------
    InputError
        If it has another form.

    Examples
    --------
    >>> parse_hub_url(Url("hf://datasets/ada/photos@v1?split=train"))
    HubName(repository='ada/photos', revision='v1', config=None, split='train')
    """
    path, _, query = str(url).removeprefix("hf://datasets/").partition("?")
    repository, _, revision = path.rstrip("/").partition("@")
    if repository.count("/") != 1 or not all(repository.split("/")):
        raise InputError(f"{str(url)!r} does not name a data set; expected {_FORM}")
    options: dict[str, str] = {}
    for part in filter(None, query.split("&")):
        key, equals, value = part.partition("=")
        if key not in ("config", "split") or not value:
            advice = "" if equals else "; expected NAME=VALUE"
            near = did_you_mean(key, ("config", "split"))
            raise InputError(
                f"unknown option {part!r} in {str(url)!r}; {near or f'expected {_FORM}'}{advice}"
            )
        options[key] = unquote(value)
    return HubName(repository, unquote(revision) or None, **options)


def list_named(url: Url, options: SourceOptions) -> Listing:
    """Download a data set of the Hub, or find it in the cache of `datasets`, and list it.

    No code of a data set is run: those with a loading script are refused.
    """
    name = parse_hub_url(url)
    with using_datasets(f"reading {str(url)!r}") as datasets:
        if int(datasets.__version__.partition(".")[0]) < 4:
            raise InputError(
                f"datasets {datasets.__version__} may run the script of a data set; install "
                "datasets>=4"
            )
        if Path(name.repository).exists():
            raise InputError(
                f"datasets would read the local folder {name.repository!r} instead of "
                f"{str(url)!r}; work in another folder"
            )
        try:
            loaded = datasets.load_dataset(
                name.repository, name.config, split=name.split, revision=name.revision
            )
        except Exception as error:
            raise InputError(_explain(error, name)) from error
    return list_datasets(loaded, options, name=str(url))


def _explain(error: Any, name: HubName) -> str:
    """Say in one line why a data set cannot be loaded, and what to do."""
    text, what = one_line(error).rstrip("."), f"the data set {name.repository!r}"
    if "scripts are no longer supported" in text:
        return (
            f"{what} needs its own script, which would run code of others; refused. Try its copy "
            f"without a script: hf://datasets/{name.repository}@refs%2Fconvert%2Fparquet"
        )
    if "gated" in text.lower():
        return (
            f"{what} is gated; accept its conditions on its page of the Hugging Face Hub, and log "
            "in with: hf auth login"
        )
    if "Revision" in text and "doesn't exist" in text:
        return f"{what} has no revision {name.revision!r}"
    if type(error).__name__ == "DatasetNotFoundError":
        return (
            f"{what} does not exist on the Hugging Face Hub, or is private; check its name, or "
            "log in with: hf auth login"
        )
    if isinstance(error, ConnectionError):
        return (
            f"cannot reach the Hugging Face Hub for {what}: {text}; connect, or give a folder "
            "that save_to_disk has written"
        )
    advice = ""
    if "Config name is missing" in text or "BuilderConfig" in text:
        advice = "; choose one with ?config=NAME"
    elif "Unknown split" in text:
        advice = "; choose one with ?split=NAME"
    return f"cannot load {what}: {text}{advice}"


# --- the column of images -------------------------------------------------------------------------

_ROWS = 1000


def has_files(feature: Any) -> bool:
    """Whether a column has image files, as bytes or paths."""
    if isinstance(feature, dict):
        return feature.keys() == {"bytes", "path"}
    return type(feature).__name__ == "Image"


class ImageColumn:
    """Opens the images of a column, from memory-mapped files where the data set has them.

    Parameters
    ----------
    data : datasets.Dataset
    column : str
        Image files, bytes, or pixels.
    """

    def __init__(self, data: Any, column: str) -> None:
        feature = data.features[column]
        data = data.select_columns([column]).with_format(None)
        self._column = column
        self._has_files = has_files(feature)
        if self._has_files:
            if not isinstance(feature, dict):
                data = data.cast_column(column, type(feature)(decode=False))
            data = data.flatten()
        elif getattr(feature, "dtype", None) not in ("binary", "large_binary"):
            data = data.with_format("numpy")
        self._data = data

    def open(self, i: int, /) -> bytes:
        row = self._data[i]
        if not self._has_files:
            return image_bytes(row[self._column])
        return image_bytes({part: row[f"{self._column}.{part}"] for part in ("bytes", "path")})

    def files(self, splits: Sequence[str], name: str) -> tuple[list[str], list[ImageFile]]:
        """Return the path and the file of each image; `splits` and `name` are for messages.

        The path is the name of the image file if each has one of its own, else the row.
        """
        n = len(self._data)
        given = self._paths() if self._has_files else [None] * n
        paths = _relative(given)
        if paths is None:
            rows = row_names(n)
            paths = [f"{s}/{row}" if s else row for s, row in zip(splits, rows, strict=True)]
        files: list[ImageFile] = [
            ObjectImage(self, i, f"{name}: {path}") for i, path in enumerate(paths)
        ]
        for start in range(0, n, _ROWS):
            local = {i for i in range(start, min(start + _ROWS, n)) if _is_file(given[i])}
            without_bytes = self._without_bytes(start) if local else []
            for i in local:
                if without_bytes[i - start]:
                    files[i] = LocalFile(str(given[i]))
        return paths, files

    def _paths(self) -> list[str | None]:
        column = f"{self._column}.path"
        table = self._data.select_columns([column]).with_format("arrow")[:]
        paths: list[str | None] = table.column(0).to_pylist()
        return paths

    def _without_bytes(self, start: int) -> list[bool]:
        """Tell for some rows whether the bytes are missing."""
        column = f"{self._column}.bytes"
        table = self._data.select_columns([column]).with_format("arrow")[start : start + _ROWS]
        missing: list[bool] = table.column(0).is_null().to_pylist()
        return missing


def _is_file(path: str | None) -> bool:
    return path is not None and os.path.isfile(path)  # noqa: PTH113 - no error on a long name


def _relative(paths: Sequence[str | None]) -> list[str] | None:
    """Return unique names relative to the folder that contains all; None if there are none."""
    names = [path for path in paths if path]
    if len(set(names)) < len(paths) or not names:
        return None
    absolute = [Path(name).is_absolute() for name in names]
    if all(absolute):
        folder = os.path.commonpath([str(Path(name).parent) for name in names])
        return [Path(name).relative_to(folder).as_posix() for name in names]
    return None if any(absolute) else names
