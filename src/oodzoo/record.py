"""The record of a run: what each stage was given, what came out, and how long it took.

It is the file ``run.json`` of the run's folder, written anew after every stage, so that a run that
was stopped goes on with the first stage that is not finished.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

from oodzoo import __version__
from oodzoo._io import read_json, write_json
from oodzoo.errors import InputError

SCHEMA = 1
NAME = "run.json"
_PACKAGES = ("numpy", "scipy", "scikit-learn", "onnxruntime", "torch", "timm", "transformers")

Document = dict[str, Any]


class Record:
    """The stages of a run in a folder.

    Parameters
    ----------
    folder : path
        Of the run; an earlier record there is read.
    command : str
        What the person typed, or the call.
    settings : dict
        Of this run, as JSON.
    """

    def __init__(self, folder: Path, command: str, settings: Document) -> None:
        self.folder = folder
        self._before = _earlier(folder)
        self.document: Document = {
            "schema": SCHEMA,
            "command": command,
            "settings": settings,
            "seed": settings.get("seed", 0),
            "versions": _versions(),
            "machine": {"cores": _cores(), "system": platform.platform(terse=True)},
            "stages": [],
        }

    def stage(
        self,
        name: str,
        inputs: Any,
        work: Callable[[], Document],
        *,
        holds: Callable[[Document], bool] = lambda _: True,
    ) -> tuple[Document, bool]:
        """Do the work of a stage, unless it was done with the same inputs.

        Parameters
        ----------
        name : str
            Of the stage, and the key of its document.
        inputs : JSON
            All that decides about the result, apart from the version of oodzoo.
        work : callable
            Gives the document of the stage.
        holds : callable
            Whether what an earlier document speaks of is still there.

        Returns
        -------
        document : dict
        skipped : bool
        """
        key = _digest([__version__, name, inputs])
        known = {s["name"]: s for s in self._before.get("stages", [])}.get(name, {})
        document = self._before.get(name)
        skipped = known.get("inputs") == key and document is not None and holds(document)
        seconds = known.get("seconds")
        if not skipped:
            start = time.perf_counter()
            document = work()
            seconds = time.perf_counter() - start
        assert document is not None
        entry = {"name": name, "seconds": seconds, "skipped": skipped, "inputs": key}
        self.document["stages"].append(entry)
        self.document[name] = document
        write_json(self.folder / NAME, self._kept() | self.document)
        return document, skipped

    def note(self, name: str, document: Document) -> None:
        """Put something into the record that is no stage."""
        self.document[name] = document

    def forget(self, name: str) -> None:
        """Let a stage be done again by the next run, whatever its inputs are."""
        for stage in self.document["stages"]:
            if stage["name"] == name:
                stage["inputs"] = None
        write_json(self.folder / NAME, self._kept() | self.document)

    def finish(self) -> None:
        """Leave what earlier runs have recorded and this one has no stage for."""
        write_json(self.folder / NAME, self.document)

    def _kept(self) -> Document:
        """What an earlier run knows of stages that this one has not come to."""
        names = {stage["name"] for stage in self.document["stages"]}
        later = [s for s in self._before.get("stages", []) if s["name"] not in names]
        kept = {s["name"]: self._before[s["name"]] for s in later if s["name"] in self._before}
        return {**kept, "earlier": later} if later else kept


def read_record(folder: Path) -> Document:
    """The record of a run; a clear line where there is none."""
    path = folder / NAME
    if not path.is_file():
        raise InputError(
            f"{str(folder)!r} is no folder of a run: it has no {NAME}; make one with oodzoo run"
        )
    document = read_json(path, "the record of a run")
    schema = document.get("schema")
    if schema != SCHEMA:
        newer = isinstance(schema, int) and schema > SCHEMA
        advice = "update oodzoo" if newer else "run oodzoo run again in another folder"
        raise InputError(
            f"{str(path)!r} has schema {schema!r}, this oodzoo knows {SCHEMA}; {advice}"
        )
    return document


def _earlier(folder: Path) -> Document:
    if not (folder / NAME).is_file():
        return {}
    document = read_record(folder)
    document["stages"] = [*document.get("stages", []), *document.pop("earlier", [])]
    return document


def _digest(content: Any) -> str:
    text = json.dumps(content, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _versions() -> dict[str, str]:
    versions = {"oodzoo": __version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
