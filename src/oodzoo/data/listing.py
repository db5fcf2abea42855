"""What a source lists: samples, where their bytes are, and issues; and stratified samples of it.

The stratum of a sample is its class; for other tasks see :meth:`oodzoo.tasks.Task.strata`.
"""

from __future__ import annotations

import hashlib
import heapq
import json
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from oodzoo.core.errors import InputError
from oodzoo.core.events.listener import Progress
from oodzoo.core.text import count, one_line
from oodzoo.core.threads import Prefetch
from oodzoo.data.files import ImageFile, TextFile, UnreadableImageError, reading
from oodzoo.data.pixels import ImageFacts
from oodzoo.tasks import CLASSIFICATION, Task

# fmt: off
SUFFIXES = frozenset({
    ".avif", ".bmp", ".gif", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".ppm", ".tif", ".tiff",
    ".webp",
})
# fmt: on


class Sample(NamedTuple):
    """One image: its path in the data set, which is unique there, domain, label and group.

    The label is the name of a class; a label of another kind is text, see
    :meth:`oodzoo.tasks.Task.encode`.
    """

    path: str
    domain: str
    label: str
    group: str | None = None


@dataclass(frozen=True)
class Issue:
    """A problem of a data set; as a string, one line.

    Attributes
    ----------
    kind : str
    message : str
        What the problem is, with the first examples.
    paths : tuple of str
        All images or folders concerned.
    advice : str
        What to do about it; empty if the message says it.
    """

    kind: str
    message: str
    paths: tuple[str, ...] = ()
    advice: str = ""

    def __str__(self) -> str:
        return "; ".join(filter(None, (self.message, self.advice)))


@dataclass
class Listing:
    """The samples of a source, without their contents.

    Attributes
    ----------
    name : str
        What messages call the source: a path, a URL, or what kind of object it is.
    samples : list of Sample
    files : list of ImageFile
        Where the bytes of each sample are.
    issues : list of Issue
    root : Path, optional
        The local folder that the paths of the samples are relative to, where there is one.
    metadata : dict of str to list
        Further columns, one value for each sample; None where it is missing. Only if domains are
        to be proposed.
    task : Task
        What the labels are.
    """

    name: str
    samples: list[Sample] = field(default_factory=list)
    files: list[ImageFile] = field(default_factory=list)
    issues: list[Issue] = field(default_factory=list)
    root: Path | None = None
    metadata: dict[str, list[str | None]] = field(default_factory=dict)
    task: Task = CLASSIFICATION

    def add(self, sample: Sample, file: ImageFile) -> None:
        self.samples.append(sample)
        self.files.append(file)

    def add_issue(self, kind: str, message: str, *paths: str) -> None:
        self.issues.append(Issue(kind, message, paths))

    def add_loose(self, name: str, n: int) -> None:
        """Note that images are beside the classes of a domain, if there are any."""
        if n:
            self.add_issue(
                "no class", f"{name!r} has {count(n, 'image')} outside any class folder; ignored"
            )


def task_line(task: Task) -> bytes:
    """What a fingerprint of samples begins with: nothing for classes."""
    if task.one_class:
        return b""
    return json.dumps([task.kind, *task.outputs], ensure_ascii=True).encode() + b"\n"


@contextmanager
def explaining_errors(source: str | Path) -> Iterator[None]:
    """Turn an OSError while listing a source into an InputError."""
    try:
        yield
    except OSError as error:
        path = str(error.filename or source)
        raise InputError(f"cannot read {path!r}: {error.strerror or one_line(error)}") from error


Cell = tuple[str, str]
"""(domain, stratum)"""


def stratified_sample(
    samples: Sequence[Sample], n: int, seed: int = 0, task: Task = CLASSIFICATION
) -> list[int]:
    """Choose about n samples, in proportion to the sizes of domains and strata.

    A larger n gives a superset, and the order of the samples does not matter. Groups are kept
    whole, so with groups there may be more than n. Returns sorted positions.
    """
    cells: dict[Cell, list[int]] = defaultdict(list)
    cell_of = task.strata_of([sample.label for sample in samples])
    for at, (sample, stratum) in enumerate(zip(samples, cell_of, strict=True)):
        cells[sample.domain, stratum].append(at)
    if n < len(cells):
        raise InputError(
            f"a sample of {n} images is too small: there are {len(cells)} combinations of domain "
            f"and {task.stratum} with images, and each needs at least one"
        )
    chosen: set[int] = set()
    groups: set[tuple[str, str]] = set()
    for cell, quota in apportion({c: len(members) for c, members in cells.items()}, n).items():
        order = sorted(cells[cell], key=lambda at: _sort_key(samples[at], seed))
        chosen.update(order[:quota])
    for at in chosen:
        group = samples[at].group
        if group is not None:
            groups.add((samples[at].domain, group))
    whole = {at for at, s in enumerate(samples) if s.group and (s.domain, s.group) in groups}
    return sorted(chosen | whole)


def apportion(sizes: dict[Cell, int], n: int) -> dict[Cell, int]:
    """Apportion n in proportion to sizes, at least one each, by the Sainte-Laguë method.

    As a divisor method it is house-monotone: no share shrinks when n grows.
    """
    n = min(n, sum(sizes.values()))
    shares = dict.fromkeys(sorted(sizes), 1)
    queue = [(-sizes[cell] / 3, cell) for cell in shares if sizes[cell] > 1]
    heapq.heapify(queue)
    for _ in range(n - len(shares)):
        _, cell = heapq.heappop(queue)
        shares[cell] += 1
        if shares[cell] < sizes[cell]:
            heapq.heappush(queue, (-sizes[cell] / (2 * shares[cell] + 1), cell))
    return shares


def _sort_key(sample: Sample, seed: int) -> bytes:
    """Hash a sample, or its group if it has one, to a random sort key."""
    unit = sample.group if sample.group is not None else sample.path
    return hashlib.sha256(f"{seed}\0{sample.domain}\0{unit}".encode()).digest()


# --- the contents of files, read in threads -------------------------------------------------------

_IMAGES_PER_CALL = 16
"""Images per call of a thread, to reduce the overhead of dispatching."""

REMOTE_READERS = 32
"""Threads that read remote images: almost all of them wait for an answer."""


READ_AHEAD = 4096
"""Calls that are waiting or done before their results are taken: a slow answer holds up few, and
those of a large data set do not fill the memory."""


class Content(NamedTuple):
    """What the bytes of an image file show."""

    digest: str | None
    """SHA-256; None if the file cannot be read."""
    problem: str | None
    """Why the file cannot be read or decoded."""
    n_bytes: int | None = None
    """Size of the file; None if it cannot be read."""
    facts: ImageFacts | None = None
    """What decoding shows; None if the file was not decoded."""
    is_transient: bool = False
    """The file cannot be read now; see :class:`~oodzoo.data.files.UnreadableImageError`."""


class Hashes(NamedTuple):
    """SHA-256 of each image file, None if it cannot be read; the reason by path of those."""

    digests: tuple[str | None, ...]
    unreadable: dict[str, str]


class ImageFiles(ABC):
    """Image files that are hashed once, when a digest is first needed."""

    @abstractmethod
    def _files(self) -> dict[str, ImageFile]:
        """Return the image files by path, in order."""

    @property
    def digests(self) -> tuple[str | None, ...]:
        """SHA-256 of each image file; None where it cannot be read."""
        return self._hashes.digests

    @property
    def files_by_digest(self) -> dict[str, ImageFile]:
        """The image files that can be read, by SHA-256."""
        pairs = zip(self.digests, self._files().values(), strict=True)
        return {digest: file for digest, file in pairs if digest is not None}

    @property
    def unreadable(self) -> dict[str, str]:
        """Reason by path of the images whose file could not be read when it was hashed."""
        return self._hashes.unreadable

    @property
    def is_read(self) -> bool:
        """Whether all images have been read, so that their digests are known."""
        return "_hashes" in self.__dict__

    @property
    def all_files(self) -> list[ImageFile]:
        """Where the bytes of each image are."""
        return list(self._files().values())

    def read_all(self, progress: Progress | None = None) -> None:
        """Read all images to know their digests; remote ones are then in the local cache.

        Raises
        ------
        InputError
            If a remote image cannot be fetched: it would be missing from all that follows.
        """
        files = self._files()
        contents: dict[str, Content] = {}
        with closing(read_contents(list(files.values()), progress=progress)) as found:
            for (path, file), content in zip(files.items(), found, strict=True):
                if content.is_transient and file.remote is not None:
                    raise InputError(f"cannot fetch {path!r}: {content.problem}")
                contents[path] = content
        self.__dict__["_hashes"] = hashes(contents)

    @cached_property
    def _hashes(self) -> Hashes:
        self.read_all()
        found: Hashes = self.__dict__["_hashes"]
        return found


def hashes(contents: dict[str, Content]) -> Hashes:
    """Collect the digests of inspected files, and why those without a digest cannot be read."""
    unreadable = {
        path: content.problem
        for path, content in contents.items()
        if content.digest is None and content.problem is not None
    }
    return Hashes(tuple(content.digest for content in contents.values()), unreadable)


def inspect(files: Mapping[str, ImageFile]) -> dict[str, Content]:
    """Hash image files, given by path, and try to decode them."""
    return dict(zip(files, read_contents(list(files.values()), decode=True), strict=True))


def read_contents(
    files: Sequence[ImageFile], *, decode: bool = False, progress: Progress | None = None
) -> Generator[Content, None, None]:
    """Hash image files, and also try to decode them if `decode`; yield their contents in order."""
    from joblib import cpu_count

    is_remote = any(file.remote for file in files)
    size = 1 if is_remote else _IMAGES_PER_CALL
    calls = ((files[at : at + size], decode) for at in range(0, len(files), size))
    threads = REMOTE_READERS if is_remote else cpu_count()
    done = 0
    with closing(Prefetch(_inspect, calls, n_threads=threads, ahead=READ_AHEAD)) as parts:
        for part in parts:
            done += len(part)
            if progress is not None:
                progress(done, len(files))
            yield from part


def _inspect(files: Sequence[ImageFile], decode: bool) -> list[Content]:
    return [_content(file, decode) for file in files]


def _content(file: ImageFile, decode: bool) -> Content:
    from oodzoo.data.pixels import examine  # with it Pillow, which rankings do not need

    digest = n_bytes = facts = None
    try:
        with reading(file) as content:
            digest, n_bytes = hashlib.sha256(content).hexdigest(), len(content)
            if decode and not isinstance(file, TextFile):
                facts = examine(content)
    except UnreadableImageError as error:
        return Content(digest, str(error), n_bytes, is_transient=error.transient)
    return Content(digest, None, n_bytes, facts)
