"""Options: declared once, checked where they come in, passed on as one object; where to compute.

The fields of such an object are keywords of functions and options of commands, with one help text.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from oodzoo.core.errors import InputError

Kind = TypeVar("Kind")


@dataclass(frozen=True)
class Option:
    """What the command line shows of an option.

    Attributes
    ----------
    help : str
    metavar : str, optional
        What stands for its value.
    type : type, optional
        That of the command line, if it is another one.
    default : str, optional
        The default that is shown, if it is none of the values.
    """

    help: str
    metavar: str | None = None
    type: Any = None
    default: str | None = None


def require_known(function: str, keywords: Mapping[str, Any], known: type) -> None:
    """Raise a TypeError, as Python does, for a keyword that is not of a TypedDict."""
    for name in keywords:
        if name not in known.__annotations__:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")


def options_of(kind: type[Kind], keywords: Mapping[str, Any]) -> Kind:
    """Build options from the keywords that are their fields."""
    names = {field.name for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in keywords.items() if name in names})


ENGINES = ("local", "ray")


DEVICE = Option(
    "Compute device: cpu (NumPy) or cuda (PyTorch); several, as cuda:0,cuda:1, or all (GPUs): a "
    "process each."
)


@dataclass(frozen=True)
class Compute:
    """Where to compute.

    Attributes
    ----------
    device : str, optional
        None is NumPy in this process; several devices, separated by commas, are a process each.
    engine : {"local", "ray"}
        On this machine, or on a Ray cluster.
    address : str, optional
        Of an existing Ray cluster.
    """

    device: Annotated[str | None, DEVICE] = None
    engine: Annotated[str, Option("Where tasks run: local (this machine), or ray (a cluster).")] = (
        "local"
    )
    address: Annotated[
        str | None,
        Option(
            "An existing Ray cluster; by default that of RAY_ADDRESS, or this machine alone.",
            metavar="HOST:PORT",
        ),
    ] = None

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise InputError(
                f"unknown engine {self.engine!r}; expected one of {', '.join(ENGINES)}"
            )
        if self.engine != "ray" and self.address is not None:
            raise InputError(
                f"the address {self.address!r} is of a Ray cluster; add the engine ray"
            )

    @property
    def devices(self) -> list[str]:
        """One device, which is this process, or several."""
        return parse_devices(self.device or "cpu")

    @property
    def arrays(self) -> str | None:
        """The device for arrays in this process: the first of several, NumPy for CPUs.

        With the engine ray it is NumPy, too: the machine that starts the work need not have a GPU.
        """
        if self.device is None or self.engine == "ray":
            return None
        devices = self.devices
        return None if len(devices) > 1 and devices[0] == "cpu" else devices[0]


def parse_devices(device: str) -> list[str]:
    """List the devices in `cuda:0,cuda:1`; `all` names every GPU of this machine."""
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
