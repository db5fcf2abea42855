"""A remote folder of images, `url/domain/class/image`, listed by one request."""

from __future__ import annotations

from collections.abc import Iterator

from oodzoo._text import count
from oodzoo.data.files import ImageFile, RemoteImage
from oodzoo.data.listing import SUFFIXES, Listing, Sample
from oodzoo.errors import InputError
from oodzoo.remote.location import Url
from oodzoo.remote.objects import list_files


def list_remote_folder(root: Url) -> Listing:
    """List `url/domain/class/**/image`, by the rules of a local folder."""
    listing = Listing(str(root))
    loose: dict[str, int] = {}
    for path, file in _images(root):
        parts = path.split("/")
        if len(parts) < 3:
            loose[parts[0]] = loose.get(parts[0], 0) + 1
        else:
            listing.add(Sample(path, parts[0], parts[1]), file)
    if not listing.samples:
        level = f"; found {sum(loose.values())} one level too high, as in url/class/image"
        raise InputError(
            f"no image found in {str(root)!r}: expected url/domain/class/image"
            + (level if loose else "")
        )
    for domain, n in loose.items():
        if "." not in domain:  # else a file beside the domains, which is ignored
            listing.add_issue(
                "no class", f"{domain!r} has {count(n, 'image')} outside any class folder; ignored"
            )
    return listing


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
