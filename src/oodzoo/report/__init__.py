"""Reports of a run or a test: one self-contained HTML page, and its charts as SVG."""

from __future__ import annotations

from oodzoo.report.assessment_page import write_test_report
from oodzoo.report.page import page, write_report

__all__ = ["page", "write_report", "write_test_report"]
