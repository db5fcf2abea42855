"""A dict of sources by domain."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from oodzoo._text import count
from oodzoo.data.files import ImageFile, LocalFile
from oodzoo.data.listing import Listing, Sample, explaining_errors
from oodzoo.data.sources.folder import list_images
from oodzoo.data.sources.names import as_names
from oodzoo.data.sources.options import Options, require_used
from oodzoo.data.sources.remote_folder import list_remote_images
from oodzoo.data.sources.targets import join_targets
from oodzoo.errors import InputError
from oodzoo.remote.location import Url, parse_location

Open = Callable[[Any, Options], Listing]

_FILES = (".csv", ".parquet", ".tar", ".tar.gz", ".tgz")


def list_by_domain(sources: Mapping[Any, Any], options: Options, open_source: Open) -> Listing:
    """List several sources, each of one domain.

    Parameters
    ----------
    sources : dict
        By domain: a folder of classes `class/image` or its URL, a pair `(images, labels)`, or any
        source that takes `domains`. Its own domains, if it has them, are ignored.
    options : Options
        For each of the sources.
    open_source : callable
        Opens a source.
    """
    name = type(sources).__name__
    require_used(options, name, ("root", "columns"))
    listing = Listing(name)
    domains = as_names(list(sources), "domain", name)
    tasks = []
    for domain, source in zip(domains, sources.values(), strict=True):
        try:
            found = _list_domain(source, options._replace(domains=domain), open_source)
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


def _list_domain(source: Any, options: Options, open_source: Open) -> Listing:
    if isinstance(source, str | os.PathLike):
        location = parse_location(source)
        if _is_folder(location):
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


def _is_folder(location: Path | Url) -> bool:
    if isinstance(location, Url):
        return location.scheme != "hf" and not location.name.lower().endswith(_FILES)
    saved = ("dataset_dict.json", "dataset_info.json")
    return location.is_dir() and not any((location / file).is_file() for file in saved)


def _list_classes(folder: Path | Url, domain: str) -> Listing:
    """List the images `class/**/image` of one domain."""
    listing = Listing(str(folder))
    files: dict[str, ImageFile]
    if isinstance(folder, Url):
        files = list_remote_images(folder)
    else:
        paths, listing.issues = list_images(folder)
        files = {path: LocalFile(str(folder / path)) for path in paths}
    loose = 0
    for path, file in files.items():
        label, slash, _ = path.partition("/")
        if slash:
            listing.add(Sample(f"{domain}/{path}", domain, label), file)
        loose += not slash
    if not listing.samples:
        raise InputError(f"no image found in {str(folder)!r}: expected a folder class/image")
    if loose:
        listing.add_issue(
            "no class", f"{domain!r} has {count(loose, 'image')} outside any class folder; ignored"
        )
    return listing
