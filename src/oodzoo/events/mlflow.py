"""Tracks work in MLflow."""

from __future__ import annotations

import logging
import re
import socket
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from oodzoo._packages import optional_package
from oodzoo._text import one_line
from oodzoo.errors import InputError
from oodzoo.events.tracking import Tracker

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
        mlflow = _package("mlflow")
        if uri.startswith("sqlite:"):
            _package("alembic")  # imports SQLAlchemy, too
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


def _package(name: str) -> Any:
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
