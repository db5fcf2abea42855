"""Choose and combine pre-trained networks for data from a domain nobody has seen."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zood import report, scores
    from zood.dataset import ImageDomains
    from zood.errors import InputError
    from zood.features.extract import extract
    from zood.features.store import FeatureStore
    from zood.ranking import Ranking, rank
    from zood.selection import SpikeSlabSelector
    from zood.zoo import load_zoo

__version__ = "0.1.0"
__all__ = [
    "FeatureStore",
    "ImageDomains",
    "InputError",
    "Ranking",
    "SpikeSlabSelector",
    "__version__",
    "extract",
    "load_zoo",
    "rank",
    "report",
    "scores",
]

# A public name is imported when it is first used, so that `import zood` and `zood --help` load
# neither NumPy nor Pillow.
_HOME = {
    "FeatureStore": "zood.features.store",
    "ImageDomains": "zood.dataset",
    "InputError": "zood.errors",
    "Ranking": "zood.ranking",
    "SpikeSlabSelector": "zood.selection",
    "extract": "zood.features.extract",
    "load_zoo": "zood.zoo",
    "rank": "zood.ranking",
}


_MODULES = ("report", "scores")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"zood.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'zood' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME, *_MODULES})
