"""The versions of remote files that a mirror has."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from oodzoo.errors import DiskError
from oodzoo.store.mirror_state import Known, changing


def test_files_are_put_and_dropped(tmp_path: Path) -> None:
    with changing(tmp_path / "new/state.db") as state:
        assert state.read() == {}
        state.put([("a", Known("1", 5)), ("b", Known("2", None))])
    with changing(tmp_path / "new/state.db") as state:
        state.put([("a", Known("3", 6))])
        state.drop(["b", "c"])
        assert state.read() == {"a": Known("3", 6)}


def test_nothing_is_changed_if_an_error_is_raised(tmp_path: Path) -> None:
    with changing(tmp_path / "state.db") as state:
        state.put([("a", Known("1", 5))])

    def fail() -> None:
        with changing(tmp_path / "state.db") as state:
            state.drop(["a"])
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    with changing(tmp_path / "state.db") as state:
        assert state.read() == {"a": Known("1", 5)}


def test_changes_wait_for_each_other(tmp_path: Path) -> None:
    inside = threading.Event()
    order = []

    def change() -> None:
        inside.wait()
        with changing(tmp_path / "state.db") as state:
            order.append(("second", len(state.read())))

    thread = threading.Thread(target=change)
    thread.start()
    with changing(tmp_path / "state.db") as state:
        inside.set()
        thread.join(0.2)  # it waits
        state.put([("a", Known("1", 5))])
        order.append(("first", 0))
    thread.join()
    assert order == [("first", 0), ("second", 1)]


def test_a_damaged_file(tmp_path: Path) -> None:
    (tmp_path / "state.db").write_bytes(b"x" * 5000)
    with pytest.raises(DiskError, match="delete this folder"), changing(tmp_path / "state.db"):
        pass
