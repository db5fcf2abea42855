"""The protocol of a source of images with labels and domains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from oodzoo.data.listing import Sample


@runtime_checkable
class ImageSource(Protocol):
    """Images with labels and domains; :class:`oodzoo.ImageDomains` takes any object of this form.

    Attributes
    ----------
    samples : sequence of Sample
        Path (unique, for messages and the order), domain, label and group of each image.

    Examples
    --------
    >>> from oodzoo.data.listing import Sample
    >>> class Pixels:
    ...     samples = [Sample(f"{n}.ppm", f"d{n % 2}", f"c{n // 2 % 2}") for n in range(8)]
    ...     def open(self, i):
    ...         return b"P6 1 1 255 " + bytes([i, i, i])
    >>> import oodzoo
    >>> oodzoo.ImageDomains(Pixels())
    ImageDomains('Pixels': 8 images, 2 domains, 2 classes)
    """

    samples: Sequence[Sample]

    def open(self, i: int, /) -> bytes:
        """Return the bytes of the image file of `samples[i]`; called from several threads."""
