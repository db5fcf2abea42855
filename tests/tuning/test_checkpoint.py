"""Checkpoints: read as they were written, and absent if damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from oodzoo.tuning.kept import (
    FILE,
    Checkpoint,
    read_checkpoint,
    write_checkpoint,
)

torch = pytest.importorskip("torch")
numpy_tensors = pytest.importorskip("safetensors.numpy")


def checkpoint(step: int = 7) -> Checkpoint:
    generator = torch.Generator().manual_seed(step)

    def random(*shape: int) -> object:
        return torch.randn(*shape, generator=generator)

    return Checkpoint(
        step,
        16,
        {"features.0.weight": random(4, 3), "head.bias": random(2)},
        {"exp_avg.head.bias": random(2), "exp_avg_sq.head.bias": random(2)},
        {"numbers": random(3, 3).double(), "mean.features/odd": random(4, 3).t()},  # type: ignore[attr-defined]
    )


def test_there_and_back(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    assert read_checkpoint(folder) is None
    for step in (7, 9):  # the second replaces the first
        written = checkpoint(step)
        write_checkpoint(folder, written)
        found = read_checkpoint(folder)
        assert found is not None
        assert (found.step, found.images_per_pass) == (step, 16)
        for part in ("weights", "moments", "valley"):
            torch.testing.assert_close(getattr(found, part), getattr(written, part), rtol=0, atol=0)
    assert [each.name for each in folder.iterdir()] == [FILE]


@pytest.mark.parametrize("kept", [0, 4, 100, 500])
def test_cut_off(tmp_path: Path, kept: int) -> None:
    write_checkpoint(tmp_path, checkpoint())
    content = (tmp_path / FILE).read_bytes()
    assert len(content) > kept
    (tmp_path / FILE).write_bytes(content[:kept])
    assert read_checkpoint(tmp_path) is None


def test_temporary_files_of_a_killed_process_are_removed(tmp_path: Path) -> None:
    from oodzoo._io import temporary_name

    write_checkpoint(tmp_path, checkpoint())
    left = tmp_path / temporary_name()
    left = left.with_name(left.name.replace(left.name.split("-")[2], "999999999"))
    left.write_bytes(b"half")
    assert read_checkpoint(tmp_path) is not None
    assert not left.exists()
