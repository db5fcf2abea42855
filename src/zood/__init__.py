"""Choose and combine pre-trained networks for data from a domain nobody has seen."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zood import report, scores, testbed
    from zood.dataset import ImageDomains
    from zood.errors import InputError
    from zood.evaluation import Evaluation, evaluate
    from zood.features.extract import extract
    from zood.features.store import FeatureStore
    from zood.job.stages import Choices, run
    from zood.predictor import Predictor, fit, load
    from zood.ranking import rank
    from zood.ranking_result import Ranking
    from zood.selection import SpikeSlabSelector
    from zood.zoo import load_zoo

__version__ = "0.1.0"
__all__ = [
    "Choices",
    "Evaluation",
    "FeatureStore",
    "ImageDomains",
    "InputError",
    "Predictor",
    "Ranking",
    "SpikeSlabSelector",
    "__version__",
    "evaluate",
    "extract",
    "fit",
    "load",
    "load_zoo",
    "rank",
    "report",
    "run",
    "scores",
    "testbed",
]

# A public name is imported when it is first used, so that `import zood` and `zood --help` load
# neither NumPy nor Pillow.
_HOME = {
    "Choices": "zood.job.stages",
    "Evaluation": "zood.evaluation",
    "FeatureStore": "zood.features.store",
    "ImageDomains": "zood.dataset",
    "InputError": "zood.errors",
    "Predictor": "zood.predictor",
    "Ranking": "zood.ranking_result",
    "SpikeSlabSelector": "zood.selection",
    "evaluate": "zood.evaluation",
    "extract": "zood.features.extract",
    "fit": "zood.predictor",
    "load": "zood.predictor",
    "load_zoo": "zood.zoo",
    "rank": "zood.ranking",
    "run": "zood.job.stages",
}
_MODULES = ("report", "scores", "testbed")


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
