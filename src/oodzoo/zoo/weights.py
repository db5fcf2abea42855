"""Weights of models that are not loaded: in the caches of PyTorch and Hugging Face, or not yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from oodzoo.core.packages import optional_package


@dataclass(frozen=True)
class Weights:
    """Where the weights of a model are, or will be.

    Attributes
    ----------
    folder : Path
        The folder that contains them, or the cache they are downloaded to.
    is_local : bool
        Whether they are there already.
    size : int, optional
        Size in bytes; None if unknown.
    """

    folder: Path
    is_local: bool
    size: int | None = None


@dataclass(frozen=True)
class Measured:
    """Size of a model, counted without its weights.

    Attributes
    ----------
    parameters : int
        Number of parameters of the parts in use.
    size : int, optional
        Estimated size of the weights in bytes; None if unknown.
    """

    parameters: int
    size: int | None = None


@dataclass(frozen=True)
class Card:
    """What the Hugging Face Hub says about a repository; None where it says nothing."""

    licence: str | None = None
    size: int | None = None


def local_weights(path: Path) -> Weights:
    """The weights in a local file or folder."""
    files = [path] if path.is_file() else [file for file in path.glob("*") if file.is_file()]
    return Weights(path.parent, True, sum(file.stat().st_size for file in files))


def url_weights(torch: Any, url: str, size: int | None) -> Weights:
    """Weights that torch.hub downloads from a URL."""
    folder = Path(torch.hub.get_dir()) / "checkpoints"
    file = folder / Path(urlsplit(url).path).name
    if file.is_file():
        return Weights(folder, True, file.stat().st_size)
    return Weights(folder, False, size)


def hub_weights(repository: str, files: Sequence[str], size: int | None) -> Weights:
    """Weights in a repository of the Hugging Face Hub, in one of several files."""
    hub = _hub()
    folder = Path(_hub("constants").HF_HUB_CACHE)
    repository, _, revision = repository.partition("@")
    for name in files:
        found = hub.try_to_load_from_cache(repository, name, revision=revision or None)
        if isinstance(found, str):
            is_whole = not name.endswith(".index.json")  # which lists the parts
            return Weights(folder, True, Path(found).stat().st_size if is_whole else size)
    return Weights(folder, False, size)


def is_offline() -> bool:
    """Whether the Hugging Face Hub must not be asked."""
    return bool(_hub("constants").HF_HUB_OFFLINE)


@cache
def hub_card(repository: str) -> Card:
    """Ask the Hugging Face Hub for the licence and the size of a repository.

    Both are unknown if it cannot be reached. After one failure it is not asked again.
    """
    global _is_unreachable
    if is_offline() or _is_unreachable:
        return Card()
    hub = _hub()
    name, _, revision = repository.partition("@")
    try:
        info = hub.HfApi().model_info(
            name, revision=revision or None, files_metadata=True, timeout=10
        )
    except _hub("errors").HfHubHTTPError:  # no such repository, a gated one, …
        return Card()
    except Exception:  # no connection; its class depends on the version
        _is_unreachable = True
        return Card()
    card = info.card_data or {}
    licence = known_licence(card.get("license")) or known_licence(card.get("license_name"))
    sizes = {file.rfilename: file.size or 0 for file in info.siblings or []}
    for suffix in (".safetensors", ".bin"):
        size = sum(n for file, n in sizes.items() if file.endswith(suffix) and "/" not in file)
        if size:
            return Card(licence, size)
    return Card(licence)


_is_unreachable = False


def known_licence(licence: object) -> str | None:
    """The name of a licence; None if a source only says that there is one."""
    is_name = isinstance(licence, str) and licence not in ("", "other", "unknown")
    return licence if is_name else None  # type: ignore[return-value]


def _hub(module: str = "") -> Any:
    """Import huggingface_hub, or a module of it, which it does not always import itself."""
    name = f"huggingface_hub.{module}".rstrip(".")
    return optional_package(name, extra="hf", purpose="a model of the Hub")
