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
    is_temporary,
    json_bytes,
    locked,
    name_folder,
    read_json,
    remove_temporaries,
    shown,
    write_bytes,
    write_json,
    write_new,
    write_tidily,
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

# Stops right before a change of the disk, and goes on at the end of its input.
PAUSED = """
import sys
from pathlib import Path
import oodzoo.core.io
write, event, path = sys.argv[1:]
def hook(now, args):
    if now == event:
        print("paused", flush=True)
        sys.stdin.read()
sys.addaudithook(hook)
getattr(oodzoo.core.io, write)(Path(path), b"content")
"""

# Children of one process write the same files; their parent reads meanwhile. Each child waits for
# the others right before it gives a file its name.
RACE = """
import contextlib, multiprocessing, os, sys, threading
from pathlib import Path
from oodzoo.core.io import write_new
folder, processes, paths, size = Path(sys.argv[1]), *map(int, sys.argv[2:])
files = [folder / f"{number}" for number in range(paths)]
barrier = multiprocessing.get_context("fork").Barrier(processes)
def hook(event, args):
    if event in ("os.link", "os.rename"):
        with contextlib.suppress(threading.BrokenBarrierError):
            barrier.wait(10)
children = []
for child in range(processes):
    if not (pid := os.fork()):
        sys.addaudithook(hook)
        for file in files:
            if write_new(file, b"%d" % child * size):
                os.write(1, f"{file.name} {child}\\n".encode())
        os._exit(0)
    children.append(pid)
while children:
    for file in filter(Path.exists, files):
        assert len(file.read_bytes()) == size, file
    children = [pid for pid in children if os.waitpid(pid, os.WNOHANG) == (0, 0)]
"""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# --- files ------------------------------------------------------------------------------------


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


@POSIX
def test_one_of_many_processes_creates_a_file(tmp_path: Path, process: Process) -> None:
    race = process(RACE, tmp_path, 8, 50, 100_000)
    out, err = race.communicate()
    assert race.returncode == 0, err
    winners = [line.split() for line in out.splitlines()]
    assert sorted(int(name) for name, _ in winners) == list(range(50))
    for name, winner in winners:
        assert (tmp_path / name).read_text() == winner * 100_000
    assert len(names(tmp_path)) == 50


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
def test_names_and_rights(write: Write, tmp_path: Path) -> None:
    """A name may be as long as the disk allows; the umask decides who may read."""
    before = os.umask(0o027)
    try:
        write(tmp_path / ("x" * 255), b"content")
        with locked(tmp_path):
            pass
    finally:
        os.umask(before)
    assert names(tmp_path) == [".lock", "x" * 255]
    for name in names(tmp_path):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o640


def test_a_file_and_a_folder_in_each_others_place(tmp_path: Path) -> None:
    (tmp_path / "taken/inside").mkdir(parents=True)
    (tmp_path / "file").write_text("mine")
    for path in ("taken", "file/new", "file/deep/new"):
        with pytest.raises(InputError, match=path.partition("/")[0]):
            write_bytes(tmp_path / path, b"")
    assert (tmp_path / "file").read_text() == "mine"
    assert names(tmp_path) == ["file", "taken"]
    assert names(tmp_path / "taken") == ["inside"]


DAMAGED = [b"", b"{", b'{"a": 1', b"\xff\xfe", b"[1, 2]", b"3", b"null", b'"text"']


def test_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same content gives the same bytes; damage is said in one line."""
    document, path = {"b": 1, "a": ["ä", None, 0.1]}, tmp_path / "mirror/a.json"
    write_json(path, {"a": ["ä", None, 0.1], "b": 1})
    assert path.read_bytes() == json_bytes(document)
    assert read_json(path, "it") == document
    name_folder(tmp_path / "mirror", "s3://bucket/x")
    assert shown(tmp_path / "mirror") == "s3://bucket/x"
    assert shown(tmp_path / "mirror2") == str(tmp_path / "mirror2")
    for content in DAMAGED:
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"^the list 's3://bucket/x/a\.json' is damaged: .+$"):
            read_json(path, "the list")
    with pytest.raises(InputError, match="cannot read it 's3://bucket/x/none'"):
        read_json(tmp_path / "mirror/none", "it")
    synced: list[int] = []
    monkeypatch.setattr("os.fsync", synced.append)
    for durable in (False, True):  # only durable files wait for the disk
        write_tidily(path, b"content", durable=durable)
        assert bool(synced) == durable


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


# --- temporaries ------------------------------------------------------------------------------


@POSIX
@pytest.mark.parametrize(
    ("write", "event", "left"),
    [("write_bytes", "os.rename", 0), ("write_new", "os.link", 0), ("write_new", "os.remove", 1)],
)
def test_only_the_temporary_of_a_killed_writer_is_removed(
    write: str, event: str, left: int, tmp_path: Path, process: Process
) -> None:
    def paused_writer(name: str) -> tuple[subprocess.Popen[str], str]:
        before = names(tmp_path)
        writer = process(PAUSED, write, event, tmp_path / name)
        assert writer.stdout is not None
        assert writer.stdout.readline() == "paused\n"
        (temporary,) = {n for n in names(tmp_path) if is_temporary(n)} - set(before)
        return writer, temporary

    killed, stale = paused_writer("a")
    living, used = paused_writer("b")
    remove_temporaries(tmp_path)
    assert {stale, used} <= set(names(tmp_path))
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    remove_temporaries(tmp_path)
    assert [n for n in names(tmp_path) if is_temporary(n)] == [used]
    assert living.communicate("")[1] == ""
    assert names(tmp_path) == ["a", "b"][1 - left :]
    assert {(tmp_path / n).read_bytes() for n in names(tmp_path)} == {b"content"}


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


@POSIX
def test_the_temporaries_of_another_user_stay(process: Process) -> None:
    """Process 1 belongs to root."""
    program = """
import os, sys
from pathlib import Path
from oodzoo.core.io import _machine, remove_temporaries
_machine()
if os.geteuid() == 0:
    os.setuid(65534)
remove_temporaries(Path(sys.argv[1]))
"""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        kept = f".tmp-{MACHINE}-1-0123456789abcdef"
        for temporary in (kept, STALE, f"private/{STALE}"):
            write_bytes(Path(name, temporary), b"")
        for temporary in (STALE, f"private/{STALE}"):
            make_old(Path(name, temporary))
        Path(name, "private").chmod(0o755)
        if os.geteuid() != 0:
            Path(name, "private").chmod(0o555)
        assert process(program, name).communicate() == ("", "")
        assert names(Path(name)) == [kept, "private"]
        assert names(Path(name, "private")) == [STALE]
        Path(name, "private").chmod(0o755)


# --- the lock ---------------------------------------------------------------------------------


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


@POSIX
@pytest.mark.parametrize("shared", [False, True])
def test_a_lock_is_not_a_link(shared: bool, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "outside").write_text("mine")
    for target in ("outside", "new"):
        (folder / ".lock").symlink_to(f"../{target}")
        with (
            pytest.raises(InputError, match=r"folder/\.lock' is a symbolic link") as caught,
            locked(folder, shared=shared),
        ):
            pass
        assert "\n" not in str(caught.value)
        (folder / ".lock").unlink()
    assert (tmp_path / "outside").read_text() == "mine"
    assert names(tmp_path) == ["folder", "outside"]


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
    for code in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ENAMETOOLONG, errno.EIO):
        with (
            pytest.raises(InputError, match=r"^cannot write 'here'\S* .+$"),
            explaining_disk_errors(Path("here")),
        ):
            raise OSError(code, os.strerror(code))
    for path in (nobody / "file", nobody / "new" / "file"):
        with pytest.raises(InputError, match="permission denied"):
            write_bytes(path, b"")
    for folder in (nobody, nobody / "new"):
        with pytest.raises(InputError, match="permission denied"), locked(folder):
            pass
