"""What fine-tuning keeps in a folder: finished runs, weights, and checkpoints.

Each is one safetensors file with a checksum, replaced as a whole. A damaged file counts as absent:
what it had is computed again.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from oodzoo.core.errors import InputError
from oodzoo.core.io import (
    explaining_disk_errors,
    is_temporary,
    json_bytes,
    remove_temporaries,
    write_bytes,
    write_json,
)
from oodzoo.store.documents import sealed_bytes, unsealed_bytes

Tensor = Any  # torch.Tensor; torch is imported when a network is
Tensors = dict[str, Tensor]
Facts = dict[str, str]
Key = TypeVar("Key", bound=tuple[Any, ...])
Run = TypeVar("Run")

FILE = "checkpoint.safetensors"


class FinishedRuns(ABC, Generic[Key, Run]):
    """Finished runs and weights of some of them: in memory and, with a folder, on the disk.

    Parameters
    ----------
    folder : path, optional
    identity : str
        Identifies network, images and settings. A folder with another identity is an error.
    """

    def __init__(self, folder: Path | None, identity: str) -> None:
        self._folder = folder
        self._found: dict[Key, Run] = {}
        self._weights: dict[Key, Tensors] = {}
        if folder is not None:
            _require_own_folder(folder, identity)

    @abstractmethod
    def _to_tensors(self, run: Run) -> tuple[Tensors, Facts]:
        """The content of a run's file."""

    @abstractmethod
    def _from_tensors(self, tensors: Tensors, facts: Facts) -> Run:
        """The run that a file has."""

    def get(self, key: Key) -> Run | None:
        """A finished run; None if it has not been done."""
        if key not in self._found and self._folder is not None:
            found = read_tensors(self._file(key, "run"))
            if found is not None:
                self._found[key] = self._from_tensors(*found)
        return self._found.get(key)

    def weights(self, key: Key) -> Tensors | None:
        """The weights kept of a run, on the CPU; None if there are none."""
        if key not in self._weights and self._folder is not None:
            found = read_tensors(self._file(key, "weights"))
            if found is not None:
                self._weights[key] = found[0]
        return self._weights.get(key)

    def keep(self, key: Key, run: Run, weights: Tensors | None) -> None:
        """Keep a run that has been done, with some of its weights; its checkpoint is removed."""
        self._found[key] = run
        if weights is not None:
            self._weights[key] = {name: each.cpu() for name, each in weights.items()}
        if self._folder is None:
            return
        if weights is not None:
            write_tensors(self._file(key, "weights"), self._weights[key], {})
        write_tensors(self._file(key, "run"), *self._to_tensors(run))
        shutil.rmtree(self._file(key, "run").with_suffix(""), ignore_errors=True)

    def forget_weights(self, key: Key) -> None:
        """Remove the weights kept of a run."""
        self._weights.pop(key, None)
        if self._folder is not None:
            self._file(key, "weights").unlink(missing_ok=True)

    def checkpoints(self, key: Key) -> Path | None:
        """The folder of the checkpoint of a run that is not finished."""
        return None if self._folder is None else self._file(key, "run").with_suffix("")

    def _file(self, key: Key, what: str) -> Path:
        assert self._folder is not None
        plain = [sorted(each) if isinstance(each, frozenset) else each for each in key]
        name = hashlib.sha256(json_bytes(plain)).hexdigest()[:16]
        return self._folder / f"{name}-{what}.safetensors"


def _require_own_folder(folder: Path, identity: str) -> None:
    """Use a folder that is empty, or that the same work was begun in."""
    name = hashlib.sha256(identity.encode()).hexdigest()[:16]
    file = folder / f"tuning-{name}.json"  # the name is what is read: no flipped bit can change it
    with explaining_disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        if file.exists():
            return
        if any(folder.glob("tuning-*.json")):
            raise InputError(
                f"{str(folder)!r} has checkpoints of another model, of other images or settings; "
                "remove it, or choose another folder"
            )
        if any(not is_temporary(each.name) for each in folder.iterdir()):
            raise InputError(
                f"{str(folder)!r} is not empty and has no checkpoints of fine-tuning; choose "
                "another folder"
            )
        write_json(file, {"identity": identity})


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


def write_tensors(file: Path, tensors: Mapping[str, Tensor], facts: Facts) -> None:
    """Write tensors and facts to a file; at any moment it has the old content or the new one."""
    from safetensors.torch import save

    content = {name: each.detach().cpu().contiguous() for name, each in tensors.items()}
    write_bytes(file, sealed_bytes(save(content, facts)))


def read_tensors(file: Path) -> tuple[Tensors, Facts] | None:
    """Read tensors and facts; None if there is no file, or it is damaged."""
    from safetensors.torch import load

    try:
        content = unsealed_bytes(file)
    except InputError:
        return None
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return load(content), header.get("__metadata__", {})
