"""A remote folder of images, `url/domain/class/image`, listed by one request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from oodzoo.data.files import ImageFile, RemoteImage
from oodzoo.data.listing import SUFFIXES, Listing
from oodzoo.data.sources.by_path import list_by_path
from oodzoo.remote.location import Url
from oodzoo.remote.objects import RemoteFile, list_files


def list_remote_folder(root: Url, files: Iterable[RemoteFile]) -> Listing:
    """List `url/domain/class/**/image` among files, by the rules of a local folder."""
    return list_by_path(str(root), remote_images(root, files), "url")


def list_remote_images(root: Url) -> dict[str, ImageFile]:
    """List all images below a URL by their paths, sorted."""
    return dict(sorted(remote_images(root, list_files(root))))


def remote_images(root: Url, files: Iterable[RemoteFile]) -> Iterator[tuple[str, ImageFile]]:
    """Yield the images that are not hidden, with their paths relative to a URL."""
    start = len(str(root).rstrip("/")) + 1
    for file in files:
        path = file.url[start:]
        parts = path.split("/")
        if any(part.startswith(".") for part in parts):
            continue
        if "." + parts[-1].rpartition(".")[2].lower() in SUFFIXES and "." in parts[-1]:
            yield path, RemoteImage(file)
