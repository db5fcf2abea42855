"""The report of a run: one self-contained page, and its pictures as files."""

from __future__ import annotations

from oodzoo.report.page import page, write_report

__all__ = ["page", "write_report"]
