"""Rows of a summary as JSON."""

from __future__ import annotations

import json

from oodzoo.data.summary_rows import ClassCount, DomainSummary, Extent


def test_document_names_the_parts_of_a_row() -> None:
    row = DomainSummary(
        "day", 3, 2, ClassCount("cat", 1), ClassCount("dog", 2), width=Extent(1, 2, 4)
    )
    document = json.loads(json.dumps(row.to_dict()))
    assert document["most"] == {"label": "dog", "images": 2}
    assert document["width"] == {"smallest": 1, "median": 2, "largest": 4}
    assert (document["domain"], document["height"], document["formats"]) == ("day", None, None)
