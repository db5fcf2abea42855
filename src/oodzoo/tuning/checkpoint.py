"""Checkpoints of a training run: one safetensors file with a checksum, replaced as a whole.

A damaged file counts as absent: what it had is computed again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oodzoo._io import explaining_disk_errors, remove_temporaries, write_bytes
from oodzoo.errors import InputError
from oodzoo.store.documents import sealed_bytes, unsealed_bytes

Tensor = Any
FILE = "checkpoint.safetensors"


@dataclass(frozen=True)
class Checkpoint:
    """State of a run between two steps.

    Attributes
    ----------
    step : int
        Number of the next step.
    images_per_pass : int
    weights, moments, valley : dict of str to Tensor
        Trained weights, AdamW's moments, and what the average needs.
    """

    step: int
    images_per_pass: int
    weights: dict[str, Tensor]
    moments: dict[str, Tensor]
    valley: dict[str, Tensor]


_PARTS = ("weights", "moments", "valley")


def write_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint into a folder, in place of an earlier one."""
    tensors = {
        f"{part}/{name}": tensor
        for part in _PARTS
        for name, tensor in getattr(checkpoint, part).items()
    }
    numbers = {"step": checkpoint.step, "images_per_pass": checkpoint.images_per_pass}
    with explaining_disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        write_tensors(folder / FILE, tensors, {k: str(v) for k, v in numbers.items()})


def read_checkpoint(folder: Path) -> Checkpoint | None:
    """Read the checkpoint in a folder; None if there is none."""
    remove_temporaries(folder)
    found = read_tensors(folder / FILE)
    if found is None:
        return None
    tensors, facts = found
    parts: dict[str, dict[str, Tensor]] = {part: {} for part in _PARTS}
    for key, tensor in tensors.items():
        part, _, name = key.partition("/")
        parts[part][name] = tensor
    return Checkpoint(int(facts["step"]), int(facts["images_per_pass"]), **parts)


def write_tensors(file: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, str]) -> None:
    """Write tensors and facts to a file; at any moment it has the old content or the new one."""
    from safetensors.torch import save

    content = {name: each.detach().cpu().contiguous() for name, each in tensors.items()}
    write_bytes(file, sealed_bytes(save(content, dict(facts))))


def read_tensors(file: Path) -> tuple[dict[str, Tensor], dict[str, str]] | None:
    """Read tensors and facts; None if there is no file, or it is damaged."""
    from safetensors.torch import load

    try:
        content = unsealed_bytes(file)
    except InputError:
        return None
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return load(content), header.get("__metadata__", {})
