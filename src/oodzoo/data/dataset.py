"""Multi-domain image data sets, whatever source their images come from."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path, PurePath
from typing import Any, Literal

from oodzoo.core.errors import InputError, NoDomainsError
from oodzoo.core.events import Progress
from oodzoo.core.text import count
from oodzoo.data.files import ImageFile, modality_of, read_bytes
from oodzoo.data.issues import (
    also_unlabelled,
    find_identical,
    identical_images,
    shared_groups,
    similar_classes,
)
from oodzoo.data.listing import (
    ImageFiles,
    Issue,
    Sample,
    stratified_sample,
    task_line,
)
from oodzoo.data.proposals import Candidate, is_request, propose_for
from oodzoo.data.sources import open_source
from oodzoo.data.sources.base import SourceOptions
from oodzoo.data.sources.folder import UnlabelledImages
from oodzoo.data.sources.targets import require_varied
from oodzoo.data.summary import Summary, inspect_images, summarise
from oodzoo.tasks import require_kind


class ImageDomains(ImageFiles):
    """Images of several domains that share one list of classes.

    Parameters
    ----------
    source : path, URL or object
        One of

        - a folder `root/domain/class/image` (images may be nested in further folders; hidden files
          and files next to the domain folders are ignored), local or as a URL such as
          `s3://bucket/photos`;
        - a table with the columns `path,domain,label` and optionally `group`: a CSV file or a
          DataFrame of pandas or polars;
        - a Parquet file, or a folder of them, with the columns `image,domain,label`;
        - WebDataset archives: a .tar file, a folder of them, or a pattern `photos-{000..003}.tar`;
        - a data set of Hugging Face `datasets`: loaded, saved to disk, or by name as
          `hf://datasets/owner/name`;
        - a data set of PyTorch, or a dict of them by domain;
        - a sequence of images (files, bytes, Pillow images, NumPy arrays) with `labels` and
          `domains`;
        - any other object with `samples` and `open(i)`, see
          :class:`oodzoo.data.sources.base.ImageSource`.
    root : path or URL, optional
        The folder that the paths of a table are relative to; by default the folder of the table.
    columns : dict of str to str, optional
        The column for `path`, `image`, `label`, `domain` or `group`, where its name is another.
        A column for `text` makes the samples texts instead of images.
        Numbers or labels may be in several columns, as "age+height".
    labels, domains, groups : sequence, optional
        One value for each image, in the order of the source, instead of those of the source.
        Labels are strings or integers (classes), numbers, lists of labels, or a matrix or data
        frame of numbers, or of zeros and ones.
        For a source with less than two domains, `domains` can be "propose" (the best column for
        domains, or else one domain); for any, "one" (one domain) or "column:NAME". See
        :mod:`oodzoo.data.proposals`.
    task : {"classification", "regression", "multilabel"}, optional
        What the labels are: classes, numbers, or several labels per image. By default, what they
        look like; an InputError asks for the task where they could be of two kinds.

    Attributes
    ----------
    name : str
        What messages call the source: its path or URL, or what kind of object it is.
    root : Path or None
        The local folder that the paths of the samples are relative to, where there is one.
    samples : tuple of Sample
        `path` (with forward slashes), `domain`, `label`, `group`; sorted by domain, label and
        path. Samples of one group (a patient, a video, a burst of photos) must stay on the same
        side of any split.
    files : tuple of ImageFile
        Where the bytes of each sample are.
    task : Task
    domains, classes : tuple of str
        Sorted. All domains share the classes, even if some have no image of a class. For other
        tasks, `classes` are the names of the numbers, in their order, or of the labels.
    domains_proposed : str or None
        The column that the domains were proposed by; None if they were given.
    proposals : tuple of Candidate
        If domains were to be proposed: all further columns, the best one first.
    metadata : dict of str to dict
        The values, by path, of columns that domains can be proposed by.

    Raises
    ------
    InputError
        If the source cannot be read, or has fewer than two domains or classes; a single domain is
        allowed if domains are to be proposed.

    Examples
    --------
    >>> import tempfile, oodzoo, oodzoo.demo
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     data = oodzoo.ImageDomains(oodzoo.demo.write_digits(folder))
    >>> len(data), len(data.domains), data.classes[:3]
    (1797, 6, ('0', '1', '2'))
    """

    def __init__(
        self,
        source: Any,
        *,
        root: str | Path | None = None,
        columns: Mapping[str, str] | None = None,
        labels: Iterable[Any] | None = None,
        domains: Iterable[Any] | str | None = None,
        groups: Iterable[Any] | None = None,
        task: str | None = None,
    ) -> None:
        kind = None if task is None else require_kind(task)
        request = domains if isinstance(domains, str) and is_request(domains) else None
        given = domains if request is None else None
        options = SourceOptions(root, columns, labels, given, groups, request is not None, kind)
        listing = open_source(source, options)
        self.domains_proposed: str | None = None
        self.proposals: tuple[Candidate, ...] = ()
        if request is not None:
            listing, self.domains_proposed, self.proposals = propose_for(listing, request)
        self.metadata = {
            column: dict(zip((s.path for s in listing.samples), values, strict=True))
            for column, values in listing.metadata.items()
        }
        self.name = listing.name
        self.root = listing.root
        self.task = listing.task
        order = sorted(range(len(listing.samples)), key=lambda i: _position(listing.samples[i]))
        self.samples: tuple[Sample, ...] = tuple(listing.samples[i] for i in order)
        self.files: tuple[ImageFile, ...] = tuple(listing.files[i] for i in order)
        self.domains = tuple(sorted({s.domain for s in self.samples}))
        self.classes = self.task.outputs or tuple(sorted({s.label for s in self.samples}))
        self._listing_issues = listing.issues
        _require_unique(self.samples, self.name)
        classes = self.classes if self.task.one_class else ()
        if self.root is not None and len(self.domains) == 1 and request is None:
            _require_no_deeper(self.samples, self.root)
        _require_two(self.name, self.domains, classes, one_domain=request is not None)
        require_varied(self.task, [s.label for s in self.samples], self.name)

    def __len__(self) -> int:
        return len(self.samples)

    def __iter__(self) -> Iterator[Sample]:
        return iter(self.samples)

    def __repr__(self) -> str:
        outputs = self.task.count_outputs(len(self.classes))
        return (
            f"ImageDomains({self.name!r}: {count(len(self), self.modality)}, "
            f"{count(len(self.domains), 'domain')}, {outputs})"
        )

    def _repr_html_(self) -> str:
        return self.summary(quick=True)._repr_html_()

    @property
    def modality(self) -> Literal["image", "text"]:
        """What the samples are: images or texts."""
        return modality_of(self.files)

    @property
    def short_name(self) -> str:
        """The last part of the name, without the folders above it."""
        name = self.name if self.root is None else str(Path(self.name).resolve())
        return PurePath(name.rstrip("/")).name or name

    def open(self, i: int) -> bytes:
        """Return the bytes of the image file of a sample."""
        return read_bytes(self.files[i])

    def counts(self) -> dict[str, dict[str, int]]:
        """Count the images by domain and class, or by domain and label, zeros included.

        Numbers to predict are known of every image.
        """
        table = {domain: dict.fromkeys(self.classes, 0) for domain in self.domains}
        for sample in self.samples:
            for name in self.task.names_of(sample.label):
                table[sample.domain][name] += 1
        return table

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the path, domain, label, group and content of every sample.

        It does not depend on the location of the data set or the order of the rows of a table.
        """
        total = hashlib.sha256(task_line(self.task))
        for sample, digest in zip(self.samples, self.digests, strict=True):
            total.update(json.dumps([*sample, digest], ensure_ascii=True).encode() + b"\n")
        return total.hexdigest()

    def summary(self, progress: Progress | None = None, *, quick: bool = False) -> Summary:
        """Summarise each domain: classes, sizes, unreadable and identical images, and problems.

        Every image is read and decoded, unless `quick`. Texts are not.

        Examples
        --------
        >>> import tempfile, oodzoo, oodzoo.demo
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     data = oodzoo.ImageDomains(oodzoo.demo.write_digits(folder))
        >>> print(data.summary(quick=True))
        domain   images  classes  per class  shift
        chalk       299    10/10      29–31    1 %
        collage     299    10/10      29–31    1 %
        marker      300    10/10      29–31    1 %
        paper       299    10/10      29–31    1 %
        pencil      300    10/10      29–31    1 %
        tilted      300    10/10      29–31    1 %
        all       1,797    10/10    174–183
        """
        inspection = None
        if not quick and self.modality == "image":
            inspection = inspect_images(self.files, progress)
            self._forget_hashes()
            if not any(self.files[at].remote is not None for at in inspection.problems):
                self._hashes = inspection.hashes([s.path for s in self.samples])
        return summarise(
            self.samples, self.files, self.counts(), inspection, self._listing_issues, self.task
        )

    def check(self, progress: Progress | None = None) -> list[Issue]:
        """Decode every image and list the problems of the data set, an issue for each kind.

        Among them are unreadable images, and identical images in several domains, which make
        leave-one-domain-out accuracies too optimistic.
        """
        return list(self.summary(progress).issues)

    def similar_classes(self) -> list[Issue]:
        """List classes whose names look alike: a typing mistake makes two classes of one."""
        return list(similar_classes(self.counts())) if self.task.one_class else []

    def leaks(self, unlabelled: Sequence[UnlabelledImages] = ()) -> list[Issue]:
        """List identical images and groups that occur in several domains.

        Also list the images of this data set that are in an unlabelled domain, one issue for each
        such domain; the paths of the issue are relative to `root`.
        """
        found = [
            *shared_groups(self.samples),
            *identical_images(self.samples, find_identical(self.digests)),
            *also_unlabelled(self.samples, self.digests, unlabelled),
        ]
        return [issue for issue in found if issue.kind == "leak"]

    def sample(self, n: int, *, seed: int = 0) -> ImageDomains:
        """Return a sample of about n images, stratified by domain and label.

        Numbers are stratified by quantiles, several labels by the rarest one of each image. A
        larger n gives a superset; groups are kept whole, so with groups there may be more.
        """
        part = self.only(stratified_sample(self.samples, n, seed, self.task))
        part.domains = self.domains
        return part

    def only(self, rows: Sequence[int]) -> ImageDomains:
        """Return some of the samples, by position; the classes stay, domains without any go."""
        part = copy.copy(self)
        part.samples = tuple(self.samples[at] for at in rows)
        part.files = tuple(self.files[at] for at in rows)
        part.domains = tuple(sorted({s.domain for s in part.samples}))
        part._forget_hashes()
        return part

    def with_domains(self, domains: Mapping[str, str], proposed: str | None) -> ImageDomains:
        """Return the data set with other domains, by path; those not named stay.

        `proposed` says what the domains were proposed by; None for given domains.
        """
        part = copy.copy(self)
        changed = [s._replace(domain=domains.get(s.path, s.domain)) for s in self.samples]
        order = sorted(range(len(changed)), key=lambda at: _position(changed[at]))
        part.samples = tuple(changed[at] for at in order)
        part.files = tuple(self.files[at] for at in order)
        part.domains = tuple(sorted({s.domain for s in part.samples}))
        part.domains_proposed = proposed
        part._forget_hashes()
        return part

    def _files(self) -> dict[str, ImageFile]:
        return {s.path: file for s, file in zip(self.samples, self.files, strict=True)}

    def _forget_hashes(self) -> None:
        for cached in ("_hashes", "fingerprint"):
            self.__dict__.pop(cached, None)


def _position(sample: Sample) -> tuple[str, str, str]:
    return sample.domain, sample.label, sample.path


def _require_unique(samples: Sequence[Sample], name: str) -> None:
    seen: set[str] = set()
    for sample in samples:
        if sample.path in seen:
            raise InputError(f"{name!r} lists {sample.path!r} twice; give each image once")
        seen.add(sample.path)


def _require_no_deeper(samples: Sequence[Sample], root: Path) -> None:
    """Reject images of one domain most of which are below folders of their class."""
    domain = samples[0].domain
    deeper = [s.path for s in samples if s.path.startswith(f"{domain}/") and s.path.count("/") > 2]
    if 2 * len(deeper) > len(samples):
        raise NoDomainsError(
            f"{str(root)!r} has one domain, {domain!r}, and {len(deeper):,} of its "
            f"{count(len(samples), 'image')} are one level or more too low, as {deeper[0]!r}; "
            f"expected root/domain/class/image: give {str(root / domain)!r}?"
        )


def _require_two(
    source: str, domains: Sequence[str], classes: Sequence[str], *, one_domain: bool
) -> None:
    advice = (
        ": folders root/domain/class/image, a column domain, or domains=; or have them proposed "
        "with --domains propose (domains='propose')"
    )
    if not domains:
        raise InputError(f"{source!r} has no samples")
    for what, names in (("domain", domains), ("class", classes)):
        if len(names) == 1 and not (one_domain and what == "domain"):
            kind = NoDomainsError if what == "domain" else InputError
            raise kind(
                f"{source!r} has one {what}, {names[0]!r}; at least two are needed"
                + (advice if what == "domain" else "")
            )
