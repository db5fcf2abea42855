"""Layers in model specs: `timm/vit…@blocks.8`, `@stages.2:mean`, `@blocks.4+blocks.8`, `@all`.

A spec with several layers stands for several models. They share one network: it is loaded once,
and one forward pass computes all of them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import replace

from oodzoo.core.errors import InputError
from oodzoo.zoo.sources import get_source, local_path
from oodzoo.zoo.spec import POOLINGS, ModelSpec, Pooling

ALL = "all"
"""Stands for the features of a model and the blocks or stages of its network."""

_LONGEST = 80
"""Longest name of a layer in the name of a model."""


def split_layers(spec: ModelSpec) -> tuple[ModelSpec, str | None]:
    """Split the source of a spec into that of a network and the text after `@`; None without.

    A file or folder whose own name has an `@` is taken first. In `hf-hub:<name>@<revision>`, a
    layer follows after a second `@`.
    """
    source = spec.source
    ends = [found.start() for found in re.finditer("@", source)]
    if not ends:
        return spec, None
    if local_path(spec) is not None:
        end = _end_of_path(spec, ends)
    elif spec.identifier.startswith("hf-hub:"):
        end = ends[1] if len(ends) > 1 else len(source)
    else:
        end = ends[0]
    text = source[end + 1 :] if end < len(source) else None
    network = source[:end].removesuffix("@")  # of an empty revision
    return replace(spec, source=network), text


def _end_of_path(spec: ModelSpec, ends: list[int]) -> int:
    source = spec.source
    for end in (len(source), *reversed(ends)):
        path = local_path(replace(spec, source=source[:end]))
        if path is not None and path.exists():
            return end
    # Loading will report the file. A folder above it may have an @ in its name.
    if (found := source.rfind(".onnx@")) >= 0:
        return found + len(".onnx")
    return ends[-1] if "/" not in source[ends[-1] :] else len(source)


def parse_layers(text: str, kind: str, context: str) -> list[tuple[str, Pooling | None]]:
    """Read the names of layers and their poolings.

    Examples
    --------
    >>> parse_layers("blocks.4+blocks.8:mean", "timm", "the list of models")
    [('blocks.4', None), ('blocks.8', 'mean')]
    """
    layers: list[tuple[str, Pooling | None]] = []
    for part in text.split("+"):
        name, colon, last = part.rpartition(":")
        pooling = next((known for known in POOLINGS if colon and known == last), None)
        if pooling is None:
            if colon and kind != "onnx":  # names of tensors may have a colon
                raise InputError(
                    f"{context}: unknown pooling {last!r} of the layer {name!r}; expected one of "
                    + ", ".join(POOLINGS)
                )
            name = part
        if not name.strip():
            raise InputError(
                f"{context}: '@{text}' has no name of a layer; give one, such as @blocks.8, "
                "several, such as @blocks.4+blocks.8, or @all"
            )
        layers.append((name.strip(), pooling))
    return layers


def expand_layers(
    spec: ModelSpec, context: str, *, name: Callable[[ModelSpec], str] | None = None
) -> list[ModelSpec]:
    """List the models that a spec with layers in its source stands for.

    Parameters
    ----------
    spec : ModelSpec
    context : str
        Begins the message of an error.
    name : callable, optional
        Names a network; by default it has the name of the spec, and so has a single layer.
    """
    network, text = split_layers(spec)
    if name is not None:
        network = replace(network, name=name(network))
    if text is None:
        return [network]
    layers = parse_layers(text, network.kind, context)
    if len(layers) == 1 and layers[0][0] != ALL and name is None:
        return [replace(network, layer=layers[0][0], pooling=layers[0][1])]
    specs: list[ModelSpec] = []
    for layer, pooling in layers:
        if layer == ALL:
            specs.append(network)
            specs += [
                with_layer(network, each, pooling)
                for each in get_source(network.kind).layers(network)
            ]
        else:
            specs.append(with_layer(network, layer, pooling))
    return list(dict.fromkeys(specs))


def with_layer(network: ModelSpec, layer: str, pooling: Pooling | None) -> ModelSpec:
    """The spec of a layer, named `<network>@<layer>` or `<network>@<layer>-<pooling>`.

    Examples
    --------
    >>> with_layer(ModelSpec("resnet", "onnx/resnet.onnx"), "/layer1/Add", "mean").name
    'resnet@layer1.Add-mean'
    """
    short = re.sub(r'[/\\:*?"<>|\x00-\x1f]+', ".", layer).strip(". ")
    if len(short) > _LONGEST:
        digest = hashlib.sha256(layer.encode()).hexdigest()[:8]
        short = f"{short[-_LONGEST:].strip('. ')}-{digest}"
    name = f"{network.name}@{short}" + (f"-{pooling}" if pooling else "")
    return replace(network, name=name, layer=layer, pooling=pooling, feature_dim=None)
