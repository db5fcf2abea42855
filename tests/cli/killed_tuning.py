"""`oodzoo tune` in a process that kills itself; its parent has imported what takes long."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.cli.commands import command

from oodzoo.core.packages import import_torchvision
from oodzoo.predictor import tuning  # noqa: F401 - imported once, for all children
from oodzoo.tuning import training
from oodzoo.tuning.averages import Checkpoint, write_checkpoint

import_torchvision(extra="tune", purpose="this test")
import onnx2torch  # noqa: E402, F401 - takes seconds


def tune(kill_after: int, *arguments: str) -> None:
    """Run the command with a checkpoint after every segment; 0 does not kill it."""
    written = 0

    def write(folder: Path, checkpoint: Checkpoint) -> None:
        nonlocal written
        write_checkpoint(folder, checkpoint)
        written += 1
        if written == kill_after:
            os.kill(os.getpid(), signal.SIGKILL)

    vars(training).update(CHECKPOINT_SECONDS=0.0, write_checkpoint=write)
    command("tune", *arguments)
