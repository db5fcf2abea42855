"""Multi-domain image data sets: folders `root/domain/class/image`, and tables."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from oodzoo.data import images
from oodzoo.data.listing import Listing, Sample, list_folder, list_table
from oodzoo.data.sampling import stratified_sample
from oodzoo.errors import InputError
from oodzoo.events import Progress


@dataclass(frozen=True)
class Issue:
    """Something about a data set that a person should know before trusting a result."""

    kind: str
    message: str
    paths: tuple[str, ...] = ()


_TOGETHER = 16
"""Images that a thread takes at a time: handing out work costs time, too."""


class ImageDomains:
    """Images of several domains that share one list of classes.

    Parameters
    ----------
    source : path
        A folder `root/domain/class/image` (images may lie any depth below their class; hidden
        files and plain files beside the domains are ignored), or a CSV table with the columns
        `path,domain,label` and optionally `group`.
    root : path, optional
        For a table: the folder its paths are relative to. By default the table's own folder.

    Attributes
    ----------
    samples : tuple of Sample
        `path` (relative to `root`, with forward slashes), `domain`, `label`, `group`; ordered by
        domain, label, path, whatever the order on disk or in the table. Samples that share a
        group (a patient, a video, a burst of a camera) belong on one side of any split.
    domains, classes : tuple of str
        Sorted; every domain is described by the same classes, also by those it lacks.

    Raises
    ------
    InputError
        If there are fewer than two domains, or the source cannot be read as one of the two forms.

    Examples
    --------
    >>> import tempfile, oodzoo, oodzoo.demo
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     data = oodzoo.ImageDomains(oodzoo.demo.write_digits(folder))
    >>> len(data), len(data.domains), data.classes[:3]
    (1797, 6, ('0', '1', '2'))
    """

    def __init__(self, source: str | Path, *, root: str | Path | None = None) -> None:
        self.source = Path(source)
        try:
            listing = _list(self.source, Path(root) if root is not None else None)
        except OSError as error:
            where = str(error.filename or self.source)
            raise InputError(f"cannot read {where!r}: {error.strerror}") from error
        self.root = listing.root
        self.samples: tuple[Sample, ...] = tuple(
            sorted(listing.samples, key=lambda s: (s.domain, s.label, s.path))
        )
        self.domains = tuple(sorted({s.domain for s in self.samples}))
        self.classes = tuple(sorted({s.label for s in self.samples}))
        self._listing_issues = [Issue(kind, text, paths) for kind, text, paths in listing.odd]
        _require_two(self.source, self.domains, self.classes)

    def __len__(self) -> int:
        return len(self.samples)

    def __iter__(self) -> Iterator[Sample]:
        return iter(self.samples)

    def __repr__(self) -> str:
        return (
            f"ImageDomains({str(self.source)!r}: {len(self)} images, "
            f"{len(self.domains)} domains, {len(self.classes)} classes)"
        )

    def file(self, sample: Sample) -> Path:
        """Where the image of a sample lies."""
        return self.root / sample.path

    def counts(self) -> dict[str, dict[str, int]]:
        """Number of images by domain and class, zeros included."""
        table = {domain: dict.fromkeys(self.classes, 0) for domain in self.domains}
        for sample in self.samples:
            table[sample.domain][sample.label] += 1
        return table

    @cached_property
    def digests(self) -> tuple[str | None, ...]:
        """SHA-256 of each image file's content, None where the file cannot be read."""
        return tuple(c.digest for c in self._contents(_digest, None))

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over every sample's path, domain, label, group and content.

        It does not depend on where the data set lies or on the order of a table's rows.
        """
        total = hashlib.sha256()
        for sample, digest in zip(self.samples, self.digests, strict=True):
            total.update(json.dumps([*sample, digest], ensure_ascii=True).encode() + b"\n")
        return total.hexdigest()

    def check(self, progress: Progress | None = None) -> list[Issue]:
        """Decode every image and list what is odd about the data set.

        Unreadable images are named; so are images that are byte-identical across domains, since
        they make any leave-one-domain-out figure look better than it is.
        """
        contents = self._contents(_inspect, progress)
        self.__dict__["digests"] = tuple(c.digest for c in contents)  # the cached property
        return [
            *self.quick_check(),
            *_unreadable(self.samples, contents),
            *_identical(self.samples, self.digests),
        ]

    def quick_check(self) -> list[Issue]:
        """What is odd about the data set as far as names and counts tell."""
        return [*self._listing_issues, *_uneven(self.counts()), *_parted_groups(self.samples)]

    def leaks(self) -> list[Issue]:
        """What domains share that they must not: byte-identical images, and groups."""
        found = [*_parted_groups(self.samples), *_identical(self.samples, self.digests)]
        return [issue for issue in found if issue.kind == "leak"]

    def sample(self, n: int, *, seed: int = 0) -> ImageDomains:
        """A data set of about n of these images, shared out over domains and classes.

        A larger n gives a superset; groups are taken whole, so with groups there can be more.
        """
        part = copy.copy(self)
        part.samples = tuple(self.samples[at] for at in stratified_sample(self.samples, n, seed))
        for cached in ("digests", "fingerprint"):
            part.__dict__.pop(cached, None)
        return part

    def _contents(
        self, task: Callable[[Path], _Content], progress: Progress | None
    ) -> list[_Content]:
        from joblib import Parallel, cpu_count, delayed

        parallel = Parallel(n_jobs=cpu_count(), prefer="threads", return_as="generator")
        files = [self.file(sample) for sample in self.samples]
        together = [files[top : top + _TOGETHER] for top in range(0, len(files), _TOGETHER)]
        contents: list[_Content] = []
        for part in parallel(delayed(_each)(task, some) for some in together):
            contents += part
            if progress is not None:
                progress(len(contents), len(self))
        return contents


class _Content(NamedTuple):
    digest: str | None
    problem: str | None


def _each(task: Callable[[Path], _Content], files: list[Path]) -> list[_Content]:
    return [task(file) for file in files]


def _digest(path: Path) -> _Content:
    try:
        return _Content(hashlib.sha256(images.read_bytes(path)).hexdigest(), None)
    except images.UnreadableImageError as error:
        return _Content(None, str(error))


def _inspect(path: Path) -> _Content:
    digest = None
    try:
        content = images.read_bytes(path)
        digest = hashlib.sha256(content).hexdigest()
        images.decode(content)
    except images.UnreadableImageError as error:
        return _Content(digest, str(error))
    return _Content(digest, None)


def _list(source: Path, root: Path | None) -> Listing:
    if not source.exists():
        raise InputError(f"{str(source)!r} does not exist; give a folder of domains or a CSV table")
    if source.is_dir():
        if root is not None:
            raise InputError(f"root {str(root)!r} goes with a table; {str(source)!r} is a folder")
        return list_folder(source)
    if source.suffix.lower() != ".csv":
        raise InputError(
            f"{str(source)!r} is a file; give a folder root/domain/class/image "
            "or a .csv table with the columns path,domain,label"
        )
    return list_table(source, root if root is not None else source.parent)


def _require_two(source: Path, domains: Sequence[str], classes: Sequence[str]) -> None:
    for what, names in (("domain", domains), ("class", classes)):
        if len(names) < 2:
            raise InputError(
                f"{str(source)!r} has one {what}, {names[0]!r}; at least two are needed"
                + (": expected root/domain/class/image" if what == "domain" else "")
            )


def _uneven(counts: dict[str, dict[str, int]]) -> Iterator[Issue]:
    for domain, row in counts.items():
        present = [label for label, n in row.items() if n]
        absent = [label for label, n in row.items() if not n]
        if len(present) == 1:
            yield Issue(
                "one class", f"domain {domain!r} has images of one class only, {present[0]!r}"
            )
        elif absent:
            yield Issue(
                "missing class", f"domain {domain!r} has no image of {_names(absent, 'class')}"
            )


def _parted_groups(samples: Sequence[Sample]) -> Iterator[Issue]:
    domains_of: dict[str, set[str]] = {}
    for sample in samples:
        if sample.group is not None:
            domains_of.setdefault(sample.group, set()).add(sample.domain)
    shared = sorted(group for group, domains in domains_of.items() if len(domains) > 1)
    if shared:
        yield Issue(
            "leak",
            f"LEAK between domains: {_names(shared, 'group')} in more than one domain; leave-one-"
            "domain-out figures will be too good (if the numbering restarts, make groups unique)",
        )


def _unreadable(samples: Sequence[Sample], contents: Sequence[_Content]) -> Iterator[Issue]:
    for sample, content in zip(samples, contents, strict=True):
        if content.problem is not None:
            yield Issue("unreadable", f"{sample.path!r}: {content.problem}", (sample.path,))


def _identical(samples: Sequence[Sample], digests: Sequence[str | None]) -> Iterator[Issue]:
    copies: dict[str, list[Sample]] = {}
    for sample, digest in zip(samples, digests, strict=True):
        if digest is not None and digest != _EMPTY:
            copies.setdefault(digest, []).append(sample)
    for same in copies.values():
        paths = tuple(s.path for s in same)
        if len({s.domain for s in same}) > 1:
            yield Issue(
                "leak",
                f"LEAK between domains: {_names(paths, 'image')} byte-identical; "
                "leave-one-domain-out figures will be too good",
                paths,
            )
        elif len({s.label for s in same}) > 1:
            yield Issue(
                "two labels", f"{_names(paths, 'image')} byte-identical with other labels", paths
            )


_EMPTY = hashlib.sha256(b"").hexdigest()


def _names(names: Sequence[str], noun: str, most: int = 5) -> str:
    """`class 'a'`, `3 classes ('a', 'b', 'c')`, `9 classes ('a', 'b', 'c', 'd', 'e', …)`."""
    if len(names) == 1:
        return f"{noun} {names[0]!r}"
    plural = noun + ("es" if noun.endswith("s") else "s")
    shown = ", ".join(map(repr, names[:most])) + (", …" if len(names) > most else "")
    return f"{len(names)} {plural} ({shown})"
