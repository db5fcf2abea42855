"""Leave-one-domain-out evaluation of ranking, concatenation and feature selection."""

from oodzoo.combining.evaluation.protocol import evaluate
from oodzoo.combining.evaluation.result import Evaluation
from oodzoo.combining.evaluation.rows import Aggregation, Cell, Row

__all__ = ["Aggregation", "Cell", "Evaluation", "Row", "evaluate"]
