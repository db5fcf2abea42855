"""Which source a user means: a path, a URL, a Python object, or a dict of these by domain."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from oodzoo.core.errors import InputError
from oodzoo.core.remote.location import Url, parse_location
from oodzoo.core.remote.objects import RemoteFile, list_files
from oodzoo.core.text import one_line
from oodzoo.data.files import ObjectImage
from oodzoo.data.listing import SUFFIXES, Listing, Sample, explaining_errors
from oodzoo.data.sources.base import ImageSource, Options, require_columns, require_used
from oodzoo.data.sources.columns import as_groups, as_names
from oodzoo.data.sources.folder import (
    images_below,
    list_by_class,
    list_folder,
    list_remote_folder,
)
from oodzoo.data.sources.table import has_text, list_texts
from oodzoo.data.sources.targets import Targets, join_targets, read_targets
from oodzoo.tasks import Kind, Task

_TARS = (".tar", ".tar.gz", ".tgz")


def open_source(source: Any, options: Options) -> Listing:
    """List the samples of whatever :class:`oodzoo.ImageDomains` takes.

    Raises
    ------
    InputError
        If the source is not recognised, cannot be read, or has no sample.
    """
    require_columns(options.columns)
    if isinstance(source, str) and not source:  # the working folder for pathlib
        raise InputError("DATA is empty; give a folder, a file or a URL")
    if isinstance(source, str | os.PathLike):
        location = parse_location(source)
        with explaining_errors(str(location)):
            listing = _open_location(location, options)
    elif has_text(options.columns):
        listing = list_texts(source, options)
    else:
        listing = _open_object(source, options)
    if options.task not in (None, listing.task.kind):
        raise InputError(
            f"{listing.name!r} has classes: its labels are names of folders; for the task "
            f"{options.task}, give a table (.csv, .parquet) with the labels in a column"
        )
    return listing


# --- paths and URLs --------------------------------------------------------------------------


def _open_location(location: Path | Url, options: Options) -> Listing:
    if has_text(options.columns):
        return list_texts(location, options)
    kind = _kind(location)
    files: list[RemoteFile] = []
    if kind == "folder" and isinstance(location, Url):
        files = list_files(location)
        if not files:
            raise InputError(f"no files found below {str(location)!r}; check the URL")
        start = len(str(location)) + 1
        kind = _kind_of_entries([file.url[start:] for file in files])
    require_used(options, str(location), _USED[kind])
    if kind == "table":
        from oodzoo.data.sources.table import list_table

        root = None if options.root is None else parse_location(options.root)
        return list_table(
            location, root, options.columns, propose=options.propose, task=options.task
        )
    if kind == "parquet":
        from oodzoo.data.sources.parquet import list_parquet

        return list_parquet(location, options.columns, propose=options.propose, task=options.task)
    if kind == "tar":
        from oodzoo.data.sources.tar import list_tars

        return list_tars(location, options.columns, options.task)
    if kind == "saved":
        from oodzoo.data.sources.huggingface import list_saved

        assert isinstance(location, Path)
        return list_saved(location, options)
    if kind == "hub":
        from oodzoo.data.sources.huggingface import list_named

        assert isinstance(location, Url)
        return list_named(location, options)
    classes = () if options.classes is None and options.propose else options.classes
    if classes is not None:
        by_class = list_by_class(location, classes, files)
        if by_class is not None:
            return by_class
    if isinstance(location, Url):
        return list_remote_folder(location, files)
    return list_folder(location)


_USED: dict[str, tuple[str, ...]] = {
    "table": ("root", "columns"),
    "parquet": ("columns",),
    "tar": ("columns",),
    "saved": ("columns", "labels", "domains", "groups"),
    "hub": ("columns", "labels", "domains", "groups"),
    "folder": (),
}


def _kind(location: Path | Url) -> str:
    """Tell what a path or URL is by its name or, for a local folder, its content."""
    name = location.name.lower()
    if isinstance(location, Url) and _names_data_set(location):
        return "hub"
    if str(location).startswith("hf://") and str(location).count("/") == 3:
        wanted = str(location).replace("hf://", "hf://datasets/", 1)
        raise InputError(f"{str(location)!r} does not name a data set; did you mean {wanted}?")
    by_name = _kind_of_file(name)
    if isinstance(location, Url):
        return by_name or "folder"
    if location.is_dir():
        return _kind_of_folder(location)
    pattern = any(sign in str(location) for sign in "*?{[")
    if not location.exists() and not (pattern and by_name):
        raise InputError(
            f"no such file or folder: {str(location)!r}; give a folder of domains, a table (.csv, "
            ".parquet), .tar files or a URL"
        )
    if by_name is None:
        raise InputError(
            f"{str(location)!r} is a file; give a folder root/domain/class/image, a table (.csv, "
            ".parquet) with the columns path or image, domain, label, or .tar files"
        )
    return by_name


def _names_data_set(url: Url) -> bool:
    """Whether a URL is that of a data set of the Hugging Face Hub, not of a file in one."""
    path = str(url).partition("?")[0]
    return path.startswith("hf://datasets/") and path.count("/") <= 4


def _kind_of_file(name: str) -> str | None:
    if name.endswith(".csv"):
        return "table"
    if name.endswith(".parquet"):
        return "parquet"
    return "tar" if name.endswith(_TARS) else None


def _kind_of_folder(folder: Path) -> str:
    """Tell a saved data set of `datasets`, or a folder of .tar or .parquet files, from images."""
    if (folder / "dataset_dict.json").is_file() or (
        (folder / "dataset_info.json").is_file() and (folder / "state.json").is_file()
    ):
        return "saved"
    return _kind_of_entries([f"{e.name}/" if e.is_dir() else e.name for e in folder.iterdir()])


def _kind_of_entries(names: Iterable[str]) -> str:
    """Tell a folder of .tar or .parquet files by its entries; names of folders have a slash."""
    seen = [name.lower() for name in names if not name.startswith(".")]
    if not any("/" in name or Path(name).suffix in SUFFIXES for name in seen):
        kinds = {_kind_of_file(name) for name in seen}
        for kind in ("parquet", "tar"):
            if kind in kinds:
                return kind
    return "folder"


# --- Python objects --------------------------------------------------------------------------


def _open_object(source: Any, options: Options) -> Listing:
    if isinstance(source, ImageSource):
        require_used(options, type(source).__name__, ())
        return _list_protocol(source, options.task)
    package = type(source).__module__.partition(".")[0]
    if package in ("pandas", "polars"):
        from oodzoo.data.sources.arrays import list_frame

        return list_frame(source, options)
    if package == "datasets":
        from oodzoo.data.sources.huggingface import list_datasets

        return list_datasets(source, options)
    if _is_torch_dataset(source):
        from oodzoo.data.sources.torch_dataset import list_torch_dataset

        return list_torch_dataset(source, options)
    if _is_wilds(source):
        from oodzoo.data.sources.torch_dataset import list_wilds

        return list_wilds(source, options)
    if isinstance(source, Mapping):
        return _list_by_domain(source, options)
    if hasattr(source, "__len__") and hasattr(source, "__getitem__"):
        from oodzoo.data.sources.arrays import list_arrays

        return list_arrays(source, options)
    raise InputError(
        f"cannot read images from an object of type {type(source).__name__}; give a path, a URL, a "
        "DataFrame, a data set of datasets or torch, a dict of them by domain, a sequence of "
        "images with labels= and domains=, or an object with samples and open(i)"
    )


def _is_torch_dataset(source: Any) -> bool:
    torch = sys.modules.get("torch.utils.data")
    return torch is not None and isinstance(source, torch.Dataset)


def _is_wilds(source: Any) -> bool:
    needed = ("metadata_array", "metadata_fields", "y_array", "get_input")
    return all(hasattr(source, name) for name in needed)


def _list_protocol(source: ImageSource, kind: Kind | None) -> Listing:
    """List a source that somebody else has written."""
    name = str(getattr(source, "name", type(source).__name__))
    if not isinstance(source.samples, Iterable):
        kind = type(source.samples).__name__
        raise InputError(f"the samples of {name} must be a sequence, got {kind}")
    samples = list(source.samples)
    for i, given in enumerate(samples):
        for role in ("path", "domain", "label"):
            if not hasattr(given, role):
                raise InputError(
                    f"sample {i} of {name} has no {role}; it needs path, domain and label: "
                    f"{given!r}"
                )
        if not isinstance(given.path, str):
            raise InputError(f"the path of sample {i} of {name} must be text, got {given.path!r}")
    domains = as_names([given.domain for given in samples], "domain", name)
    task, labels = _targets(source, [given.label for given in samples], name, kind)
    groups = as_groups([getattr(given, "group", None) for given in samples], name)
    listing = Listing(name, task=task)
    paths = [given.path for given in samples]
    listing.samples = list(map(Sample, paths, domains, labels, groups))
    listing.files = [ObjectImage(source, i, path) for i, path in enumerate(paths)]
    return listing


def _targets(source: ImageSource, labels: list[Any], name: str, kind: Kind | None) -> Targets:
    """Read the labels; a source with a task, such as another data set, has them as text."""
    task = getattr(source, "task", None)
    if not isinstance(task, Task) or task.is_classification:
        return read_targets(labels, name, kind)
    try:
        task.decode(labels)
    except (ValueError, TypeError, AttributeError) as error:
        raise InputError(
            f"the samples of {name} have labels that do not fit its task, {task.kind}: "
            f"{one_line(error)}"
        ) from error
    return Targets(task, labels)


# --- dicts by domain ------------------------------------------------------------------------------

_FILES = (".csv", ".parquet", ".tar", ".tar.gz", ".tgz")


def _list_by_domain(sources: Mapping[Any, Any], options: Options) -> Listing:
    """List several sources, each of one domain.

    Parameters
    ----------
    sources : dict
        By domain: a folder of classes `class/image` or its URL, a pair `(images, labels)`, or any
        source that takes `domains`. Its own domains, if it has them, are ignored.
    options : Options
        For each of the sources.
    """
    name = type(sources).__name__
    require_used(options, name, ("root", "columns"))
    listing = Listing(name)
    domains = as_names(list(sources), "domain", name)
    tasks = []
    for domain, source in zip(domains, sources.values(), strict=True):
        try:
            found = _list_domain(source, options._replace(domains=domain))
        except InputError as error:
            raise InputError(f"domain {domain!r}: {error}") from error
        listing.samples += found.samples
        listing.files += found.files
        listing.issues += found.issues
        tasks.append(found.task)
    if tasks:
        listing.task = join_targets(tasks, name)
    if len({sample.path for sample in listing.samples}) < len(listing.samples):
        listing.samples = [_with_domain(sample) for sample in listing.samples]
    return listing


def _with_domain(sample: Sample) -> Sample:
    start = f"{sample.domain}/"
    return sample if sample.path.startswith(start) else sample._replace(path=start + sample.path)


def _list_domain(source: Any, options: Options) -> Listing:
    if isinstance(source, str | os.PathLike):
        location = parse_location(source)
        if _is_class_folder(location):
            with explaining_errors(str(location)):
                return _list_classes(location, str(options.domains))
    if isinstance(source, tuple):
        if len(source) not in (2, 3):
            raise InputError(
                f"expected (images, labels) or (images, labels, groups), got {len(source)} parts"
            )
        images, labels, groups = (*source, None)[:3]
        return open_source(images, options._replace(labels=labels, groups=groups))
    return open_source(source, options)


def _is_class_folder(location: Path | Url) -> bool:
    if isinstance(location, Url):
        return location.scheme != "hf" and not location.name.lower().endswith(_FILES)
    saved = ("dataset_dict.json", "dataset_info.json")
    return location.is_dir() and not any((location / file).is_file() for file in saved)


def _list_classes(folder: Path | Url, domain: str) -> Listing:
    """List the images `class/**/image` of one domain."""
    listing = Listing(str(folder))
    files, listing.issues = images_below(folder)
    loose = 0
    for path, file in files.items():
        label, slash, _ = path.partition("/")
        if slash:
            listing.add(Sample(f"{domain}/{path}", domain, label), file)
        loose += not slash
    if not listing.samples:
        raise InputError(f"no image found in {str(folder)!r}: expected a folder class/image")
    listing.add_loose(domain, loose)
    return listing
