"""What one pass over the images of a data set shows, in arrays."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oodzoo.data.contents import Hashes, read_contents
from oodzoo.data.files import ImageFile
from oodzoo.events import Progress


@dataclass(frozen=True)
class Inspection:
    """Digests, problems and facts of images, in order; about 20 bytes for the facts of an image.

    Attributes
    ----------
    digests : tuple of str or None
        SHA-256 of each file; None if it cannot be read.
    problems : dict of int to str
        Why an image cannot be read or decoded, by its position.
    n_bytes : array (n,)
        Size of each file; 0 if it cannot be read.
    width, height : array (n,)
        Pixels of the upright image; 0 if it cannot be decoded.
    is_grey : array (n,)
    kinds : tuple of (str, str)
        Format and mode, by the numbers in `kind`.
    kind : array (n,)
    """

    digests: tuple[str | None, ...]
    problems: dict[int, str]
    n_bytes: NDArray[np.int64]
    width: NDArray[np.int32]
    height: NDArray[np.int32]
    is_grey: NDArray[np.bool_]
    kinds: tuple[tuple[str, str], ...]
    kind: NDArray[np.int16]

    def hashes(self, paths: Sequence[str]) -> Hashes:
        """Return the digests, and why those without a digest cannot be read, by path."""
        unread = {
            paths[at]: problem for at, problem in self.problems.items() if self.digests[at] is None
        }
        return Hashes(self.digests, unread)


def inspect_images(files: Sequence[ImageFile], progress: Progress | None = None) -> Inspection:
    """Read, hash and decode images in threads."""
    n = len(files)
    digests: list[str | None] = []
    problems: dict[int, str] = {}
    kinds: dict[tuple[str, str], int] = {}
    n_bytes = np.zeros(n, np.int64)
    width, height = np.zeros(n, np.int32), np.zeros(n, np.int32)
    is_grey = np.zeros(n, np.bool_)
    kind = np.zeros(n, np.int16)
    with closing(read_contents(files, decode=True, progress=progress)) as contents:
        for at, content in enumerate(contents):
            digests.append(content.digest)
            n_bytes[at] = content.n_bytes or 0
            if content.problem is not None:
                problems[at] = content.problem
            if (facts := content.facts) is not None:
                width[at], height[at], is_grey[at] = facts.width, facts.height, facts.is_grey
                kind[at] = kinds.setdefault((facts.format, facts.mode), len(kinds))
    return Inspection(tuple(digests), problems, n_bytes, width, height, is_grey, tuple(kinds), kind)
