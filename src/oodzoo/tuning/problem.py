"""The images and labels that a network is tuned on."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodzoo.core.errors import InputError
from oodzoo.core.io import json_bytes
from oodzoo.data.dataset import ImageDomains
from oodzoo.linear.heads.domainbed.protocol import split
from oodzoo.tasks import Kind
from oodzoo.tuning.images import TrainingImages
from oodzoo.zoo.preprocessing import Geometry

Rows = NDArray[np.int64]

FEWEST_IMAGES = 5
"""Fewest images of a domain of which a fifth can be held out."""


@dataclass(frozen=True)
class Problem:
    """Images of several domains with their labels.

    Attributes
    ----------
    images : TrainingImages
    labels : array (n,) or (n, n_outputs)
        Numbers of classes; or numbers, or zeros and ones.
    numbers : array (n,)
        Number of the domain of each image.
    domains : tuple of str
        Names of the domains.
    groups : sequence of str or None
        Group of each image, None for an image without one.
    kind : {"classification", "regression", "multilabel"}
    n_outputs : int
        Number of classes, numbers or labels.
    fingerprint : str
        Identifies images and labels.
    """

    images: TrainingImages
    labels: NDArray[Any]
    numbers: NDArray[np.int64]
    domains: tuple[str, ...]
    groups: Sequence[str | None]
    kind: Kind
    n_outputs: int
    fingerprint: str

    def rows(self, domain: str) -> Rows:
        """The images of a domain."""
        return np.flatnonzero(self.numbers == self.domains.index(domain))

    def split(self, domain: str, seed: int) -> tuple[Rows, Rows]:
        """Divide the images of a domain, as DomainBed does: for training, and a fifth held out."""
        rows = self.rows(domain)
        groups = [self.groups[row] for row in rows]
        require_images_to_hold_out(domain, groups)
        parts = split(len(rows), seed, self.domains.index(domain), groups)
        return rows[parts.inside], rows[parts.outside]

    def left(self, without: Sequence[str]) -> tuple[str, ...]:
        """The domains without some of them."""
        return tuple(domain for domain in self.domains if domain not in without)


def require_images_to_hold_out(domain: str, groups: Sequence[str | None]) -> None:
    """Raise an InputError if a fifth of the images of a domain, given their groups, is nothing."""
    if len(groups) > 1 and groups[0] is not None and len(set(groups)) == 1:
        raise InputError(
            f"all images of the domain {domain!r} are of one group, so that none can be held out"
        )
    grouped = any(group is not None for group in groups)  # the smallest group is held out
    if len(groups) < (2 if grouped else FEWEST_IMAGES):
        raise InputError(
            f"the domain {domain!r} has too few images to hold out a fifth of them: {len(groups)}; "
            f"at least {FEWEST_IMAGES} are needed"
        )


@contextmanager
def opened(data: ImageDomains, geometry: Geometry) -> Iterator[Problem]:
    """Open the images of a data set, for a network with this geometry."""
    classes = {name: number for number, name in enumerate(data.classes)}
    texts = [sample.label for sample in data.samples]
    if data.task.is_classification:
        labels: NDArray[Any] = np.array([classes[text] for text in texts], np.int64)
    else:
        labels = data.task.decode(texts)
    positions = {name: number for number, name in enumerate(data.domains)}
    groups = [sample.group for sample in data.samples]
    identity = [data.fingerprint, list(data.classes), groups]
    with TrainingImages(data.files, geometry) as images:
        yield Problem(
            images=images,
            labels=labels,
            numbers=np.array([positions[sample.domain] for sample in data.samples], np.int64),
            domains=data.domains,
            groups=groups,
            kind=data.task.kind,
            n_outputs=len(data.classes),
            fingerprint=hashlib.sha256(json_bytes(identity)).hexdigest(),
        )
