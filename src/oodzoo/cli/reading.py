"""Reading the images of a data set once, with progress."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oodzoo._text import count, file_size

if TYPE_CHECKING:
    from collections.abc import Collection

    from oodzoo.cli.terminal import Terminal
    from oodzoo.data.contents import ImageFiles
    from oodzoo.data.files import ImageFile


def announce_remote(terminal: Terminal, files: Collection[ImageFile], name: str) -> None:
    """Say how much is fetched from a remote source; nothing for local files."""
    remote = {file.remote for file in files if file.remote is not None}
    if not remote:
        return
    sizes = [file.size for file in remote if file.size is not None]
    total = f" ({file_size(sum(sizes))})" if len(sizes) == len(remote) else ""
    terminal.say(f"Reading {count(len(files), 'image')}{total} from {name!r}")


def read_images(terminal: Terminal, images: ImageFiles, name: str) -> None:
    """Compute the digests of images; remote ones are fetched into the local cache."""
    announce_remote(terminal, images.all_files, name)
    with terminal.progress("Reading images") as progress:
        images.read_all(progress)
