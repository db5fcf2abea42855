"""Choose and combine pre-trained models for data from unseen domains."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oodzoo import report, scores, testbed
    from oodzoo.combining.evaluation import Evaluation, evaluate
    from oodzoo.combining.selection import select_features
    from oodzoo.core.errors import InputError
    from oodzoo.data.dataset import ImageDomains
    from oodzoo.extraction.extract import extract
    from oodzoo.linear.selection.selector import SpikeSlabSelector
    from oodzoo.pipeline import RunConfig, run
    from oodzoo.predictor import Predictor, fit, load
    from oodzoo.predictor.assessment import TestResult
    from oodzoo.predictor.estimators import ZooClassifier, ZooRegressor
    from oodzoo.predictor.testing import test
    from oodzoo.predictor.tuning import tune
    from oodzoo.ranking.proposing import propose_domains, use_domains
    from oodzoo.ranking.ranker import rank
    from oodzoo.ranking.ranking import Ranking
    from oodzoo.store.feature_store import FeatureStore
    from oodzoo.zoo import load_zoo

__version__ = "0.2.0"
__all__ = [
    "Evaluation",
    "FeatureStore",
    "ImageDomains",
    "InputError",
    "Predictor",
    "Ranking",
    "RunConfig",
    "SpikeSlabSelector",
    "TestResult",
    "ZooClassifier",
    "ZooRegressor",
    "__version__",
    "evaluate",
    "extract",
    "fit",
    "load",
    "load_zoo",
    "propose_domains",
    "rank",
    "report",
    "run",
    "scores",
    "select_features",
    "test",
    "testbed",
    "tune",
    "use_domains",
]

# A public name is imported when it is first used, so that `import oodzoo` and `oodzoo --help` load
# neither NumPy nor Pillow.
_HOME = {
    "RunConfig": "oodzoo.pipeline",
    "Evaluation": "oodzoo.combining.evaluation",
    "FeatureStore": "oodzoo.store.feature_store",
    "ImageDomains": "oodzoo.data.dataset",
    "InputError": "oodzoo.core.errors",
    "Predictor": "oodzoo.predictor",
    "Ranking": "oodzoo.ranking.ranking",
    "SpikeSlabSelector": "oodzoo.linear.selection.selector",
    "TestResult": "oodzoo.predictor.assessment",
    "ZooClassifier": "oodzoo.predictor.estimators",
    "ZooRegressor": "oodzoo.predictor.estimators",
    "evaluate": "oodzoo.combining.evaluation",
    "extract": "oodzoo.extraction.extract",
    "fit": "oodzoo.predictor",
    "load": "oodzoo.predictor",
    "load_zoo": "oodzoo.zoo",
    "propose_domains": "oodzoo.ranking.proposing",
    "rank": "oodzoo.ranking.ranker",
    "run": "oodzoo.pipeline",
    "select_features": "oodzoo.combining.selection",
    "test": "oodzoo.predictor.testing",
    "tune": "oodzoo.predictor.tuning",
    "use_domains": "oodzoo.ranking.proposing",
}
_MODULES = ("demo", "events", "report", "scores", "testbed")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"oodzoo.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'oodzoo' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *_MODULES})
