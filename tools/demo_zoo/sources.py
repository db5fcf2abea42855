"""Training data: draw originals, then render one or more views of each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from tools.demo_zoo.appearance import Appearance, render
from tools.demo_zoo.glyphs import Atlas, glyph_atlas, letter_atlas, script_atlas
from tools.demo_zoo.photos import Photos
from tools.demo_zoo.shapes import shape_atlas
from torch import Tensor

__all__ = ["SOURCES", "Inked", "Source", "open_source"]


class Source(Protocol):
    """A data set of labelled originals, of which each view is a new random rendering."""

    @property
    def classes(self) -> int: ...

    def draw(self, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]: ...

    def view(self, originals: Tensor, generator: torch.Generator) -> Tensor: ...


@dataclass(frozen=True)
class Inked:
    """Glyphs or shapes, rendered with an :class:`Appearance`."""

    ink: Tensor
    labels: Tensor
    classes: int
    appearance: Appearance

    def draw(self, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        which = torch.randint(len(self.ink), (n,), device=self.ink.device, generator=generator)
        return self.ink[which], self.labels[which]

    def view(self, originals: Tensor, generator: torch.Generator) -> Tensor:
        return render(originals, self.appearance, generator)


SOURCES: dict[str, str] = {
    "letters": "Latin letters of the fonts below, 37 classes",
    "glyphs": "printed digits and Latin letters of the fonts below, 47 classes",
    "scripts": "hiragana, Armenian, Devanagari, Georgian, Hebrew and Thai letters, 279 classes",
    "shapes": "synthetic geometric figures, 12 classes",
    "photos": "patches of scikit-learn's two sample photographs",
    "none": "nothing",
}
"""Descriptions of the sources by name."""


def open_source(
    name: str, appearance: Appearance | None, fonts: Path, device: torch.device
) -> tuple[Source, Inked | None]:
    """Load the source to train on, and the part held out for measuring accuracy."""
    if name == "photos":
        return Photos.load(device), None
    if appearance is None:
        raise ValueError(f"the source {name!r} needs an appearance")
    atlases = {"letters": letter_atlas, "glyphs": glyph_atlas, "scripts": script_atlas}
    atlas: Atlas = atlases[name](fonts) if name in atlases else shape_atlas()
    ink = torch.from_numpy(atlas.ink).to(device).float().div(255.0).unsqueeze(1)
    labels, held_out = torch.from_numpy(atlas.labels), torch.from_numpy(atlas.held_out)

    def part(mask: Tensor) -> Inked:
        return Inked(ink[mask.to(device)], labels[mask].to(device), atlas.classes, appearance)

    return part(~held_out), part(held_out)
