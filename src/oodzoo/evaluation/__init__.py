"""What the models chosen without a domain reach on it."""

from oodzoo.evaluation.protocol import evaluate
from oodzoo.evaluation.result import Aggregation, Cell, Evaluation, Row

__all__ = ["Aggregation", "Cell", "Evaluation", "Row", "evaluate"]
