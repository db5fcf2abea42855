"""Writes event files for TensorBoard."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

from oodzoo._io import explaining_disk_errors
from oodzoo._packages import optional_package
from oodzoo.events.tracking import Tracker


class TensorBoardListener(Tracker):
    """Writes metrics as scalars for TensorBoard; facts of starts and ends, and paths, as text.

    Each call adds an event file to the folder. PyTorch is not needed.

    Parameters
    ----------
    folder : path
        Created if missing. TensorBoard shows each folder as one run.

    Raises
    ------
    InputError
        If the package `tensorboard` is not installed, or the folder cannot be written.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        super().__init__()
        self._new_writer = _package("summary.writer.event_file_writer").EventFileWriter
        self._new_event = _package("compat.proto.event_pb2").Event
        self._summary = _package("compat.proto.summary_pb2").Summary
        self._tensor = _package("compat.proto.tensor_pb2").TensorProto
        self._text_type = _package("compat.proto.types_pb2").DT_STRING
        self._text_metadata = _package("plugins.text.metadata").create_summary_metadata(None, None)
        self._folder = Path(folder).resolve()
        self._writer: Any = None
        with explaining_disk_errors(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=self._folder).close()

    def metric(self, stage: str, name: str, value: float, *, step: int | None = None) -> None:
        self._add(step or 0, tag=f"{stage}/{name}", simple_value=value)

    def artifact(self, stage: str, path: Path) -> None:
        self._tag(f"{stage}/{path.name}", str(path.resolve()))

    def _open_run(self, stage: str) -> None:
        self._writer = self._new_writer(str(self._folder))

    def _parameters(self, values: dict[str, str]) -> None:
        for name, value in values.items():
            self._tag(name, value)

    def _tag(self, name: str, value: str) -> None:
        text = [value.encode(errors="backslashreplace")]
        tensor = self._tensor(dtype=self._text_type, string_val=text)
        self._add(0, tag=name, metadata=self._text_metadata, tensor=tensor)

    def _close_run(self, *, failed: bool) -> None:
        self._writer.close()
        self._writer = None

    def _add(self, step: int, **value: Any) -> None:
        summary = self._summary(value=[self._summary.Value(**value)])
        event = self._new_event(wall_time=time.time(), step=step, summary=summary)
        if self._writer is not None:
            self._writer.add_event(event)
            return
        writer = self._new_writer(str(self._folder))  # after the end
        writer.add_event(event)
        writer.close()


def _package(name: str) -> Any:
    return optional_package(
        f"tensorboard.{name}", extra="tensorboard", purpose="writing events for TensorBoard"
    )
