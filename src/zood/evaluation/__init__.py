"""What the networks chosen without a domain reach on it."""

from zood.evaluation.protocol import evaluate
from zood.evaluation.result import Aggregation, Cell, Evaluation, Row

__all__ = ["Aggregation", "Cell", "Evaluation", "Row", "evaluate"]
