"""Sources of images: paths, URLs, Python objects, and dicts of these by domain.

A source is a file of this package with a function that lists the samples of what it is given, and
an entry in :data:`SOURCES`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from oodzoo.core.errors import InputError
from oodzoo.core.remote.location import Url, parse_location
from oodzoo.core.remote.objects import RemoteFile, list_files
from oodzoo.core.text import one_line
from oodzoo.data.files import ObjectImage
from oodzoo.data.listing import SUFFIXES, Listing, Sample, explaining_errors
from oodzoo.data.sources.base import ImageSource, SourceOptions, require_used
from oodzoo.data.sources.column_roles import as_groups, as_names
from oodzoo.data.sources.folder import add_classes, images_below, list_folder
from oodzoo.data.sources.targets import Targets, join_targets, read_targets
from oodzoo.tasks import Kind, Task


class Source(NamedTuple):
    """A source of images, and what it is recognised by.

    Attributes
    ----------
    function : str
        The file in this package and the function in it, which takes the source (a Path, a Url or
        an object) and :class:`SourceOptions`, and returns a :class:`Listing`.
    uses : tuple of str
        The options that it uses; others are refused.
    suffixes : tuple of str
        Suffixes of its files.
    in_folders : bool
        Whether a folder of such files, without images, is a source too.
    packages : tuple of str
        The packages of its Python objects.
    """

    function: str
    uses: tuple[str, ...] = ("columns", "labels", "domains", "groups")
    suffixes: tuple[str, ...] = ()
    in_folders: bool = False
    packages: tuple[str, ...] = ()

    def list(self, source: Any, options: SourceOptions) -> Listing:
        """List the samples of a source."""
        is_place = isinstance(source, Path | Url)
        require_used(options, str(source) if is_place else type(source).__name__, self.uses)
        module, _, function = self.function.partition(":")
        listing: Listing = getattr(import_module(f"{__name__}.{module}"), function)(source, options)
        return listing


_ALL = ("root", "columns", "labels", "domains", "groups")

SOURCES = [
    Source("csv_table:list_csv", ("root", "columns"), suffixes=(".csv",)),
    Source("parquet:list_parquet", ("columns",), suffixes=(".parquet",), in_folders=True),
    Source("tar:list_tars", ("columns",), suffixes=(".tar", ".tar.gz", ".tgz"), in_folders=True),
    Source("sequences:list_frame", _ALL, packages=("pandas", "polars")),
    Source("huggingface:list_datasets", _ALL, packages=("datasets",)),
]

_HUB = Source("huggingface:list_named")
_SAVED = Source("huggingface:list_saved")
_TEXTS = Source("csv_table:list_texts", _ALL)
_TORCH = Source("torch_dataset:list_torch_dataset")
_WILDS = Source("torch_dataset:list_wilds")
_SEQUENCE = Source("sequences:list_arrays", _ALL)


def open_source(source: Any, options: SourceOptions) -> Listing:
    """List the samples of whatever :class:`oodzoo.ImageDomains` takes.

    Raises
    ------
    InputError
        If the source is not recognised, cannot be read, or has no sample.
    """
    columns = options.columns
    if columns is not None and not (
        isinstance(columns, Mapping) and all(isinstance(c, str) for c in columns.values())
    ):
        raise InputError(f"columns= must be a dict such as {{'label': 'y'}}, got {columns!r}")
    for role in ("label", "domain", "group"):
        if isinstance(given := options.given(role), str):
            raise InputError(
                f"{role}s= is one string, {given!r}; give one value for each image, or name a "
                f"column with columns={{{role!r}: {given!r}}}"
            )
    return _open(source, options)


def _open(source: Any, options: SourceOptions) -> Listing:
    if isinstance(source, str) and not source:  # the working folder for pathlib
        raise InputError("DATA is empty; give a folder, a file or a URL")
    if isinstance(source, str | os.PathLike):
        location = parse_location(source)
        with explaining_errors(str(location)):
            listing = _open_location(location, options)
    elif "text" in (options.columns or {}):
        listing = _TEXTS.list(source, options)
    else:
        listing = _open_object(source, options)
    if options.task not in (None, listing.task.kind):
        raise InputError(
            f"{listing.name!r} has classes: its labels are names of folders; for the task "
            f"{options.task}, give a table (.csv, .parquet) with the labels in a column"
        )
    return listing


# --- paths and URLs -------------------------------------------------------------------------------


def _open_location(location: Path | Url, options: SourceOptions) -> Listing:
    if "text" in (options.columns or {}):
        return _TEXTS.list(location, options)
    files: list[RemoteFile] = []
    if isinstance(location, Url):
        kind = _HUB if _names_data_set(location) else _kind_of_file(location.name)
        if kind is None:
            files = list_files(location)
            if not files:
                raise InputError(f"no files found below {str(location)!r}; check the URL")
            start = len(str(location)) + 1
            kind = _kind_of_entries([file.url[start:] for file in files])
    else:
        kind = _kind_of_path(location)
    if kind is not None:
        return kind.list(location, options)
    require_used(options, str(location), ())
    return list_folder(location, files, options)


def _names_data_set(url: Url) -> bool:
    """Whether a URL is that of a data set of the Hugging Face Hub, not of a file in one."""
    text = str(url).partition("?")[0]
    if text.startswith("hf://datasets/") and text.count("/") <= 4:
        return True
    if url.scheme == "hf" and str(url).count("/") == 3:
        wanted = str(url).replace("hf://", "hf://datasets/", 1)
        raise InputError(f"{str(url)!r} does not name a data set; did you mean {wanted}?")
    return False


def _kind_of_path(path: Path) -> Source | None:
    """Tell what a local path is by its name or content; None for a folder of images."""
    if path.is_dir():
        if _is_saved(path):
            return _SAVED
        return _kind_of_entries([f"{e.name}/" if e.is_dir() else e.name for e in path.iterdir()])
    by_name = _kind_of_file(path.name)
    pattern = any(sign in str(path) for sign in "*?{[")
    if not path.exists() and not (pattern and by_name):
        raise InputError(
            f"no such file or folder: {str(path)!r}; give a folder of domains, a table (.csv, "
            ".parquet), .tar files or a URL"
        )
    if by_name is None:
        raise InputError(
            f"{str(path)!r} is a file; give a folder root/domain/class/image, a table (.csv, "
            ".parquet) with the columns path or image, domain, label, or .tar files"
        )
    return by_name


def _is_saved(folder: Path) -> bool:
    """Whether a folder is a data set that `datasets` has saved."""
    parts = ("dataset_info.json", "state.json")
    return (folder / "dataset_dict.json").is_file() or all((folder / p).is_file() for p in parts)


def _kind_of_file(name: str) -> Source | None:
    found = (kind for kind in SOURCES if kind.suffixes and name.lower().endswith(kind.suffixes))
    return next(found, None)


def _kind_of_entries(names: Iterable[str]) -> Source | None:
    """Tell a folder of files such as .tar by its entries; names of folders have a slash."""
    seen = [name.lower() for name in names if not name.startswith(".")]
    if any("/" in name or Path(name).suffix in SUFFIXES for name in seen):
        return None
    kinds = {_kind_of_file(name) for name in seen}
    return next((kind for kind in SOURCES if kind.in_folders and kind in kinds), None)


# --- Python objects -------------------------------------------------------------------------------


def _open_object(source: Any, options: SourceOptions) -> Listing:
    if isinstance(source, ImageSource):
        require_used(options, type(source).__name__, ())
        return _list_protocol(source, options.task)
    package = type(source).__module__.partition(".")[0]
    torch = sys.modules.get("torch.utils.data")
    kind = next((kind for kind in SOURCES if package in kind.packages), None)
    if kind is None and torch is not None and isinstance(source, torch.Dataset):
        kind = _TORCH
    wilds = ("metadata_array", "metadata_fields", "y_array", "get_input")
    if kind is None and all(hasattr(source, name) for name in wilds):
        kind = _WILDS
    if kind is None and isinstance(source, Mapping):
        return _list_by_domain(source, options)
    if kind is None and hasattr(source, "__len__") and hasattr(source, "__getitem__"):
        kind = _SEQUENCE
    if kind is None:
        raise InputError(
            f"cannot read images from an object of type {type(source).__name__}; give a path, a "
            "URL, a DataFrame, a data set of datasets or torch, a dict of them by domain, a "
            "sequence of images with labels= and domains=, or an object with samples and open(i)"
        )
    return kind.list(source, options)


def _list_protocol(source: ImageSource, kind: Kind | None) -> Listing:
    """List a source that somebody else has written."""
    name = str(getattr(source, "name", type(source).__name__))
    if not isinstance(source.samples, Iterable):
        given = type(source.samples).__name__
        raise InputError(f"the samples of {name} must be a sequence, got {given}")
    samples = list(source.samples)
    for i, sample in enumerate(samples):
        for role in ("path", "domain", "label"):
            if not hasattr(sample, role):
                raise InputError(
                    f"sample {i} of {name} has no {role}; it needs path, domain and label: "
                    f"{sample!r}"
                )
        if not isinstance(sample.path, str):
            raise InputError(f"the path of sample {i} of {name} must be text, got {sample.path!r}")
    paths = [sample.path for sample in samples]
    labels = [sample.label for sample in samples]
    domains = as_names([sample.domain for sample in samples], "domain", name)
    task = getattr(source, "task", None)
    if not isinstance(task, Task) or task.one_class:
        targets = read_targets(labels, name, kind)
    else:  # as of another data set, whose labels are text
        try:
            task.decode(labels)
        except (ValueError, TypeError, AttributeError) as error:
            raise InputError(
                f"the samples of {name} have labels that do not fit its task, {task.kind}: "
                f"{one_line(error)}"
            ) from error
        targets = Targets(task, labels)
    groups = as_groups([getattr(sample, "group", None) for sample in samples], name)
    return Listing(
        name,
        list(map(Sample, paths, domains, targets.texts, groups)),
        [ObjectImage(source, i, path) for i, path in enumerate(paths)],
        task=targets.task,
    )


# --- dicts by domain ------------------------------------------------------------------------------


def _list_by_domain(sources: Mapping[Any, Any], options: SourceOptions) -> Listing:
    """List several sources, each of one domain.

    Parameters
    ----------
    sources : dict
        By domain: a folder of classes `class/image` or its URL, a pair `(images, labels)`, or any
        source that takes `domains`. Its own domains, if it has them, are ignored.
    options : SourceOptions
        For each of the sources.
    """
    name = type(sources).__name__
    require_used(options, name, ("root", "columns"))
    listing = Listing(name)
    tasks = []
    for domain, source in zip(
        as_names(list(sources), "domain", name), sources.values(), strict=True
    ):
        try:
            found = _list_domain(source, domain, options._replace(domains=domain))
        except InputError as error:
            raise InputError(f"domain {domain!r}: {error}") from error
        listing.samples += found.samples
        listing.files += found.files
        listing.issues += found.issues
        tasks.append(found.task)
    if tasks:
        listing.task = join_targets(tasks, name)
    if len({sample.path for sample in listing.samples}) < len(listing.samples):
        for at, sample in enumerate(listing.samples):
            if not sample.path.startswith(f"{sample.domain}/"):
                path = f"{sample.domain}/{sample.path}"
                listing.samples[at] = sample._replace(path=path)
    return listing


def _list_domain(source: Any, domain: str, options: SourceOptions) -> Listing:
    if isinstance(source, str | os.PathLike):
        folder = parse_location(source)
        if isinstance(folder, Url):
            by_class = folder.scheme != "hf" and _kind_of_file(folder.name) is None
        else:
            saved = ("dataset_dict.json", "dataset_info.json")
            by_class = folder.is_dir() and not any((folder / file).is_file() for file in saved)
        if by_class:
            with explaining_errors(str(folder)):
                files, issues = images_below(folder)
            listing = Listing(str(folder), issues=issues)
            loose = add_classes(listing, files, domain, f"{domain}/")
            if not listing.samples:
                raise InputError(
                    f"no image found in {str(folder)!r}: expected a folder class/image"
                )
            listing.add_loose(domain, loose)
            return listing
    if isinstance(source, tuple):
        if len(source) not in (2, 3):
            raise InputError(
                f"expected (images, labels) or (images, labels, groups), got {len(source)} parts"
            )
        source, labels, groups = (*source, None)[:3]
        options = options._replace(labels=labels, groups=groups)
    return _open(source, options)
