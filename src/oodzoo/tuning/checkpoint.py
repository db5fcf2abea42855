"""Checkpoints of a training run: one safetensors file, replaced as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oodzoo._io import explaining_disk_errors, remove_temporaries, write_bytes
from oodzoo._text import one_line
from oodzoo.errors import InputError

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
    if not (folder / FILE).is_file():
        return None
    remove_temporaries(folder)
    with explaining_damage(folder / FILE):
        tensors, facts = read_tensors(folder / FILE)
        parts: dict[str, dict[str, Tensor]] = {part: {} for part in _PARTS}
        for key, tensor in tensors.items():
            part, _, name = key.partition("/")
            parts[part][name] = tensor
        return Checkpoint(int(facts["step"]), int(facts["images_per_pass"]), **parts)


def write_tensors(file: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, str]) -> None:
    """Write tensors and facts to a file; at any moment it has the old content or the new one."""
    from safetensors.torch import save

    content = {name: each.detach().cpu().contiguous() for name, each in tensors.items()}
    write_bytes(file, save(content, dict(facts)))


def read_tensors(file: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read tensors and facts."""
    from safetensors import safe_open

    with explaining_damage(file), safe_open(file, framework="pt") as opened:
        tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
        return tensors, opened.metadata() or {}


@contextmanager
def explaining_damage(file: Path) -> Iterator[None]:
    """Turn an error of reading a file into an InputError that says what to do."""
    from safetensors import SafetensorError

    try:
        yield
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        why = f"no {error}" if isinstance(error, KeyError) else one_line(error)
        raise InputError(f"{str(file)!r} is damaged: {why}; remove it to start again") from error
