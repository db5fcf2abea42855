"""Pickles of a predictor: its document and arrays, and where its models are.

The models themselves are not in a pickle. joblib pickles a predictor for each task that it sends to
another process, where the files of the models can be read as well as here; with the models inside,
each task would carry all weights. A folder of :meth:`oodzoo.Predictor.save` has the models.

The state consists of strings, numbers and arrays, so that skops can write it and only the class has
to be trusted when it is read. Only a pickle has functions (encoders) of other kinds than those
that skops can name.
"""

from __future__ import annotations

import json
import pickle
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from copy import deepcopy
from pathlib import Path
from types import FunctionType
from typing import Any, Self

from oodzoo._io import json_bytes
from oodzoo._text import one_line
from oodzoo.errors import InputError
from oodzoo.predictor.bundle import bundle_entry
from oodzoo.predictor.document import (
    GAUSSIAN,
    HEAD,
    parse_document,
    to_document,
    to_parts,
    to_tensors,
)
from oodzoo.predictor.encoders import Encoder
from oodzoo.predictor.hub import read_remote
from oodzoo.predictor.models import PredictorModel
from oodzoo.predictor.parts import PredictorParts
from oodzoo.predictor.tuned_model import is_temporary
from oodzoo.remote.location import Url, parse_location
from oodzoo.zoo import Model
from oodzoo.zoo.spec import local_path

_WHAT = "the pickled predictor"


class Picklable(ABC):
    """Copies and pickles of a predictor; the loaded models are dropped, and loaded again later."""

    encoders: dict[str, Encoder]
    device: str
    batch_size: int | None
    _loaded: dict[str, Model]
    _url: Url | None = None
    """The URL that the predictor was loaded from."""
    _unpickled = False

    @abstractmethod
    def _parts(self) -> PredictorParts: ...

    def __copy__(self) -> Self:
        copied = self._made(self._parts(), self.encoders)
        copied._loaded = self._loaded
        return copied

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self._made(*deepcopy((self._parts(), self.encoders), memo))

    def _made(self, parts: PredictorParts, encoders: Mapping[str, Encoder]) -> Self:
        kind: Any = type(self)
        made: Self = kind(
            **vars(parts), encoders=encoders, device=self.device, batch_size=self.batch_size
        )
        made._url, made._unpickled = self._url, self._unpickled
        return made

    def _state(self) -> dict[str, Any]:
        parts = self._parts()
        _warn_of_temporary_files(parts)
        state = to_state(parts, self._url)
        return state | {"device": self.device, "batch_size": self.batch_size}

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return _unpickle, (type(self), self._state(), _pickle_encoders(self.encoders))

    def __getstate__(self) -> dict[str, Any]:  # skops writes it
        _require_named(self.encoders)
        return self._state() | {"encoders": self.encoders}

    def __setstate__(self, state: dict[str, Any]) -> None:
        rest = {name: state[name] for name in ("encoders", "device", "batch_size")}
        initialise: Any = type(self).__init__
        initialise(self, **vars(from_state(state)), **rest)
        self._url, self._unpickled = _parse_url(state["url"]), True


def to_state(parts: PredictorParts, url: Url | None) -> dict[str, Any]:
    """A predictor as strings and arrays; `url` is the one that it was loaded from."""
    models = [model for model in parts.models if isinstance(model, PredictorModel)]
    entries = [bundle_entry(model, model.spec.source, model.files) for model in models]
    return {
        "document": json_bytes(to_document(parts, entries, {})).decode(),
        "tensors": to_tensors(parts),
        "folders": {model.name: str(model.spec.folder.resolve()) for model in models},
        "url": None if url is None else str(url),
    }


def from_state(state: Mapping[str, Any]) -> PredictorParts:
    """Inverse of :func:`to_state`; fetches models from their URL if they are no longer here."""
    document = parse_document(json.loads(state["document"]), _WHAT)
    models = [entry.model(Path(state["folders"][entry.name])) for entry in document.models]
    if (url := _parse_url(state["url"])) is not None and any(
        missing_file(model) for model in models
    ):
        models = _fetched(models, url)
    return to_parts(document, models, state["tensors"], {HEAD: _WHAT, GAUSSIAN: _WHAT})


def _warn_of_temporary_files(parts: PredictorParts) -> None:
    for model in parts.models:
        if isinstance(model, PredictorModel) and is_temporary(model):
            warnings.warn(
                f"the file of the fine-tuned model {model.name!r} is temporary: this pickle cannot "
                "be used after the process has ended; save the predictor with save(), and pickle "
                "what oodzoo.load returns",
                stacklevel=4,
            )


def missing_file(model: PredictorModel) -> Path | None:
    """The file or folder of a model, if it does not exist; None if it does, or is in a hub."""
    path = local_path(model.spec)
    return None if path is None or path.exists() else path


def require_files(models: Iterable[PredictorModel]) -> None:
    """Raise InputError if the files of a model are not where they were when it was pickled."""
    for model in models:
        if (path := missing_file(model)) is not None:
            raise InputError(
                f"model {model.name!r}: no such file or folder: {str(path)!r}; a pickled predictor "
                "refers to the files of its models by path: restore them, or save the predictor "
                "with save() where they are, and load that folder with oodzoo.load"
            )


def _parse_url(given: str | None) -> Url | None:
    url = None if given is None else parse_location(given)
    return url if isinstance(url, Url) else None


def _fetched(models: list[PredictorModel], url: Url) -> list[PredictorModel]:
    found = [each for each in read_remote(url).models if isinstance(each, PredictorModel)]
    if found != models:
        raise InputError(
            f"the predictor at {str(url)!r} has been replaced since {_WHAT} was loaded from there; "
            "load it again with oodzoo.load"
        )
    return found


# --- encoders -----------------------------------------------------------------------------------


def _pickle_encoders(encoders: Mapping[str, Encoder]) -> dict[str, bytes]:
    """Pickle functions: those of modules by name, any others (lambdas, local ones) by value."""
    from joblib import wrap_non_picklable_objects

    pickled = {}
    for name, encoder in encoders.items():
        try:
            pickled[name] = pickle.dumps(wrap_non_picklable_objects(encoder, keep_wrapper=False))
        except Exception as error:
            raise InputError(
                f"the encoder {name!r} cannot be pickled: {type(error).__name__}: "
                f"{one_line(error)}; save the predictor with save(), and pass the encoders to "
                "oodzoo.load again"
            ) from error
    return pickled


def _require_named(encoders: Mapping[str, Encoder]) -> None:
    """Raise InputError for a function that skops cannot write: a lambda, or a local function."""
    for name, encoder in encoders.items():
        if isinstance(encoder, FunctionType) and "<" in encoder.__qualname__:
            raise InputError(
                f"the encoder {name!r} is a lambda or a local function, which skops cannot write; "
                "define it in a module, or save the predictor with save() and pass the encoders to "
                "oodzoo.load again"
            )


def _unpickle(
    kind: type[Picklable], state: dict[str, Any], encoders: Mapping[str, bytes]
) -> Picklable:
    predictor = kind.__new__(kind)
    functions = {name: pickle.loads(each) for name, each in encoders.items()}
    predictor.__setstate__(state | {"encoders": functions})
    return predictor
