"""`oodzoo demo` does not overwrite other data; `make demo` runs it as a whole."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import Run


def test_a_folder_with_other_data_is_rejected(run: Run, tmp_path: Path) -> None:
    photo = tmp_path / "data" / "holiday" / "a.png"
    photo.parent.mkdir(parents=True)
    photo.write_text("precious")
    complaint = run("demo", "--out", tmp_path).complaint
    assert "'holiday', which was not written by the demo" in complaint
    assert photo.read_text() == "precious"
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
