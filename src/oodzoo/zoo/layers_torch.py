"""Layers of PyTorch networks: the outputs of named modules, taken during the forward pass."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from oodzoo.core.errors import InputError
from oodzoo.core.text import did_you_mean
from oodzoo.zoo.model_spec import Pool, Pooling, choose_pool

Module = Any  # torch.nn.Module; torch is imported only when a model needs it
Tensor = Any  # torch.Tensor

_CLASS_TOKENS = ("cls_token", "class_token", "class_embedding", "cls")
"""Names of the parameter with the class token in timm, torchvision, transformers and open_clip."""

_MOST_OF = 0.8
"""Share of the layers of a module in one of its parts, above which the part is looked into."""


@dataclass(frozen=True)
class Tap:
    """A module of a network whose output is taken, and how it is pooled.

    A module that a forward pass calls several times counts with its last call.
    """

    layer: str
    module: Module
    calls: int
    pool: Pool


class _Reached(Exception):
    """All outputs are there; the rest of the forward pass is not needed."""


Mark = Callable[[], Any]
"""Returns the time now, or an event on the device."""


def run_tapped(
    forward: Callable[[], tuple[Tensor, Tensor | None]],
    taps: Sequence[Tap],
    *,
    whole: bool,
    mark: Mark = time.perf_counter,
) -> tuple[tuple[Tensor, Tensor | None] | None, list[Tensor], list[Any]]:
    """Run a forward pass and pool the outputs of modules as they appear.

    Parameters
    ----------
    forward : callable
        Runs the forward pass.
    taps : sequence of Tap
    whole : bool
        Whether the outputs of the network are needed; else it stops after the last of the taps.
    mark : callable
        Called when the output of a tap is there.

    Returns
    -------
    outputs : tuple, optional
        What `forward` returned; None without `whole`.
    pooled : list of Tensor
        Float32 (n, d), one for each tap.
    marks : list
        What `mark` returned, one for each tap.
    """
    left = [tap.calls for tap in taps]
    pooled: list[Tensor] = [None] * len(taps)
    marks: list[Any] = [None] * len(taps)

    def keep(at: int, output: Any) -> None:
        left[at] -= 1
        if left[at] == 0:
            pooled[at] = taps[at].pool(_tensor(output))
            marks[at] = mark()
            if not whole and not any(left):
                raise _Reached

    outputs = None
    with _hooks([tap.module for tap in taps], keep), suppress(_Reached):
        outputs = forward()
    return (outputs if whole else None), pooled, marks


def find_taps(
    module: Module,
    forward: Callable[[], Any],
    layers: Sequence[tuple[str, Pooling | None]],
    n: int,
    crop: tuple[int, int],
) -> list[Tap | InputError]:
    """Find layers of a network, and how their outputs are pooled.

    Parameters
    ----------
    module : Module
    forward : callable
        Runs the forward pass on `n` images of the size `crop`.
    layers : sequence of (str, Pooling or None)

    Returns
    -------
    list of Tap or InputError
        In place of a layer that cannot be used, an error whose message continues "model 'x': ".
    """
    known = named_layers(module)
    found = [name for name, _ in layers if name in known]
    seen: dict[str, list[Any]] = {name: [] for name in found}

    def note(at: int, output: Any) -> None:
        tensor = _tensor(output)
        shape = None if tensor is None else (tuple(tensor.shape), tensor.dtype.is_floating_point)
        seen[found[at]].append(shape)

    with _hooks([known[name] for name in found], note):
        forward()
    token = has_class_token(module)
    choose = partial(choose_pool, n=n, crop=crop, class_token=token)
    return [
        _tap(name, known, seen.get(name), partial(choose, pooling=pooling))
        for name, pooling in layers
    ]


def _tap(
    name: str,
    known: Mapping[str, Module],
    calls: list[Any] | None,
    choose: Callable[[tuple[int, ...]], Pool],
) -> Tap | InputError:
    if calls is None:
        return unknown_layer(name, list(known), stages(known[""]))
    if not calls:
        return InputError(f"layer {name!r} is not called in the forward pass; choose another one")
    if calls[-1] is None:
        return InputError(f"layer {name!r} gives no tensor; choose another one")
    shape, is_float = calls[-1]
    if not is_float:
        return InputError(f"layer {name!r} gives integers, not features; choose another one")
    try:
        return Tap(name, known[name], len(calls), choose(shape))
    except InputError as error:
        return InputError(f"layer {name!r} {error}")


def unknown_layer(name: str, known: Sequence[str], examples: Sequence[str]) -> InputError:
    """Build the error for a layer that does not exist; the message continues "model 'x': "."""
    near = did_you_mean(name, known)
    if not near and examples:
        near = f"it has {', '.join(examples[:3])}, …"
    return InputError(f"there is no layer {name!r}" + (f"; {near}" if near else ""))


def named_layers(module: Module) -> dict[str, Module]:
    """Return all modules by the name within their library's model, which itself is ''."""
    names = dict(module.named_modules())
    backbone = names.get("backbone")
    if backbone is None or set(dict(module.named_children())) - {"backbone", "head"}:
        return names
    return dict(backbone.named_modules())  # split from its head by the source


def has_class_token(module: Module) -> bool:
    """Whether a network has a class token, by the names of its parameters."""
    return any(name.rpartition(".")[2] in _CLASS_TOKENS for name, _ in module.named_parameters())


def stages(backbone: Module) -> list[str]:
    """List the blocks or stages of a backbone: the parts of the part with most of its layers.

    Only parts with layers of their own are listed; if several have two layers or more, only these.
    Two parts that are not in a list, such as features and classifier, are not blocks.
    """
    import torch

    name, module = "", backbone
    while True:
        sizes = {part: _n_layers(child) for part, child in module.named_children()}
        sizes = {part: size for part, size in sizes.items() if size}
        blocks = [part for part, size in sizes.items() if size > 1]
        parts = blocks if len(blocks) > 1 else list(sizes)
        if not blocks:
            break
        largest = max(sizes, key=lambda part: sizes[part])
        fewest = 2 if isinstance(module, torch.nn.ModuleList | torch.nn.Sequential) else 3
        if len(parts) >= fewest and sizes[largest] <= _MOST_OF * sum(sizes.values()):
            break
        name, module = f"{name}{largest}.", getattr(module, largest)
    return [f"{name}{part}" for part in parts]


def usable_stages(
    module: Module, forward: Callable[[], Any], n: int, crop: tuple[int, int]
) -> list[str]:
    """List the blocks or stages of a network whose outputs can be pooled."""
    names = stages(named_layers(module)[""])
    try:
        taps = find_taps(module, forward, [(name, None) for name in names], n, crop)
    except Exception:  # a module that cannot run without weights: loading will tell
        return names
    return [name for name, tap in zip(names, taps, strict=True) if isinstance(tap, Tap)]


def _n_layers(module: Module) -> int:
    """Count the modules that have parameters of their own."""
    return sum(bool(list(part.parameters(recurse=False))) for part in module.modules())


@contextmanager
def _hooks(modules: Sequence[Module], call: Callable[[int, Any], None]) -> Iterator[None]:
    """Call a function with the position of a module and its output, whenever it is called."""

    def hook(at: int) -> Callable[[Module, Any, Any], None]:
        return lambda _, __, output: call(at, output)

    handles = [module.register_forward_hook(hook(at)) for at, module in enumerate(modules)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _tensor(output: Any) -> Tensor | None:
    """The tensor that a module returned; the first one of several."""
    import torch

    if isinstance(output, torch.Tensor):
        return output
    if isinstance(output, Mapping):
        output = list(output.values())
    if isinstance(output, list | tuple):
        return next((each for each in output if isinstance(each, torch.Tensor)), None)
    return None
