"""Files of a store in a local folder; those at a URL are tested with the mirror."""

from __future__ import annotations

from pathlib import Path

from oodzoo.store.files import folder_size


def test_the_size_of_a_folder(tmp_path: Path) -> None:
    for name, size in (("a", 3), ("b/c", 40), ("b/d/e", 500)):
        (tmp_path / "x" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "x" / name).write_bytes(bytes(size))
    (tmp_path / "large").write_bytes(bytes(10_000))
    (tmp_path / "x/link").symlink_to(tmp_path / "large")
    link = len(str(tmp_path / "large"))
    assert folder_size(tmp_path / "x") == 543 + link
    assert folder_size(tmp_path / "nowhere") == 0
