"""A few small images of each domain, as addresses that hold them."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from oodzoo.report.blocks import Gallery, Picture

if TYPE_CHECKING:
    from oodzoo.data.dataset import ImageDomains
    from oodzoo.data.listing import Sample

PER_DOMAIN = 6
IN_ALL = 72
SIDE = 72


def thumbnails(path: str | None, domains: Sequence[str]) -> Gallery:
    """Of each domain some images of different classes; nothing if the data are not there now."""
    from oodzoo.data.dataset import ImageDomains
    from oodzoo.errors import InputError

    if not path or not Path(path).exists():
        return Gallery(())
    try:
        dataset = ImageDomains(path)
    except InputError:
        return Gallery(())
    several = max(1, min(PER_DOMAIN, IN_ALL // max(len(domains), 1)))
    rows = []
    for domain in domains:
        pictures = _pictures(dataset, domain, several)
        if pictures:
            rows.append((domain, pictures))
    return Gallery(rows)


def _pictures(dataset: ImageDomains, domain: str, several: int) -> list[Picture]:
    from oodzoo.data.images import UnreadableImageError

    pictures: list[Picture] = []
    for sample in _spread([s for s in dataset.samples if s.domain == domain], several):
        if len(pictures) == several:
            break
        try:
            pictures.append(Picture(_address(dataset.file(sample)), f"{sample.label}, {domain}"))
        except UnreadableImageError:
            continue
    return pictures


def _spread(samples: Sequence[Sample], several: int) -> list[Sample]:
    """Of classes far apart in the list, one each before a second of any."""
    by_class: dict[str, list[Sample]] = {}
    for sample in samples:
        by_class.setdefault(sample.label, []).append(sample)
    groups = list(by_class.values())
    step = max(1, len(groups) // several)
    groups = [groups[at] for start in range(step) for at in range(start, len(groups), step)]
    return [group[at] for at in range(several) for group in groups if at < len(group)]


def _address(path: Path) -> str:
    from PIL import Image, ImageOps

    from oodzoo.data.images import read

    image = read(path)
    # tiny images keep their pixels
    way = Image.Resampling.NEAREST if min(image.size) < SIDE else Image.Resampling.LANCZOS
    small = ImageOps.fit(image, (SIDE, SIDE), way)
    content = io.BytesIO()
    small.save(content, "JPEG", quality=72, optimize=True)
    return f"data:image/jpeg;base64,{base64.b64encode(content.getvalue()).decode()}"
