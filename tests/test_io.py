"""Whole files or none, one writer at a time, and the disk's refusals in one line."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from oodzoo._io import (
    explaining_disk_errors,
    locked,
    npy_bytes,
    read_json,
    remove_temporaries,
    write_bytes,
    write_json,
)
from oodzoo.errors import InputError

Process = Callable[..., subprocess.Popen[str]]

HOLD = """
import sys
from pathlib import Path
from oodzoo._io import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# --- files ------------------------------------------------------------------------------------


def test_a_file_is_written_whole_and_alone(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file.bin"
    write_bytes(path, b"first")
    write_bytes(path, b"second")
    assert path.read_bytes() == b"second"
    assert names(path.parent) == ["file.bin"]


def test_content_is_synced_before_it_gets_its_name(tmp_path: Path, process: Process) -> None:
    """What the operating system is asked to do, and in which order."""
    program = """
import os, sys
from pathlib import Path
from oodzoo._io import write_bytes
calls = []
fsync = os.fsync
os.fsync = lambda fd: (calls.append("fsync " + os.readlink(f"/proc/self/fd/{fd}")), fsync(fd))
sys.addaudithook(lambda event, args: calls.append("rename") if event == "os.rename" else None)
write_bytes(Path(sys.argv[1]), b"content")
print("\\n".join(calls))
"""
    if not Path("/proc/self/fd").is_dir():
        pytest.skip("no /proc to look at open files in")
    out, err = process(program, tmp_path / "file").communicate()
    content, rename, folder = out.splitlines()
    assert (content.endswith("/.tmp-file"), rename, err) == (True, "rename", "")
    assert folder == f"fsync {tmp_path}"


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    folder = tmp_path / "taken"
    (folder / "inside").mkdir(parents=True)
    with pytest.raises(InputError, match="taken"):
        write_bytes(folder, b"a file cannot replace a folder")
    assert names(tmp_path) == ["taken"]
    assert names(folder) == ["inside"]


def test_a_file_where_a_folder_is_needed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for path in (tmp_path / "file" / "new", tmp_path / "file" / "deep" / "new"):
        with pytest.raises(InputError, match="file"):
            write_bytes(path, b"")
    assert (tmp_path / "file").read_text() == "mine"


def test_json_is_the_same_bytes_for_the_same_content(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"b": 1, "a": ["ä", None, 0.1]})
    write_json(tmp_path / "b.json", {"a": ["ä", None, 0.1], "b": 1})
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    assert read_json(tmp_path / "a.json", "it") == {"a": ["ä", None, 0.1], "b": 1}


@pytest.mark.parametrize(
    "content", [b"", b"{", b'{"a": 1', b"\xff\xfe", b"[1, 2]", b"3", b"null", b'"text"']
)
def test_damaged_json_is_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(InputError, match=r"the manifest .*x\.json.* is damaged") as caught:
        read_json(tmp_path / "x.json", "the manifest")
    assert "\n" not in str(caught.value)


def test_missing_json(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read the manifest"):
        read_json(tmp_path / "x.json", "the manifest")


@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (4, 5)])
def test_npy_bytes_are_a_npy_file(shape: tuple[int, int]) -> None:
    array = np.arange(shape[0] * shape[1], dtype=np.float32).reshape(shape)
    back = np.load(io.BytesIO(bytes(npy_bytes(np.asfortranarray(array)))), allow_pickle=False)
    np.testing.assert_array_equal(back, array)


def test_only_temporaries_are_removed(tmp_path: Path) -> None:
    for name in (".tmp-a", "deep/er/.tmp-b.npy", "tmp-c", "deep/a.tmp-"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    remove_temporaries(tmp_path)
    left = sorted(p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if p.is_file())
    assert left == ["deep/a.tmp-", "tmp-c"]


# --- the lock ---------------------------------------------------------------------------------


def test_a_second_writer_is_told_who_writes(tmp_path: Path, process: Process) -> None:
    holder = process(HOLD, tmp_path / "s")
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with (
        pytest.raises(InputError, match=rf"another process \(process {holder.pid}\)"),
        locked(tmp_path / "s"),
    ):
        pass
    holder.communicate("")
    with locked(tmp_path / "s"):
        pass
    # nothing in the folder depends on who wrote it
    assert (tmp_path / "s/.lock").read_bytes() == b""


def test_a_lock_dies_with_its_process(tmp_path: Path, process: Process) -> None:
    holder = process(HOLD, tmp_path)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with locked(tmp_path):
        assert str(holder.pid) not in (tmp_path / ".lock").read_text()


def test_a_lock_ends_with_an_error_too(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), locked(tmp_path):
        raise RuntimeError
    with locked(tmp_path):
        pass


def test_a_full_disk_can_be_locked(small_disk: Callable[[str], Path]) -> None:
    """Else nobody could open the store to make room in it."""
    disk = small_disk("size=16k")
    with pytest.raises(InputError, match="the disk is full"):
        write_bytes(disk / "big", bytes(64 << 10))
    assert names(disk) == []
    (disk / ".lock").touch()
    with contextlib.suppress(OSError), (disk / "filling").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(512))
    with locked(disk):
        assert names(disk) == [".lock", "filling"]


# --- refusals of the disk ---------------------------------------------------------------------


def test_a_read_only_disk(small_disk: Callable[[str], Path]) -> None:
    disk = small_disk("size=16k,ro")
    with pytest.raises(InputError, match="read-only"):
        write_bytes(disk / "file", b"")
    with pytest.raises(InputError, match="read-only"), locked(disk / "store"):
        pass


@pytest.fixture
def nobody() -> Iterator[Path]:
    """A folder that may not be written, seen by a user who is not root."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o555)
        root = os.geteuid() == 0
        if root:
            os.seteuid(65534)
        try:
            yield Path(name)
        finally:
            if root:
                os.seteuid(0)
            Path(name).chmod(0o700)


@pytest.mark.skipif(not hasattr(os, "seteuid"), reason="no rights of users here")
def test_a_folder_that_may_not_be_written(nobody: Path) -> None:
    for path in (nobody / "file", nobody / "new" / "file"):
        with pytest.raises(InputError, match="permission denied"):
            write_bytes(path, b"")
    for folder in (nobody, nobody / "new"):
        with pytest.raises(InputError, match="permission denied"), locked(folder):
            pass


@pytest.mark.parametrize(
    "code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.ENAMETOOLONG, errno.EIO]
)
def test_every_refusal_is_one_line_with_the_path(code: int) -> None:
    with (
        pytest.raises(InputError, match=r"^cannot write 'here'\S* .+") as caught,
        explaining_disk_errors(Path("here")),
    ):
        raise OSError(code, os.strerror(code))
    assert "\n" not in str(caught.value)
