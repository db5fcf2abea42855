"""Domains and labels from paths `domain/class/…/image`, of sources that are not folders."""

from __future__ import annotations

from collections.abc import Iterable

from oodzoo._text import count
from oodzoo.data.files import ImageFile
from oodzoo.data.listing import Listing, Sample
from oodzoo.data.sources.folder import require_level


def list_by_path(name: str, images: Iterable[tuple[str, ImageFile]], expected: str) -> Listing:
    """List images by their paths, by the rules of a folder; `expected` is for messages."""
    listing = Listing(name)
    loose: dict[str, int] = {}
    for path, file in images:
        domain, *rest = filter(None, path.split("/"))  # an object may have "a//b" in its name
        if len(rest) >= 2:
            listing.add(Sample(path, domain, rest[0]), file)
        elif rest:  # else it is beside the domains, and ignored
            loose[domain] = loose.get(domain, 0) + 1
    require_level(listing, expected, loose, advice="")
    for domain, n in loose.items():
        listing.add_issue(
            "no class", f"{domain!r} has {count(n, 'image')} outside any class folder; ignored"
        )
    return listing
