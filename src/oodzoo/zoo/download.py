"""What must be downloaded before the models of a zoo can run."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oodzoo.core.errors import InputError
from oodzoo.core.text import count, file_size
from oodzoo.zoo.layers import by_network, network_key
from oodzoo.zoo.listing import ListedModel
from oodzoo.zoo.spec import ModelSpec, local_path


@dataclass(frozen=True)
class Download:
    """Weights that are not on this machine yet.

    Attributes
    ----------
    models : tuple of str
        The models to download; of the layers of one network, the first.
    size : int
        Size of their weights in bytes, as far as it is known; partly an estimate.
    unknown : tuple of str
        Those of them whose size is unknown.
    n_local : int
        Number of the other models; layers of one network count once.
    folders : dict of Path to int
        Bytes to download to each cache.
    """

    models: tuple[str, ...]
    size: int
    unknown: tuple[str, ...]
    n_local: int
    folders: dict[Path, int]

    def __str__(self) -> str:
        """One line: how many models, how large, and how many need no download."""
        parts = [f"{count(len(self.models), 'model')} to download"]
        if len(self.unknown) < len(self.models):
            parts.append(f"about {file_size(self.size)}")
        if self.unknown:
            parts.append(f"size of {count(len(self.unknown), 'model')} unknown")
        here = f" ({self.n_local:,} more on this machine)" if self.n_local else ""
        return ", ".join(parts) + here

    def to_dict(self) -> dict[str, Any]:
        return {
            "models": list(self.models),
            "size": self.size,
            "unknown": list(self.unknown),
            "cached": self.n_local,
        }

    def require_space(self) -> None:
        """Reject a download that is larger than the free space of a disk."""
        needed: dict[int, int] = defaultdict(int)
        for folder, size in self.folders.items():
            disk = _existing(folder)
            needed[disk.stat().st_dev] += size
            free = shutil.disk_usage(disk).free
            if needed[disk.stat().st_dev] > free:
                raise InputError(
                    f"the models to download need about {file_size(self.size)}, but the disk of "
                    f"{str(folder)!r} has {file_size(free)} free; set HF_HOME and TORCH_HOME to "
                    "another disk, or leave out models, for example with --max-parameters"
                )


def plan_download(models: Sequence[ModelSpec | ListedModel]) -> Download:
    """Find out which models must be downloaded, and how large they are.

    Layers of one network are one download, and random weights need none. Models whose package is
    not installed are left out.

    Examples
    --------
    >>> import oodzoo
    >>> plan_download(oodzoo.load_zoo("demo")).models
    ()
    """
    folders: dict[Path, int] = defaultdict(int)
    missing, unknown, n_local = [], [], 0
    listed = [each if isinstance(each, ListedModel) else ListedModel(each) for each in models]
    for model, *_ in by_network(listed, lambda each: network_key(each.spec)):
        # Large files are not read only to be measured.
        if local_path(model.spec) is not None or model.spec.pretrained is False:
            n_local += 1
            continue
        weights = model.weights
        if weights is None:
            continue
        if weights.is_local:
            n_local += 1
            continue
        missing.append(model.name)
        if weights.size is None:
            unknown.append(model.name)
        else:
            folders[weights.folder] += weights.size
    size = sum(folders.values())
    return Download(tuple(missing), size, tuple(unknown), n_local, dict(folders))


def _existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that exists."""
    return next(path for path in (folder, *folder.parents) if path.exists())
