"""The section with the provenance of a run."""

from __future__ import annotations

from pathlib import Path

from tests.report.reader import Reader

from oodzoo.record import Run, read_run
from oodzoo.report import page
from oodzoo.report.blocks import Facts
from oodzoo.report.provenance import provenance_section
from oodzoo.store.documents import sealed


def test_settings_as_text() -> None:
    settings = {"batch_size": None, "baselines": True, "deep": {"top_k": [1, 3], "fast": False}}
    command, shown = provenance_section(Run("oodzoo run", settings=settings)).blocks
    assert isinstance(command, Facts)
    assert command.command == "oodzoo run"
    assert isinstance(shown, Facts)
    assert shown.pairs == [
        ("baselines", "yes"),
        ("batch_size", "not set"),
        ("deep.fast", "no"),
        ("deep.top_k", "1, 3"),
    ]


def test_the_page_of_a_record_that_is_read_is_the_same(run: Run, tmp_path: Path) -> None:
    assert list(run.settings) != sorted(run.settings)
    (tmp_path / "run.json").write_bytes(sealed(run.to_dict()))
    assert page(read_run(tmp_path)) == page(run)


def test_all_parts_are_shown(run: Run, read: Reader) -> None:
    for text in (run.command, "onnxruntime", "Linux-6.1-x86_64", "7 min 19 s in total."):
        assert text in read.text
    assert [float(row["seconds"]) for row in read.table("times")] == [421.4, 2.31, 15.2]
    assert [row["reused"] for row in read.table("times")] == ["false", "true", "false"]


def test_a_run_with_a_command_only() -> None:
    assert Reader(page(Run("oodzoo run photos/"))).text.count("oodzoo run photos/") == 1
