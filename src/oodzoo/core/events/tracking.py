"""Listeners that keep what they hear: a log file, MLflow and TensorBoard."""

from __future__ import annotations

import json
import logging
import math
import os
import re
import socket
import tempfile
import time
from abc import ABC, abstractmethod
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from oodzoo.core.errors import InputError
from oodzoo.core.events.listener import Listener, plain_facts
from oodzoo.core.io import explaining_disk_errors
from oodzoo.core.packages import optional_package
from oodzoo.core.text import one_line, printable


class Tracker(Listener, ABC):
    """Opens a run when a stage starts, and closes it when that stage ends.

    Stages within it are part of the same run. Of a start, the facts are parameters; if a stage
    starts again within a run, those of its first start.
    """

    def __init__(self) -> None:
        self._open: list[str] = []
        self._known: set[str] = set()

    def start(self, stage: str, **facts: Any) -> None:
        if not self._open:
            self._known.clear()
            self._open_run(stage)
        self._open.append(stage)
        described = {f"{stage}/{name}": _text(value) for name, value in plain_facts(facts).items()}
        self._parameters({n: text for n, text in described.items() if n not in self._known})
        self._known |= described.keys()

    def end(self, stage: str, **facts: Any) -> None:
        if not self._open:
            return
        self._tag(f"{stage}/status", facts["status"])
        if "error" in facts:
            self._tag(f"{stage}/error", facts["error"])
        if "seconds" in facts:
            self.metric(stage, "seconds", facts["seconds"])
        if stage in self._open:
            self._open.remove(stage)
            if not self._open:
                self._close_run(failed=facts["status"] == "failed")

    @abstractmethod
    def _open_run(self, stage: str) -> None:
        """A run begins with this stage."""

    @abstractmethod
    def _parameters(self, values: dict[str, str]) -> None:
        """Add parameters to the run."""

    @abstractmethod
    def _tag(self, name: str, value: str) -> None:
        """Set a tag of the run."""

    @abstractmethod
    def _close_run(self, *, failed: bool) -> None:
        """The run ends."""


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


_LONGEST = 6000
_PORTS = {"http": 80, "https": 443}


class MLflowListener(Tracker):
    """Tracks each call in a run of MLflow: parameters, metrics, files.

    Facts of a start are parameters, files are artifacts. A folder, such as a feature store, is only
    named, as a tag. Characters that MLflow does not allow in a name are replaced by their code.

    Parameters
    ----------
    uri : str
        Where MLflow tracks, such as "sqlite:///mlflow.db" or the address of a server. Artifacts of
        a SQLite database are in the folder `mlruns` next to it.
    experiment : str
        Name of the experiment; it is created if missing.
    run_name : str, optional
        Name of the runs; by default that of the first stage.

    Raises
    ------
    InputError
        If MLflow cannot be used, or cannot track there.
    """

    def __init__(
        self, uri: str, *, experiment: str = "oodzoo", run_name: str | None = None
    ) -> None:
        super().__init__()
        mlflow = _mlflow_package("mlflow")
        if uri.startswith("sqlite:"):
            _mlflow_package("alembic")  # imports SQLAlchemy, too
        logging.getLogger("mlflow.store.db").setLevel(logging.WARNING)
        self._entities = mlflow.entities
        self._run_name = run_name
        self._run = ""
        self._metrics: list[Any] = []
        try:
            _require_answer(uri)
            self._client = mlflow.MlflowClient(tracking_uri=uri)
            found = self._client.get_experiment_by_name(experiment)
            self._experiment = (
                self._client.create_experiment(experiment, _artifacts(uri))
                if found is None
                else found.experiment_id
            )
        except Exception as error:
            raise InputError(f"MLflow cannot track in {uri!r}: {one_line(error)}") from error

    def metric(self, stage: str, name: str, value: float, *, step: int | None = None) -> None:
        now = int(1000 * time.time())
        key = _allowed(f"{stage}/{name}")
        self._metrics.append(self._entities.Metric(key, float(value), now, step or 0))

    def progress(self, stage: str, done: int, total: int, **facts: Any) -> None:
        self._flush()

    def artifact(self, stage: str, path: Path) -> None:
        if path.is_dir():
            self._tag(f"{stage}/{path.name}", str(path.resolve()))
        else:
            self._client.log_artifact(self._run, str(path), stage)

    def _open_run(self, stage: str) -> None:
        name = self._run_name or stage
        self._run = self._client.create_run(self._experiment, run_name=name).info.run_id

    def _parameters(self, values: dict[str, str]) -> None:
        for name, value in values.items():
            self._client.log_param(self._run, _allowed(name), value[:_LONGEST])

    def _tag(self, name: str, value: str) -> None:
        self._client.set_tag(self._run, _allowed(name), value)

    def _close_run(self, *, failed: bool) -> None:
        self._flush()
        self._client.set_terminated(self._run, "FAILED" if failed else "FINISHED")

    def _flush(self) -> None:
        if self._metrics:
            self._client.log_batch(self._run, metrics=self._metrics)
            self._metrics = []


def _mlflow_package(name: str) -> Any:
    return optional_package(name, extra="mlflow", purpose="tracking in MLflow")


def _require_answer(uri: str) -> None:
    """Fail at once if no server answers: MLflow would try for minutes."""
    parts = urlsplit(uri)
    if parts.scheme in _PORTS:
        address = (parts.hostname or "", parts.port or _PORTS[parts.scheme])
        socket.create_connection(address, timeout=10).close()


def _artifacts(uri: str) -> str | None:
    """Where artifacts go: next to a SQLite database, or where the server says."""
    if not uri.startswith("sqlite:///"):
        return None
    database = Path(uri.removeprefix("sqlite:///").partition("?")[0])
    return (database.resolve().parent / "mlruns").as_uri()


def _allowed(name: str) -> str:
    """A name that MLflow takes: other characters are replaced by their code."""
    return re.sub(r"[^\w./ -]", lambda found: f"_{ord(found.group()):x}_", name)


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
        self._new_writer = _tensorboard_package("summary.writer.event_file_writer").EventFileWriter
        self._new_event = _tensorboard_package("compat.proto.event_pb2").Event
        self._summary = _tensorboard_package("compat.proto.summary_pb2").Summary
        self._tensor = _tensorboard_package("compat.proto.tensor_pb2").TensorProto
        self._text_type = _tensorboard_package("compat.proto.types_pb2").DT_STRING
        self._text_metadata = _tensorboard_package("plugins.text.metadata").create_summary_metadata(
            None, None
        )
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


def _tensorboard_package(name: str) -> Any:
    return optional_package(
        f"tensorboard.{name}", extra="tensorboard", purpose="writing events for TensorBoard"
    )


_SECONDS = 1.0


class LogFile(Listener):
    """Appends one line for each event to a file: JSON if its name ends in `.jsonl`, else text.

    Of the progress of a stage, about one line a second is written, and all messages and failures.
    Several processes may append to the same file.

    Parameters
    ----------
    path : path

    Raises
    ------
    DiskError
        If the file cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path).resolve()
        self._json = self._path.suffix == ".jsonl"
        self._written: dict[str, float] = {}  # when, by stage
        with explaining_disk_errors(self._path):
            self._append("")

    def start(self, stage: str, **facts: Any) -> None:
        self._written.pop(stage, None)
        self._write(stage, "start", facts)

    def progress(self, stage: str, done: int, total: int, **facts: Any) -> None:
        now = time.monotonic()
        due = now - self._written.get(stage, -math.inf) >= _SECONDS
        if due or "message" in facts or "failed" in facts:
            self._written[stage] = now
            self._write(stage, "progress", {"done": done, "total": total, **facts})

    def metric(self, stage: str, name: str, value: float, *, step: int | None = None) -> None:
        facts = {"name": name, "value": value}
        self._write(stage, "metric", facts if step is None else {**facts, "step": step})

    def artifact(self, stage: str, path: Path) -> None:
        self._write(stage, "artifact", {"path": path})

    def end(self, stage: str, **facts: Any) -> None:
        self._write(stage, "end", facts)

    def _write(self, stage: str, event: str, facts: dict[str, Any]) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        facts = plain_facts(facts)
        if self._json:
            line = json.dumps({"time": now, "stage": stage, "event": event, **facts})
        else:
            line = printable(" ".join([now, stage, event, *_words(event, facts)]))
        self._append(f"{line}\n")

    def _append(self, line: str) -> None:
        """Append in one write, which no other process divides."""
        with self._path.open("ab", buffering=0) as file:
            file.write(line.encode(errors="backslashreplace"))


def _words(event: str, facts: dict[str, Any]) -> list[str]:
    """Facts as words; of a list the length, a message last and as it is."""
    rest = dict(facts)
    words = []
    if event == "progress":
        words.append(f"{rest.pop('done')}/{rest.pop('total')}")
    if event == "metric":
        words.append(f"{rest.pop('name')} {_word(rest.pop('value'))}")
    message = rest.pop("message", None)
    words += [f"{name}={_word(value)}" for name, value in rest.items()]
    return words if message is None else [*words, str(message)]


def _word(value: Any) -> str:
    if isinstance(value, list | dict):
        return str(len(value))
    if isinstance(value, float):
        return f"{value:.6g}"
    return json.dumps(value, ensure_ascii=False) if " " in str(value) else str(value)
