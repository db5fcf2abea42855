"""Tests of a predictor on labelled data: what it gets right and wrong, and what was expected."""

from __future__ import annotations

from oodzoo.predictor.assessment.result import TestResult
from oodzoo.predictor.assessment.testing import test

__all__ = ["TestResult", "test"]
