"""What is known of a model before it is loaded: filters of zoos, and what must be downloaded."""

from __future__ import annotations

import shutil
import warnings
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from oodzoo.core.errors import InputError
from oodzoo.core.events import Progress
from oodzoo.core.limits import Rule, apply_rules, licence_rule, parameter_rule
from oodzoo.core.text import count, file_size
from oodzoo.zoo.model import ModelSize, Weights
from oodzoo.zoo.sources import ModelSource, get_source, local_path
from oodzoo.zoo.spec import ModelSpec, by_network, network_key

T = TypeVar("T")


@dataclass(frozen=True)
class ListedModel:
    """A model that is not loaded. What is not known is None; it is found out when asked for."""

    spec: ModelSpec

    @property
    def name(self) -> str:
        return self.spec.name

    @cached_property
    def licence(self) -> str | None:
        """That of the zoo, or what the source states."""
        return self.spec.licence or self._ask(lambda source: source.licence(self.spec))

    @property
    def parameters(self) -> int | None:
        """Number of parameters of the parts in use."""
        if self.spec.parameters is not None:
            return self.spec.parameters
        return None if self._measured is None else self._measured.parameters

    @property
    def is_local(self) -> bool | None:
        """Whether the weights are on this machine; random ones are drawn on it."""
        if self.spec.pretrained is False:
            return True
        return None if self._weights is None else self._weights.is_local

    @property
    def size(self) -> int | None:
        """Size of the weights in bytes: of the file if it is known, else an estimate."""
        if self._weights is not None and self._weights.size is not None:
            return self._weights.size
        return None if self._measured is None else self._measured.size

    @property
    def weights(self) -> Weights | None:
        """Where the weights are, or will be; with the size, if any is known."""
        if self._weights is None or self._weights.is_local:
            return self._weights
        return replace(self._weights, size=self.size)

    def to_dict(self) -> dict[str, Any]:
        """The fields of the spec, and what is known; suitable for JSON."""
        known = {"parameters": self.parameters, "licence": self.licence}
        return {**self.spec.to_dict(), **known, "size": self.size, "cached": self.is_local}

    @cached_property
    def _measured(self) -> ModelSize | None:
        return self._ask(lambda source: source.measure(self.spec))

    @cached_property
    def _weights(self) -> Weights | None:
        return self._ask(lambda source: source.weights(self.spec))

    def _ask(self, question: Callable[[ModelSource], T | None]) -> T | None:
        """What the source answers; None if it has no answer or lacks a package to find it."""
        try:
            return question(get_source(self.spec.kind))
        except (InputError, OSError):  # reported when the model is loaded
            return None


def select_models(
    specs: Sequence[ModelSpec],
    *,
    licence: str | Sequence[str] | None = None,
    max_parameters: float | str | None = None,
    progress: Progress | None = None,
) -> list[ListedModel]:
    """Keep the models that meet the constraints, see :func:`oodzoo.load_zoo`.

    `progress` is called while parameters are counted.
    """
    models = {spec.name: ListedModel(spec) for spec in specs}
    if licence is not None:
        models = _meeting(licence_rule(licence), models)
    if max_parameters is not None:
        rule = parameter_rule(max_parameters)
        for done, model in enumerate(models.values(), start=1):
            rule.value(model)
            if progress is not None:
                progress(done, len(models))
        models = _meeting(rule, models)
    return list(models.values())


def _meeting(rule: Rule, models: dict[str, ListedModel]) -> dict[str, ListedModel]:
    kept, dropped = apply_rules(models, [rule])
    if unknown := [name for name, reason in dropped.items() if reason == rule.unknown]:
        more = f" and {len(unknown) - 3:,} more" if len(unknown) > 3 else ""
        warnings.warn(
            f"{rule.option} leaves out {count(len(unknown), 'model')} whose {rule.quantity} is "
            f"unknown: {', '.join(unknown[:3])}{more}",
            stacklevel=3,
        )
    return {name: models[name] for name in kept}


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
