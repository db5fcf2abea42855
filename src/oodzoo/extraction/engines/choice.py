"""Which engine to use, and which part of the work."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oodzoo.core.errors import InputError

if TYPE_CHECKING:
    from oodzoo.extraction.engines.task import Engine

ENGINES = ("local", "ray")


@dataclass(frozen=True)
class Part:
    """One of several equal parts of the work; `number` counts from 1."""

    number: int = 1
    of: int = 1

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


def parse_part(text: str) -> Part:
    """Read `3/8`, the third of eight parts.

    Examples
    --------
    >>> parse_part("3/8")
    Part(number=3, of=8)
    """
    found = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text)
    if found is None:
        raise InputError(f"the shard must be I/N, such as 3/8, got {text!r}")
    number, of = int(found[1]), int(found[2])
    if not 1 <= number <= of:
        raise InputError(
            f"the shard {text!r} does not exist: I/N counts from 1/{max(of, 1)} to "
            f"{max(of, 1)}/{max(of, 1)}"
        )
    return Part(number, of)


def parse_devices(device: str) -> list[str]:
    """List the devices in `cuda:0,cuda:1`; `all` names every GPU of this machine.

    One device is one process, this one; several are a process each.
    """
    if device != "all":
        return [part.strip() for part in device.split(",")]
    try:
        import torch

        n = torch.cuda.device_count()
    except ImportError:
        n = 0
    if not n:
        raise InputError("the device is 'all', but PyTorch finds no GPU here; use cpu or auto")
    return [f"cuda:{number}" for number in range(n)]


def array_device(device: str | None, engine: str = "local") -> str | None:
    """Return the device for arrays in this process: the first of several, NumPy for CPUs.

    With the engine ray it is NumPy, too: the machine that starts the work need not have a GPU.
    """
    if device is None or engine == "ray":
        return None
    devices = parse_devices(device)
    return None if len(devices) > 1 and devices[0] == "cpu" else devices[0]


def require_engine(engine: str, address: str | None = None) -> None:
    """Reject an unknown engine, and an address without the engine that uses it."""
    if engine not in ENGINES:
        raise InputError(f"unknown engine {engine!r}; expected one of {', '.join(ENGINES)}")
    if engine != "ray" and address is not None:
        raise InputError(f"the address {address!r} is of a Ray cluster; add the engine ray")


@contextmanager
def open_engine(
    engine: str = "local",
    *,
    address: str | None = None,
    device: str = "auto",
    part: Part | None = None,
) -> Iterator[Engine | None]:
    """Open an engine; None for this process.

    Parameters
    ----------
    engine : {"local", "ray"}
    address : str, optional
        Of an existing Ray cluster.
    device : str
        With "local", several devices, separated by commas, are a process each.
    part : Part, optional
        What is done here; only this process can do a part.
    """
    require_engine(engine, address)
    devices = parse_devices(device)
    if part is not None and (engine == "ray" or len(devices) > 1):
        how = "the engine ray" if engine == "ray" else f"the devices {device}"
        raise InputError(f"shard {part} and {how} both spread the work; use one of them")
    if engine == "ray":
        from oodzoo import __version__
        from oodzoo.extraction.engines.cluster import RayCluster

        with RayCluster(address, device, __version__) as cluster:
            yield cluster
        return
    if len(devices) == 1:
        yield None
        return
    from oodzoo.extraction.engines.task import Processes

    yield Processes(devices)
