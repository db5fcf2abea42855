"""A folder of images of one domain, `root/class/image`, if the names of the classes are known."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from oodzoo._text import count
from oodzoo.data.files import ImageFile, LocalFile
from oodzoo.data.listing import Issue, Listing, Sample
from oodzoo.data.sources.folder import list_images
from oodzoo.data.sources.metadata import ONE_DOMAIN
from oodzoo.data.sources.remote_folder import remote_images
from oodzoo.remote.location import Url
from oodzoo.remote.objects import RemoteFile


def list_by_class(
    root: Path | Url, classes: Sequence[str], remote: Iterable[RemoteFile] = ()
) -> Listing | None:
    """List `root/class/**/image` as one domain; None if it is `root/domain/class/**/image`.

    Parameters
    ----------
    root : Path or Url
        Its name is that of the domain.
    classes : sequence of str
        Classes that are known; others may occur.
    remote : iterable of RemoteFile
        All files below a URL.
    """
    issues: list[Issue] = []
    files: dict[str, ImageFile]
    if isinstance(root, Url):
        files = dict(sorted(remote_images(root, remote)))
        name = root.name
    else:
        paths, issues = list_images(root)
        files = {path: LocalFile(str(root / path)) for path in paths}
        name = root.resolve().name
    if not is_by_class(list(files), classes):
        return None
    listing = Listing(str(root), root=None if isinstance(root, Url) else root, issues=issues)
    beside = 0
    for path, file in files.items():
        label, *rest = filter(None, path.split("/"))
        if rest:
            listing.add(Sample(path, name or ONE_DOMAIN, label), file)
        beside += not rest
    if beside:
        listing.add_issue(
            "no class", f"{str(root)!r} has {count(beside, 'image')} outside any class folder; "
            "ignored"
        )  # fmt: skip
    return listing


def is_by_class(paths: Sequence[str], classes: Sequence[str]) -> bool:
    """Whether paths are `class/image` rather than `domain/class/image`.

    They are if more images have one of the classes as their first folder than as their second; or,
    if as many, more of those in folders are in one folder than in folders below it.

    Examples
    --------
    >>> is_by_class(["cat/1.png", "dog/roll/2.png"], ["cat", "dog"])
    True
    >>> is_by_class(["day/cat/1.png", "night/dog/2.png"], ["cat", "dog"])
    False
    """
    folders = [[part for part in path.split("/") if part][:-1] for path in paths]
    nested = sum(len(each) > 1 for each in folders)
    known = frozenset(classes)
    first = sum(bool(each) and each[0] in known for each in folders)
    second = sum(len(each) > 1 and each[1] in known for each in folders)
    return first > second or (first == second and sum(map(bool, folders)) > 2 * nested)
