"""Whole files or none, one writer at a time, and the disk's refusals in one line."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import platform
import re
import secrets
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from oodzoo.core.errors import DiskError, InputError
from oodzoo.core.io import (
    explaining_disk_errors,
    locked,
    remove_temporaries,
    write_bytes,
    write_new,
)

Process = Callable[..., subprocess.Popen[str]]

Write = Callable[[Path, bytes], bool | None]

WRITES = pytest.mark.parametrize("write", [write_bytes, write_new])
POSIX = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork, SIGKILL and hard links")
_PROCESSES = Path("/proc/self/ns/pid")  # the process numbers that a container sees
MACHINE = hashlib.sha256(
    (platform.node() + (str(_PROCESSES.readlink()) if _PROCESSES.is_symlink() else "")).encode()
).hexdigest()[:8]

HOLD = """
import sys
from pathlib import Path
from oodzoo.core.io import locked
with locked(Path(sys.argv[1]), shared=sys.argv[2:] == ["shared"]):
    print("held", flush=True)
    sys.stdin.read()
"""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@WRITES
def test_content_is_synced_before_it_gets_its_name(
    write: Write, tmp_path: Path, process: Process
) -> None:
    """What the operating system is asked to do, and in which order."""
    program = """
import os, sys
from pathlib import Path
import oodzoo.core.io
calls = []
fsync = os.fsync
os.fsync = lambda fd: (calls.append(os.readlink(f"/proc/self/fd/{fd}")), fsync(fd))
sys.addaudithook(
    lambda event, args: calls.append(event) if event in ("os.rename", "os.link") else None
)
getattr(oodzoo.core.io, sys.argv[1])(Path(sys.argv[2]), b"content")
print("\\n".join(calls))
"""
    if not Path("/proc/self/fd").is_dir():
        pytest.skip("no /proc to look at open files in")
    writer = process(program, write.__name__, tmp_path / "file")
    out, err = writer.communicate()
    content, rename, folder = out.splitlines()
    assert re.fullmatch(
        rf"{re.escape(str(tmp_path))}/\.tmp-{MACHINE}-{writer.pid}-[0-9a-f]{{16}}", content
    )
    assert (rename, err) == ("os.rename" if write is write_bytes else "os.link", "")
    assert folder == str(tmp_path)


def test_a_new_file_replaces_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("missing")
    before = names(tmp_path)
    for name in before:
        assert not write_new(tmp_path / name, b"content")
    assert names(tmp_path) == before
    assert (tmp_path / "file").read_bytes() == b""
    assert write_new(tmp_path / "a/b/new", b"content")
    assert not write_new(tmp_path / "a/b/new", b"other")
    assert (tmp_path / "a/b/new").read_bytes() == b"content"
    assert names(tmp_path / "a/b") == ["new"]


@POSIX
@pytest.mark.parametrize("code", [errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS])
def test_a_disk_without_hard_links(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def twice(source: Path, target: Path) -> None:
        """Repeat a request as a network disk does whose reply was lost."""
        link(source, target)
        link(source, target)

    monkeypatch.setattr(os, "link", twice)
    assert write_new(tmp_path / "repeated", b"content")
    (tmp_path / "repeated").unlink()
    monkeypatch.setattr(os, "link", refusal(errno.ENOSPC))
    with pytest.raises(DiskError, match="the disk is full"):
        write_new(tmp_path / "file", b"content")
    assert names(tmp_path) == []
    monkeypatch.setattr(os, "link", refusal(code))
    assert write_new(tmp_path / "file", b"content")
    assert not write_new(tmp_path / "file", b"other")
    assert (tmp_path / "file").read_bytes() == b"content"
    (tmp_path / "link").symlink_to("missing")
    assert not write_new(tmp_path / "link", b"content")
    assert names(tmp_path) == ["file", "link"]
    assert (tmp_path / "link").is_symlink()


def refusal(code: int) -> Callable[[Path, Path], None]:
    def refuse(source: Path, target: Path) -> None:
        raise OSError(code, os.strerror(code))

    return refuse


@WRITES
def test_a_planted_link_is_not_followed(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "outside").write_text("mine")
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.setattr(secrets, "token_hex", lambda n: "0" * 2 * n)
    planted = [folder / ".tmp-file", folder / f".tmp-{MACHINE}-{os.getpid()}-{'0' * 16}"]
    for link in planted:
        link.symlink_to("../outside")
    with pytest.raises(DiskError):
        write(folder / "file", b"content")
    planted[1].unlink()
    write(folder / "file", b"content")
    assert (tmp_path / "outside").read_text() == "mine"
    assert names(folder) == [".tmp-file", "file"]
    assert (folder / "file").read_bytes() == b"content"


def test_old_temporaries_are_removed(tmp_path: Path) -> None:
    """Those of another machine may be in use for a day; this process is still running."""
    random = "0123456789abcdef"
    writers = [f"{MACHINE}-{os.getpid()}", f"{int(MACHINE, 16) ^ 1:08x}-99999"]
    for age in (0, 23, 25):
        for writer in writers:
            path = tmp_path / f"{age}" / f".tmp-{writer}-{random}"
            write_bytes(path, b"half of")
            os.utime(path, (path.stat().st_mtime - age * 3600,) * 2)
    remove_temporaries(tmp_path)
    assert [len(names(tmp_path / f"{age}")) for age in (0, 23, 25)] == [2, 2, 0]


STALE = ".tmp-01234567-99999-0123456789abcdef"


def make_old(path: Path) -> None:
    os.utime(path, (0, 0), follow_symlinks=False)


def test_only_temporaries_are_removed(tmp_path: Path) -> None:
    """A name that starts alike is not enough."""
    outside = tmp_path / "outside"
    write_bytes(outside / STALE, b"")
    make_old(outside / STALE)
    folder = tmp_path / "folder"
    kept = [".tmp-a", f"{STALE}.npy", ".tmp-folder/d", f"deep/a{STALE}", f"deep/{STALE[:-1]}"]
    for name in (STALE, f"deep/er/{STALE}", *kept):
        write_bytes(folder / name, b"")
        make_old(folder / name)
    (folder / "links").mkdir()
    (folder / "links" / STALE).symlink_to(folder / ".tmp-a")
    make_old(folder / "links" / STALE)
    (folder / "links" / STALE.replace("a", "b")).symlink_to(outside)
    (folder / "links/outside").symlink_to(outside)
    remove_temporaries(folder)
    left = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if not p.is_dir())
    assert left == sorted(kept)
    assert names(outside) == [STALE]


def hold(process: Process, folder: Path, *shared: str) -> subprocess.Popen[str]:
    holder = process(HOLD, folder, *shared)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    return holder


def refused(folder: Path, owner: str, *, shared: bool = False) -> None:
    with (
        pytest.raises(InputError, match=rf"being written by another process{owner}; wait"),
        locked(folder, shared=shared),
    ):
        pass


@POSIX
def test_who_excludes_whom(tmp_path: Path, process: Process) -> None:
    """An exclusive lock all others, shared ones only exclusive ones; it ends with its process."""
    holder = hold(process, tmp_path / "s")
    for shared in (False, True):
        refused(tmp_path / "s", rf" \(process {holder.pid}\)", shared=shared)
    holder.communicate("")
    with pytest.raises(RuntimeError), locked(tmp_path / "s"):
        raise RuntimeError
    with locked(tmp_path / "s"):  # an error ends it, too
        (tmp_path / "s/.lock").write_text("process 1\nmore")
        refused(tmp_path / "s", "")
    # nothing in the folder depends on who wrote it
    assert (tmp_path / "s/.lock").read_bytes() == b""
    killed = hold(process, tmp_path / "s")
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    holders = [hold(process, tmp_path / "s", "shared") for _ in range(2)]
    with locked(tmp_path / "s", shared=True):
        assert (tmp_path / "s/.lock").read_bytes() == b""
    for holder in holders:
        refused(tmp_path / "s", "")  # the number of the killed process is not reported
        holder.communicate("")
    with locked(tmp_path / "s"):
        assert str(killed.pid) not in (tmp_path / "s/.lock").read_text()


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


@contextlib.contextmanager
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
def test_a_folder_that_may_not_be_written() -> None:
    for code in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ENAMETOOLONG, errno.EIO):
        with (
            pytest.raises(InputError, match=r"^cannot write 'here'\S* .+$"),
            explaining_disk_errors(Path("here")),
        ):
            raise OSError(code, os.strerror(code))
    with nobody() as denied:  # no fixture: only the test itself is another user
        for folder in (denied, denied / "new"):
            with pytest.raises(InputError, match="permission denied"):
                write_bytes(folder / "file", b"")
            with pytest.raises(InputError, match="permission denied"), locked(folder):
                pass
