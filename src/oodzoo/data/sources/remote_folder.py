"""A remote folder of images, `url/domain/class/image`, listed by one request."""

from __future__ import annotations

from collections.abc import Iterator

from oodzoo.data.files import ImageFile, RemoteImage
from oodzoo.data.listing import SUFFIXES, Listing
from oodzoo.data.sources.by_path import list_by_path
from oodzoo.remote.location import Url
from oodzoo.remote.objects import list_files


def list_remote_folder(root: Url) -> Listing:
    """List `url/domain/class/**/image`, by the rules of a local folder."""
    return list_by_path(str(root), _images(root), "url")


def list_remote_images(root: Url) -> dict[str, ImageFile]:
    """List all images below a URL by their paths, sorted."""
    return dict(sorted(_images(root)))


def _images(root: Url) -> Iterator[tuple[str, ImageFile]]:
    """Yield the images below a URL that are not hidden, with their paths relative to it."""
    start = len(str(root).rstrip("/")) + 1
    for file in list_files(root):
        path = file.url[start:]
        parts = path.split("/")
        if any(part.startswith(".") for part in parts):
            continue
        if "." + parts[-1].rpartition(".")[2].lower() in SUFFIXES and "." in parts[-1]:
            yield path, RemoteImage(file)
