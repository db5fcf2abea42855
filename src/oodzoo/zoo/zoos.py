"""Zoos: the models that a named catalogue, a zoo file, specs, patterns or layers stand for."""

from __future__ import annotations

import difflib
import glob
import hashlib
import math
import os
import re
import tomllib
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from oodzoo.core.errors import InputError
from oodzoo.core.text import count, did_you_mean, one_line
from oodzoo.zoo.listing import select_models
from oodzoo.zoo.sources import (
    check_spec,
    get_source,
    local_path,
    onnx_source,
    portable_source,
    source_kinds,
)
from oodzoo.zoo.spec import POOLINGS, WILDCARD, ModelSpec, Pooling, require_unique_names

_FOLDER = Path(__file__).parent / "catalogues"
_CATALOGUES = ("paper", "modern")


def zoo_names() -> tuple[str, ...]:
    """Return the names of the named zoos."""
    return ("demo", *_CATALOGUES)


def named_zoo(name: str) -> list[ModelSpec]:
    """List the models of a named zoo that can be loaded."""
    if name == "demo":
        from oodzoo.demo import zoo_file

        return read_zoo_file(zoo_file())
    return [_catalogued(dict(table)) for table in catalogue(name) if "source" in table]


def missing(name: str) -> dict[str, str]:
    """The models of a named zoo whose checkpoint no source can load, each with the reason.

    Examples
    --------
    >>> list(missing("paper"))
    ['resnet50-byol', 'resnet50-insdis', 'resnet50-pirl']
    """
    return {table["name"]: table["missing"] for table in catalogue(name) if "missing" in table}


@cache
def catalogue(name: str) -> tuple[dict[str, Any], ...]:
    """Return the tables of a catalogue in order, including those of missing models.

    `number` and `group` are those of the ZooD paper and are set only in its zoo.
    """
    if name == "demo":
        return ()
    if name not in _CATALOGUES:
        raise InputError(f"unknown zoo {name!r}; expected one of {', '.join(zoo_names())}")
    text = (_FOLDER / f"{name}.toml").read_text(encoding="utf-8")
    return tuple(tomllib.loads(text)["model"])


def _catalogued(table: dict[str, Any]) -> ModelSpec:
    """The spec of a table; without input size, mean and std, which the source provides."""
    pretraining = f"{table.pop('data')}, {table.pop('method')}"
    for key in ("number", "group"):
        table.pop(key, None)
    return ModelSpec(**table, pretraining=pretraining)


def filter_models(
    specs: Iterable[ModelSpec],
    *,
    pattern: str | None = None,
    source: str | None = None,
    pretraining: str | None = None,
) -> list[ModelSpec]:
    """Keep the models that match all criteria.

    Parameters
    ----------
    specs : iterable of ModelSpec
        The models to filter, e.g. `load_zoo("modern")`.
    pattern : str, optional
        Wildcard pattern (`vit_*`) that the name or the identifier within the source must match.
    source : str, optional
        The kind of source: `timm`, `hf`, …
    pretraining : str, optional
        Substring of the pre-training note, ignoring case.

    Examples
    --------
    >>> found = filter_models(named_zoo("modern"), pattern="convnext*", pretraining="DINOv3")
    >>> [spec.name for spec in found]
    ['convnext_base.dinov3_lvd1689m']
    """
    return [
        spec
        for spec in specs
        if (
            pattern is None
            or any(fnmatchcase(text, pattern) for text in (spec.name, spec.identifier))
        )
        and (source is None or spec.kind == source)
        and (pretraining is None or pretraining.lower() in (spec.pretraining or "").lower())
    ]


_ONNX_FILE = re.compile(r".+\.onnx(@.+)?", re.IGNORECASE)
_ZOO_FILE = re.compile(r"(.+\.toml)(?::(.+))?", re.IGNORECASE)
"""The path of a zoo file, and a pattern of names after a colon."""


def load_zoo(
    zoo: str | Path | Iterable[str],
    *,
    licence: str | Sequence[str] | None = None,
    max_parameters: float | str | None = None,
) -> list[ModelSpec]:
    """List the models of a zoo without loading them.

    Parameters
    ----------
    zoo : str, path or iterable of str
        A named zoo (`demo`, …), a zoo file (TOML), a model spec `source/name`, an ONNX file, or
        several of these but named zoos, as a list or separated by commas. The name in a spec may
        have the wildcards `*`, `?` and `[…]`: `timm/vit_small*`; `modern/*dino*` are some models of
        a named zoo, `zoo.toml:mobilenet*` of a zoo file.
    licence : str or sequence of str, optional
        Only models with one of these licences: names or wildcards (`cc-by-*`), ignoring case. A
        string may contain several, separated by commas.
    max_parameters : float or str, optional
        Only models of at most this many parameters: 25e6 or "25M".

    Notes
    -----
    Models of unknown licence or size are left out by these filters, with a warning. Parameters
    that the zoo does not state are counted without downloading weights, and remembered.

    Examples
    --------
    >>> import oodzoo
    >>> zoo = oodzoo.load_zoo("timm/resnet50.a1_in1k, hf/facebook/dinov2-small")
    >>> [spec.name for spec in zoo]
    ['timm-resnet50.a1_in1k', 'hf-facebook-dinov2-small']
    >>> [spec.name for spec in oodzoo.load_zoo("modern/*dinov2*", max_parameters="25M")]
    ['vit_small_patch14_reg4_dinov2.lvd142m']
    """
    selected = select_models(_load(zoo), licence=licence, max_parameters=max_parameters)
    return [model.spec for model in selected]


def _load(zoo: str | Path | Iterable[str]) -> list[ModelSpec]:
    if not isinstance(zoo, str | Path):
        return _load_list(zoo)
    text = os.fspath(zoo).strip()
    if text in zoo_names():
        return named_zoo(text)
    if _is_file(text):  # whose name may have a comma
        return _load_list([text]) if _ONNX_FILE.fullmatch(text) else _read(text)
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if any(_names_models(part) for part in parts):
        return _load_list(parts)
    if text and (inside := _zoos_in(Path(text))):
        raise InputError(f"{text!r} is a folder, not a zoo; did you mean {' or '.join(inside)}?")
    near = did_you_mean(text, [*zoo_names(), *_zoo_files(Path(text))])
    if near:
        raise InputError(f"{text!r} is not a zoo; {near}")
    raise InputError(
        f"{text!r} is not a zoo: give one of {', '.join(zoo_names())}, a zoo file (.toml), "
        "ONNX files, or specs such as timm/resnet50.a1_in1k or timm/vit_small*, separated by commas"
    )


def _names_models(text: str) -> bool:
    """Whether a part of a list is a spec, a pattern, an ONNX file or a zoo file."""
    known = _as_spec(text).partition("/")[0] in source_kinds() or is_pattern(text)
    return known or _ZOO_FILE.fullmatch(text) is not None


def _as_spec(text: str) -> str:
    """Return the spec of the path of an ONNX file, with wildcards or not; else the text."""
    if not _ONNX_FILE.fullmatch(text):
        return text
    kind, _, path = text.partition("/")
    is_bare = kind not in source_kinds() or (_is_file(text) and not _is_file(path))
    return f"onnx/{text}" if is_bare else text


def _is_file(text: str) -> bool:
    return os.path.isfile(text)  # noqa: PTH113 - Path.is_file raises on a name too long


def _read(file: str, pattern: str | None = None) -> list[ModelSpec]:
    """Read a zoo file, or those of its models whose name matches a pattern."""
    if not Path(file).exists() and (near := did_you_mean(file, _zoo_files(Path(file)))):
        raise InputError(f"no such zoo file: {file!r}; {near}")
    tables = read_zoo_file(Path(file))
    if pattern is not None:
        names = [table.name for table in tables]
        chosen = matching(pattern, names, f"the zoo file {file!r} has no model")
        tables = [table for table in tables if table.name in chosen]
    specs = [spec for table in tables for spec in expand_layers(table, Path(file).name)]
    require_unique_names((spec.name for spec in specs), f"the zoo file {file!r}")
    return specs


def _zoo_files(path: Path) -> list[str]:
    """The zoo files beside a path, as they would be given."""
    try:
        return [str(path.with_name(each.name)) for each in path.parent.glob("*.toml")]
    except (OSError, ValueError):
        return []


def _zoos_in(folder: Path) -> list[str]:
    """What could be given in place of a folder: its zoo files, or a pattern of its models."""
    try:
        files = sorted(str(each) for each in folder.glob("*.toml"))[:3]
        return files or ([onnx_source(f"{folder}/*.onnx")] if any(folder.glob("*.onnx")) else [])
    except (OSError, ValueError):
        return []


def _load_list(texts: Iterable[str]) -> list[ModelSpec]:
    """The models of several specs; one that a pattern matches is listed once."""
    specs: list[ModelSpec] = []
    matched: set[Hashable] = set()
    for text in map(_as_spec, texts):
        zoo_file = _ZOO_FILE.fullmatch(text)
        if zoo_file:
            found = _read(*zoo_file.groups())
        else:
            found = _expand(text) if is_pattern(text) else _parse_spec(text)
        if len(found) > 1 or zoo_file or is_pattern(text):
            listed = {(spec, spec.folder) for spec in specs}
            found = [spec for spec in found if (spec, spec.folder) not in listed]
            matched |= {(spec, spec.folder) for spec in found}
            specs += found
        else:
            specs += [spec for spec in found if (spec, spec.folder) not in matched]
    remedy = "leave one out, or give them different names in a zoo file (.toml)"
    require_unique_names((spec.name for spec in specs), "the list of models", remedy)
    return specs


def _parse_spec(text: str) -> list[ModelSpec]:
    """The models of a spec: one, or one for each of the layers it names."""
    context = "the list of models"
    specs = expand_layers(ModelSpec(name="", source=text), context, name=_network_name)
    return [check_spec(spec, context) for spec in specs]


def _network_name(spec: ModelSpec) -> str:
    """Name a model after its source; after a local file or folder without those above it."""
    return spec.file.stem if spec.kind == "onnx" else re.sub("[/:]", "-", portable_source(spec))


def is_pattern(text: str) -> bool:
    """Whether a spec stands for several models: with wildcards, or of a named zoo."""
    kind, slash, name = text.partition("/")
    if kind in zoo_names() and slash:
        return True
    if kind not in source_kinds() or not WILDCARD.search(name):
        return False
    path = local_path(ModelSpec("", text))
    return path is None or not path.exists()  # the name of a file may have such characters


def _expand(text: str) -> list[ModelSpec]:
    """List the models that match a pattern.

    Layers may follow a pattern: `timm/vit_small*@all`.
    """
    text, layers = _split_layers(text)
    kind, _, pattern = text.partition("/")
    if kind in zoo_names():
        specs = {spec.name: spec for spec in named_zoo(kind)}
        names = matching(pattern, specs, f"the zoo {kind} has no model")
        found = [replace(specs[name], source=specs[name].source + layers) for name in names]
        return [
            spec
            for each in found
            for spec in expand_layers(each, text, name=lambda network: network.name)
        ]
    if local_path(ModelSpec("", text)) is not None:
        return [spec for source in _local_sources(text) for spec in _parse_spec(source + layers)]
    known = get_source(kind).names(pattern)
    names = matching(pattern, known, f"{kind} has no pre-trained model")
    return [spec for name in names for spec in _parse_spec(f"{kind}/{name}{layers}")]


def _split_layers(text: str) -> tuple[str, str]:
    """Split a pattern from the layers after it, which begin with `@`."""
    end = max((text.rfind(character) for character in "*?]"), default=0)
    at = text.find("@", max(end, 0))
    if at < 0:
        if (
            "@" in text
            and text.partition("/")[0] not in zoo_names()
            and local_path(ModelSpec("", text)) is None
        ):
            raise InputError(
                f"{text!r}: the name of a layer cannot have wildcards; name several layers, such "
                "as @blocks.4+blocks.8, or use @all"
            )
        return text, ""
    return text[:at], text[at:]


def _local_sources(text: str) -> list[str]:
    """The sources of the files or folders that a path with wildcards matches."""
    kind, _, path = text.partition("/")
    if ":" in path:
        path = path.partition(":")[2]
    elif kind == "open_clip":
        path = path.partition("/")[2]
    paths = sorted(glob.glob(os.path.expanduser(path), recursive=True))  # noqa: PTH111, PTH207
    found = [each for each in paths if get_source(kind).is_model(Path(each))]
    if not found:
        hint = f"; {count(len(paths), 'path')} matched, but none is a model" if paths else ""
        raise InputError(f"no model matches {text!r}{hint}")
    return [text.removesuffix(path) + each for each in found]


# --- zoo files --------------------------------------------------------------------------------


def read_zoo_file(path: Path) -> list[ModelSpec]:
    """Read a zoo file (TOML, one `[[model]]` table per model)."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError(f"cannot read the zoo file {str(path)!r}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # TOMLDecodeError, UnicodeDecodeError, ...
        reason = one_line(error)
        raise InputError(f"the zoo file {str(path)!r} is not valid TOML: {reason}") from error
    if unknown := sorted(set(content) - {"model"}):
        raise InputError(f"{str(path)!r}: unknown key {unknown[0]!r}; use [[model]] tables")
    tables = content.get("model")
    if not isinstance(tables, list) or not tables:
        raise InputError(f"{str(path)!r} contains no [[model]] table; add one per model")
    return [
        _parse_table(table, f"{path.name}, model {number}", path.parent)
        for number, table in enumerate(tables, start=1)
    ]


def _parse_table(table: object, context: str, folder: Path) -> ModelSpec:
    if not isinstance(table, dict):
        raise InputError(f"{context}: expected a [[model]] table, got {table!r}")
    if isinstance(table.get("name"), str):
        context = f"{context} ({table['name']!r})"
    for key in ("name", "source"):
        if key not in table:
            raise InputError(f"{context}: the key {key!r} is missing")
    values = {key: _parse_value(key, value, context) for key, value in table.items()}
    spec = check_spec(ModelSpec(**values, folder=folder), context)
    if WILDCARD.search(spec.identifier) and not ((path := local_path(spec)) and path.exists()):
        raise InputError(
            f"{context}: the source {spec.source!r} has a wildcard, but a [[model]] table is one "
            "model; give a table for each, or the pattern instead of a zoo file"
        )
    return spec


_LARGEST = 1e6
"""Largest mean or std of a channel."""


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_plain(value: Any) -> bool:
    """Whether a value can be written as JSON and read back; a TOML file may have dates."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(each) for key, each in value.items())
    if isinstance(value, list):
        return all(_is_plain(each) for each in value)
    return isinstance(value, str | bool) or (_is_number(value) and math.isfinite(value))


_TYPES: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    (
        "a non-empty string",
        lambda value: isinstance(value, str) and value != "",
        "name source features logits sha256 pretraining architecture licence origin",
    ),
    (
        "a positive integer",
        lambda value: _is_number(value) and isinstance(value, int) and 0 < value < 1 << 63,
        "input_size feature_dim parameters",
    ),
    (
        "a list of three numbers",
        lambda value: (
            isinstance(value, list)
            and len(value) == 3
            and all(_is_number(each) and abs(each) <= _LARGEST for each in value)
        ),
        "mean std",
    ),
    ("true or false", lambda value: isinstance(value, bool), "pretrained"),
    (
        "a table of strings, numbers, booleans and lists",
        lambda value: isinstance(value, dict) and _is_plain(value),
        "arguments geometry",
    ),
)
_KEYS = {key: (kind, is_valid) for kind, is_valid, keys in _TYPES for key in keys.split()}


def _parse_value(key: str, value: Any, context: str) -> Any:
    if key not in _KEYS:
        raise InputError(f"{context}: unknown key {key!r}; expected one of {', '.join(_KEYS)}")
    kind, is_valid = _KEYS[key]
    if not is_valid(value):
        raise InputError(f"{context}: {key} must be {kind}, got {value!r}")
    return tuple(map(float, value)) if isinstance(value, list) else value


# --- wildcards --------------------------------------------------------------------------------


def matching(pattern: str, names: Iterable[str], subject: str) -> list[str]:
    """Return the names that match a pattern, in order; `subject` begins the error if none does.

    Examples
    --------
    >>> matching("resnet*", ["resnet18", "resnet50", "vit"], "this zoo has no model")
    ['resnet18', 'resnet50']
    """
    known = list(names)
    found = [name for name in known if fnmatchcase(name, pattern)]
    if found:
        return found
    if not WILDCARD.search(pattern):
        hint = did_you_mean(pattern, known)
        raise InputError(f"{subject} {pattern!r}{hint and f'; {hint}'}")
    near = _near(pattern, known)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    raise InputError(f"{subject} that matches {pattern!r}{hint}")


def _near(pattern: str, names: list[str]) -> list[str]:
    """Patterns similar to one that matches nothing: with another text before its wildcard."""
    start = WILDCARD.split(pattern)[0]
    if start:
        starts = {name[: len(start)] for name in names}
        return [text + pattern[len(start) :] for text in _similar(start, starts, names, pattern)]
    longest = max(re.findall(r"[^*?\[\]]+", pattern), key=len, default="")
    words = {word for name in names for word in re.split(r"[._/-]", name) if word}
    return [pattern.replace(longest, word) for word in _similar(longest, words, names, pattern)]


def _similar(text: str, others: set[str], names: list[str], pattern: str) -> list[str]:
    """Texts similar to a part of a pattern that match something when they replace it."""
    near = difflib.get_close_matches(text, sorted(others), n=3, cutoff=0.6) if text else []
    return [
        other
        for other in near
        if any(fnmatchcase(name, pattern.replace(text, other, 1)) for name in names)
    ]


# --- layers -----------------------------------------------------------------------------------

# A spec with several layers (`timm/vit…@blocks.8`, `@stages.2:mean`, `@blocks.4+blocks.8`, `@all`)
# stands for several models. They share one network: it is loaded once, and one forward pass
# computes all of them.

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
