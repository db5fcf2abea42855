"""Embeddings of the classes by the text tower of a model: one small file in its folder.

The file is not part of the features: it can be added and replaced at any time. It counts only for
the model that it was made with.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from oodzoo.core.errors import InputError
from oodzoo.core.io import read_json, require_schema, shown, structured
from oodzoo.store.format import model_folder, require_no_links, sealed, unsealed
from oodzoo.store.mirror import write_bytes

FILE = "class_embeddings.json"
_SCHEMA = 1
_WHAT = "the class embeddings"

_Scale = Annotated[float, msgspec.Meta(gt=0, le=1e9)]
_Bias = Annotated[float, msgspec.Meta(ge=-1e9, le=1e9)]


@dataclass(frozen=True)
class ClassEmbeddings:
    """What zero-shot classification needs besides the features.

    Attributes
    ----------
    classes : tuple of str
    names : tuple of str
        The text of each class.
    prompts : tuple of str
        Templates that the names were put into.
    embeddings : array (C, d)
        Of unit length.
    scale, bias : float
        Logits are the cosine of image and class, times the scale, plus the bias.
    """

    classes: tuple[str, ...]
    names: tuple[str, ...]
    prompts: tuple[str, ...]
    embeddings: NDArray[np.float32]
    scale: float
    bias: float = 0.0

    def of(self, classes: Sequence[Any]) -> ClassEmbeddings | None:
        """Return those of some classes, in their order; None if one is lacking."""
        known = {label: at for at, label in enumerate(self.classes)}
        labels = tuple(map(str, classes))
        if not all(label in known for label in labels):
            return None
        rows = [known[label] for label in labels]
        names = tuple(self.names[at] for at in rows)
        return replace(self, classes=labels, names=names, embeddings=self.embeddings[rows])

    @property
    def digest(self) -> str:
        """SHA-256 of everything that logits depend on."""
        facts = msgspec.json.encode([self.classes, self.scale, self.bias])
        return hashlib.sha256(facts + _bytes(self.embeddings)).hexdigest()


class _EmbeddingsFile(msgspec.Struct, frozen=True):
    """The content of the file; `model` is the identity of the model, embeddings are base64."""

    schema: int
    model: str
    classes: tuple[str, ...]
    names: tuple[str, ...]
    prompts: tuple[str, ...]
    scale: _Scale
    bias: _Bias
    embeddings: str


_KEPT = ("classes", "names", "prompts", "scale", "bias")
"""Fields of the file that are those of the embeddings."""


def write_class_embeddings(store: Path, model: str, identity: str, found: ClassEmbeddings) -> None:
    """Write the embeddings of a model; `identity` is that of its record."""
    document = {
        "schema": _SCHEMA,
        "model": identity,
        **{name: getattr(found, name) for name in _KEPT},
        "embeddings": base64.b64encode(_bytes(found.embeddings)).decode(),
    }
    write_bytes(_path(store, model), sealed(msgspec.to_builtins(document)))


def read_class_embeddings(
    store: Path, model: str, identity: str, width: int
) -> ClassEmbeddings | None:
    """Read and verify the embeddings of a model; None if there are none of this model.

    `width` is the number of its features.
    """
    path = _path(store, model)
    if not path.is_file():
        return None
    what = f"{_WHAT} {shown(path)!r}"
    try:
        document = read_json(path, _WHAT)
        require_schema(document, _SCHEMA, what, "extract again")
        content = structured(unsealed(document, what), _EmbeddingsFile, what)
        if content.model != identity:  # of a model that had this name before
            return None
        return _decoded(content, what, width)
    except InputError as error:
        advice = "remove the file, and rerun `oodzoo extract` to make it again"
        raise InputError(f"{error}; {advice}") from error


def _decoded(content: _EmbeddingsFile, what: str, width: int) -> ClassEmbeddings:
    try:
        raw = base64.b64decode(content.embeddings, validate=True)
        embeddings = np.frombuffer(raw, "<f4").reshape(len(content.classes), width)
    except (ValueError, binascii.Error) as error:
        raise InputError(f"{what} are damaged: {error}") from error
    valid = np.isfinite(embeddings).all() and len(content.names) == len(content.classes)
    if not valid or len(set(content.classes)) < len(content.classes):
        raise InputError(f"{what} are damaged: not one vector for each class")
    kept = {name: getattr(content, name) for name in _KEPT}
    return ClassEmbeddings(embeddings=embeddings.astype(np.float32), **kept)


def _bytes(embeddings: NDArray[np.float32]) -> bytes:
    return np.ascontiguousarray(embeddings, "<f4").tobytes()


def _path(store: Path, model: str) -> Path:
    return require_no_links(store, model_folder(store, model) / FILE)
