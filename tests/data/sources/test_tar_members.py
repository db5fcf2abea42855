"""Members of tar archives, and archives that are damaged."""

from __future__ import annotations

import gzip
import io
import subprocess
import tarfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.data.sources.archives import write_tar
from tests.store.data import refusal as refused

from oodzoo.data.sources.tar import Member, list_members
from oodzoo.errors import InputError

TWO = {"a/1.png": b"x" * 700, "a/2.png": b"y" * 512}


def refusal(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        list_members(path, "the tar")
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith("'the tar'")
    return message


@pytest.fixture
def two(tmp_path: Path) -> Path:
    return write_tar(tmp_path / "two.tar", TWO)


def test_offsets(two: Path) -> None:
    assert list_members(two, "") == [Member("a/1.png", 512, 700), Member("a/2.png", 2048, 512)]
    content = two.read_bytes()
    assert {m.name: content[m.offset : m.offset + m.size] for m in list_members(two, "")} == TWO


@pytest.mark.parametrize("size", [1, 511, 512, 900, 1536, 1800, 2048, 2300, 2560, 2900])
def test_truncated(two: Path, size: int) -> None:
    two.write_bytes(two.read_bytes()[:size])
    message = refusal(two)
    assert "is truncated" in message or (size < 512 and "not a tar file" in message)


def test_the_padding_after_the_end_may_be_missing(two: Path) -> None:
    two.write_bytes(two.read_bytes()[: 2560 + 512])
    assert len(list_members(two, "")) == 2


@pytest.mark.parametrize(
    "content", [b"", b"x", b"path,domain,label\n" * 100, b"\x89PNG" + bytes(2000)]
)
def test_not_a_tar(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.tar").write_bytes(content)
    assert "is not a tar file" in refusal(tmp_path / "x.tar")


def test_empty_archive(tmp_path: Path) -> None:
    assert list_members(write_tar(tmp_path / "x.tar", {}), "") == []


def test_compressed(two: Path) -> None:
    two.write_bytes(gzip.compress(two.read_bytes()))
    assert "is compressed" in (message := refusal(two))
    assert "gunzip" in message


def test_damaged_header(two: Path) -> None:
    content = bytearray(two.read_bytes())
    content[1536 + 10] ^= 1
    two.write_bytes(content)
    assert "is damaged: there is no header at byte 1,536" in refusal(two)


def test_concatenated_archives(two: Path) -> None:
    two.write_bytes(two.read_bytes() * 2)
    assert "has data after its end mark, at byte 2,560" in refusal(two)


def test_member_twice(two: Path) -> None:
    with tarfile.open(two, "a") as archive:
        archive.addfile(tarfile.TarInfo("./a/2.png"), io.BytesIO())
    assert refusal(two) == "'the tar' has the member 'a/2.png' twice"


@pytest.mark.parametrize("name", ["../1.png", "a/../../1.png", "..", "/../1.png", "."])
def test_name_that_leads_outside(tmp_path: Path, name: str) -> None:
    path = write_tar(tmp_path / "x.tar", {name: b""})
    assert f"a member whose name leads outside: {name!r}" in refusal(path)


def test_name_that_is_not_utf8(tmp_path: Path) -> None:
    path = write_tar(
        tmp_path / "x.tar", {"caf\udce9.png": b""}, tarfile.GNU_FORMAT, errors="surrogateescape"
    )
    message = refusal(path)
    assert "whose name is not UTF-8" in message
    message.encode()


def test_member_with_holes(tmp_path: Path) -> None:
    with (tmp_path / "1.png").open("wb") as file:
        file.seek(1 << 20)
        file.write(b"x")
    if Path(file.name).stat().st_blocks > 1000:
        pytest.skip("this file system writes holes")
    subprocess.run(["tar", "--sparse", "-cf", "x.tar", "1.png"], check=True, cwd=tmp_path)
    assert "'1.png' is stored with holes" in refusal(tmp_path / "x.tar")


def test_folders_devices_and_hidden_members_are_left_out(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "x.tar", {".x/1.png": b"", "a/._1.png": b"", "a/1.png": b"1"})
    with tarfile.open(path, "a") as archive:
        for name, kind in (("b.png", tarfile.FIFOTYPE), ("c.png", tarfile.DIRTYPE)):
            info = tarfile.TarInfo(name)
            info.type = kind
            archive.addfile(info)
    assert [member.name for member in list_members(path, "")] == ["a/1.png"]


def test_size_that_leads_back(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        for name, headers in (("a.png", {}), ("b.png", {"size": "-1536"})):
            info = tarfile.TarInfo(name)
            info.pax_headers = headers
            archive.addfile(info)
    assert "is damaged: there is no header at byte 512" in refusal(path)


@given(st.integers(0, 3071), st.binary(min_size=1, max_size=12))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_damaged_archives_are_read_or_refused(two: Path, at: int, content: bytes) -> None:
    write_tar(two, TWO)
    damaged = bytearray(two.read_bytes())
    damaged[at : at + len(content)] = content
    two.write_bytes(damaged)
    members: list[Member] = []
    problem = refused(lambda: members.extend(list_members(two, "the tar")))
    assert len(problem.splitlines()) <= 1
    assert len(members) <= 2
    assert all(0 < member.offset <= member.offset + member.size <= 2560 for member in members)
