"""The record of a run: stages that are skipped, done again, or were never reached."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from oodzoo.errors import InputError
from oodzoo.record import NAME, Record, read_record


def counted(calls: list[str], name: str) -> Callable[[], dict[str, Any]]:
    def work() -> dict[str, Any]:
        calls.append(name)
        return {"result": 1}

    return work


def run(folder: Path, calls: list[str], inputs: Sequence[Any]) -> list[bool]:
    record = Record(folder, "oodzoo run", {"seed": 3})
    skipped = [
        record.stage(name, given, counted(calls, name))[1]
        for name, given in zip(("one", "two"), inputs, strict=True)
    ]
    record.finish()
    return skipped


def test_a_stage_with_the_same_inputs_is_skipped(tmp_path: Path) -> None:
    calls: list[str] = []
    assert run(tmp_path, calls, [1, {"a": 2}]) == [False, False]
    assert run(tmp_path, calls, [1, {"a": 2}]) == [True, True]
    assert calls == ["one", "two"]
    assert run(tmp_path, calls, [1, {"a": 3}]) == [True, False]
    document = read_record(tmp_path)
    assert document["one"] == {"result": 1}
    assert [s["skipped"] for s in document["stages"]] == [True, False]
    assert all(s["seconds"] >= 0 for s in document["stages"])
    assert document["seed"] == 3
    assert document["versions"]["oodzoo"]


def test_a_run_that_was_stopped_goes_on(tmp_path: Path) -> None:
    calls: list[str] = []
    record = Record(tmp_path, "oodzoo run", {})
    record.stage("one", 1, counted(calls, "one"))

    def fails() -> dict[str, Any]:
        raise RuntimeError("stopped")

    with pytest.raises(RuntimeError):
        record.stage("two", 2, fails)
    assert run(tmp_path, calls, [1, 2]) == [True, False]
    assert calls == ["one", "two"]


def test_later_stages_are_kept_when_an_early_one_changes_and_stops(tmp_path: Path) -> None:
    calls: list[str] = []
    run(tmp_path, calls, [1, 2])
    Record(tmp_path, "oodzoo run", {}).stage("one", "other", counted(calls, "one"))
    assert "earlier" in json.loads((tmp_path / NAME).read_text())
    assert run(tmp_path, calls, ["other", 2]) == [True, True]
    assert "earlier" not in json.loads((tmp_path / NAME).read_text())


def test_a_stage_whose_result_is_gone_is_done_again(tmp_path: Path) -> None:
    calls: list[str] = []
    run(tmp_path, calls, [1, 2])
    record = Record(tmp_path, "oodzoo run", {})
    _, skipped = record.stage("one", 1, counted(calls, "one"), holds=lambda document: False)
    assert not skipped


def test_a_stage_can_be_forgotten(tmp_path: Path) -> None:
    calls: list[str] = []
    record = Record(tmp_path, "oodzoo run", {})
    record.stage("one", 1, counted(calls, "one"))
    record.forget("one")
    assert run(tmp_path, calls, [1, 2]) == [False, False]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "is damaged"),
        ("[]", "holds no JSON object"),
        ('{"schema": 99}', "schema 99, this oodzoo knows 1; update oodzoo"),
        ('{"schema": null}', "schema None.*in another folder"),
    ],
)
def test_a_record_of_another_kind_is_refused(tmp_path: Path, content: str, reason: str) -> None:
    (tmp_path / NAME).write_text(content)
    with pytest.raises(InputError, match=reason):
        Record(tmp_path, "oodzoo run", {})


def test_a_folder_without_a_record(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"has no run\.json; make one with oodzoo run"):
        read_record(tmp_path)
