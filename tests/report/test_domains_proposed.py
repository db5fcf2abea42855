"""What the report says next to proposed domains."""

from __future__ import annotations

import dataclasses

import oodzoo
from oodzoo.record import DataSummary
from oodzoo.report.data import data_section
from oodzoo.report.domains import domains_section
from oodzoo.report.domains_proposed import proposed_line


def test_the_line_is_next_to_domains_that_are_proposed(store: oodzoo.FeatureStore) -> None:
    line = proposed_line("camera")
    assert "proposed by camera, not given" in line
    data = DataSummary("photos", "f", 1, ("cat",), {"canon": {"cat": 1}})
    ranking = oodzoo.rank(store)
    assert line not in data_section(data).lead
    assert line not in domains_section(ranking).lead
    proposed = dataclasses.replace(data, domains_proposed="camera")
    assert line in data_section(proposed).lead
    assert line in domains_section(dataclasses.replace(ranking, domains_proposed="camera")).lead
    assert proposed_line(None) == ""
