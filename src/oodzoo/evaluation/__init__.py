"""Leave-one-domain-out evaluation of ranking, concatenation and feature selection."""

from oodzoo.evaluation.protocol import evaluate
from oodzoo.evaluation.result import Evaluation
from oodzoo.evaluation.rows import Aggregation, Cell, Row

__all__ = ["Aggregation", "Cell", "Evaluation", "Row", "evaluate"]
