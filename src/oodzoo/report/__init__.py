"""Reports of a run: one self-contained HTML page, and matplotlib figures."""

from __future__ import annotations

from oodzoo.report.page import page, write_report

__all__ = ["page", "write_report"]
