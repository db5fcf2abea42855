"""Finished training runs, kept on disk, so that fine-tuning that was stopped continues.

Each file is a safetensors file with a checksum, replaced as a whole. A damaged file counts as
absent: what it had is computed again.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from oodzoo.core.errors import InputError
from oodzoo.core.io import (
    explaining_disk_errors,
    is_temporary,
    json_bytes,
    write_bytes,
    write_json,
)
from oodzoo.linear.heads.domainbed.protocol import Hyperparameters, Record
from oodzoo.store.format import sealed_bytes, unsealed_bytes

Tensor = Any  # torch.Tensor
Parts = dict[str, dict[str, Tensor]]
"""Tensors by part and name, such as weights by the moment of the run that they are of."""

RunKey = tuple[Any, ...]
"""Domains that a run leaves out, and its settings."""

DomainOutputs = dict[str, NDArray[Any]]
"""Outputs by domain (:class:`oodzoo.tasks.Task`): (candidates, n, C), or (n, C) of one of
them."""

CHECKPOINT = "checkpoint.safetensors"


@dataclass(frozen=True)
class TrainingRun:
    """A finished training run.

    Attributes
    ----------
    outputs : dict
        Outputs of all candidates, or at all checkpoints, for all images of each domain left out.
    held_out : dict
        The same for the held-out images of each training domain; none under DomainBed's protocol.
    seconds : float
        Time of the training.
    records : list of Record
        Accuracies at each checkpoint, under DomainBed's protocol.
    """

    outputs: DomainOutputs
    held_out: DomainOutputs
    seconds: float
    records: list[Record] = field(default_factory=list)


class TrainingRuns:
    """Finished runs and weights of some of them: in memory and, with a folder, on the disk.

    Parameters
    ----------
    folder : path, optional
    identity : list
        Identifies network, images and settings. A folder with another identity is an error.
    """

    def __init__(self, folder: Path | None, identity: list[Any]) -> None:
        self._folder = folder
        self._found: dict[RunKey, TrainingRun] = {}
        self._weights: dict[RunKey, Parts] = {}
        if folder is not None:
            _require_own_folder(folder, hashlib.sha256(json_bytes(identity)).hexdigest())

    def get(self, key: RunKey) -> TrainingRun | None:
        """A finished run; None if it has not been done."""
        if key not in self._found and self._folder is not None:
            found = read_tensors(self._file(key, "run"))
            if found is not None:
                parts, facts = found
                outputs, held_out = (
                    {domain: each.numpy() for domain, each in parts.get(part, {}).items()}
                    for part in ("outputs", "held_out")
                )
                records = [_record(each) for each in facts["records"]]
                self._found[key] = TrainingRun(outputs, held_out, facts["seconds"], records)
        return self._found.get(key)

    def weights(self, key: RunKey) -> Parts | None:
        """The weights kept of a run, on the CPU; None if there are none."""
        if key not in self._weights and self._folder is not None:
            found = read_tensors(self._file(key, "weights"))
            if found is not None:
                self._weights[key] = found[0]
        return self._weights.get(key)

    def keep(self, key: RunKey, run: TrainingRun, weights: Parts | None) -> None:
        """Keep a run that has been done, with some of its weights; its checkpoint is removed."""
        import torch

        self._found[key] = run
        if weights is not None:
            self._weights[key] = {
                part: {name: each.cpu() for name, each in named.items()}
                for part, named in weights.items()
            }
        if self._folder is None:
            return
        if weights is not None:
            write_tensors(self._file(key, "weights"), self._weights[key], {})
        parts = {
            part: {domain: torch.from_numpy(each) for domain, each in outputs.items()}
            for part, outputs in (("outputs", run.outputs), ("held_out", run.held_out))
        }
        facts = {"seconds": run.seconds, "records": [asdict(record) for record in run.records]}
        write_tensors(self._file(key, "run"), parts, facts)
        shutil.rmtree(self._file(key, "run").with_suffix(""), ignore_errors=True)

    def forget_weights(self, key: RunKey) -> None:
        """Remove the weights kept of a run."""
        self._weights.pop(key, None)
        if self._folder is not None:
            self._file(key, "weights").unlink(missing_ok=True)

    def checkpoints(self, key: RunKey) -> Path | None:
        """The folder of the checkpoint of a run that is not finished."""
        return None if self._folder is None else self._file(key, "run").with_suffix("")

    def _file(self, key: RunKey, what: str) -> Path:
        assert self._folder is not None
        plain = [sorted(each) if isinstance(each, frozenset) else each for each in key]
        name = hashlib.sha256(json_bytes(plain)).hexdigest()[:16]
        return self._folder / f"{name}-{what}.safetensors"


def _record(document: dict[str, Any]) -> Record:
    inside, outside = (
        {int(domain): value for domain, value in document[part].items()}
        for part in ("inside", "outside")
    )
    changed = {
        "test_domains": tuple(document["test_domains"]),
        "hyperparameters": Hyperparameters(**document["hyperparameters"]),
        "inside": inside,
        "outside": outside,
    }
    return Record(**document | changed)


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


def write_tensors(
    file: Path, parts: Mapping[str, Mapping[str, Tensor]], facts: dict[str, Any]
) -> None:
    """Write tensors and facts to a file; at any moment it has the old content or the new one."""
    from safetensors.torch import save

    content = {
        f"{part}/{name}": each.detach().cpu().contiguous()
        for part, named in parts.items()
        for name, each in named.items()
    }
    with explaining_disk_errors(file.parent):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(file, sealed_bytes(save(content, {"facts": json.dumps(facts)})))


def read_tensors(file: Path) -> tuple[Parts, dict[str, Any]] | None:
    """Read tensors and facts; None if there is no file, or it is damaged."""
    from safetensors.torch import load

    try:
        content = unsealed_bytes(file)
    except InputError:
        return None
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    parts: Parts = {}
    for key, tensor in load(content).items():
        part, _, name = key.partition("/")
        parts.setdefault(part, {})[name] = tensor
    return parts, json.loads(header["__metadata__"]["facts"])
