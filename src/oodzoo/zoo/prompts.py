r"""The texts that stand for classes, and their embeddings by the text tower of a CLIP-like model.

The embedding of a class is the mean over prompts of the embeddings of unit length of its texts,
brought to unit length again [1]_. Logits are scaled cosines of images and classes,

.. math:: \ell_c(f) = s\,\frac{f^\top t_c}{\lVert f\rVert} + b,

with the scale s and the bias b that the model was trained with; only sigmoid losses have a bias.

References
----------
.. [1] Radford et al.: Learning transferable visual models from natural language supervision,
   ICML 2021.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodzoo.core.errors import InputError
from oodzoo.core.text import count, did_you_mean, one_line

PLACE = "{}"
"""Where the name of a class goes in a template."""

PROMPTS = (
    "itap of a {}.",
    "a bad photo of the {}.",
    "a origami {}.",
    "a photo of the large {}.",
    "a {} in a video game.",
    "art of the {}.",
    "a photo of the small {}.",
)
"""Default templates: the seven that the authors of CLIP found best on ImageNet."""

_LONGEST = 1000


@dataclass(frozen=True)
class Prompts:
    """What is asked for; None for the default.

    Attributes
    ----------
    class_names : mapping of str to str, optional
        The text of each class; by default the class itself, with underscores as blanks.
    templates : tuple of str, optional
        Texts with ``{}`` in the place of the name; by default :data:`PROMPTS`.
    """

    class_names: Mapping[str, str] | None = None
    templates: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.templates is not None:
            require_templates(self.templates)

    @property
    def is_default(self) -> bool:
        """Whether nothing was asked for."""
        return self.class_names is None and self.templates is None

    def require_classes(self, classes: Sequence[str]) -> None:
        """Raise an InputError unless the names are of exactly these classes."""
        if self.class_names is not None:
            texts_of(classes, self.class_names)


def require_templates(templates: Sequence[str]) -> None:
    """Raise an InputError unless there are templates, all different, each with a place."""
    if not templates:
        raise InputError("there is no prompt; give at least one, such as 'a photo of a {}.'")
    for template in templates:
        if not isinstance(template, str) or PLACE not in template:
            raise InputError(
                f"the prompt {template!r} has no place for the name of a class; write {{}} there, "
                "as in 'a photo of a {}.'"
            )
    _require_distinct(templates, "the prompt {} is given twice; leave one out")


def texts_of(classes: Sequence[str], class_names: Mapping[str, str] | None) -> tuple[str, ...]:
    """Return the text of each class, in the order of the classes.

    Examples
    --------
    >>> texts_of(["alarm_clock", "bike"], None)
    ('alarm clock', 'bike')
    >>> texts_of(["n02084071", "n02121808"], {"n02084071": "dog", "n02121808": "cat"})
    ('dog', 'cat')
    """
    if class_names is None:
        texts = [default_text(label) for label in classes]
    else:
        _require_covered(classes, class_names)
        texts = [str(class_names[label]).strip() for label in classes]
    for label, text in zip(classes, texts, strict=True):
        if not text:
            raise InputError(f"the name of the class {label!r} is empty; give it a text")
    _require_distinct(
        texts, "two classes have the name {}, so that no text tells them apart; rename one"
    )
    return tuple(texts)


def default_text(label: str) -> str:
    """The text of a class without a given name."""
    return label.replace("_", " ").strip()


def _require_covered(classes: Sequence[str], class_names: Mapping[str, str]) -> None:
    if lacking := [label for label in classes if label not in class_names]:
        shown = ", ".join(map(repr, lacking[:5])) + (", …" if len(lacking) > 5 else "")
        raise InputError(
            f"the class names lack {count(len(lacking), 'class', 'classes')} of the data: {shown}; "
            "give a text for each class"
        )
    if unknown := [label for label in class_names if label not in set(classes)]:
        hint = did_you_mean(str(unknown[0]), classes) or "leave it out"
        raise InputError(f"the class names have {unknown[0]!r}, which is not a class; {hint}")


def _require_distinct(texts: Sequence[str], message: str) -> None:
    twice = [text for text, number in Counter(texts).items() if number > 1]
    if twice:
        raise InputError(message.format(repr(twice[0])))


def parse_class_names(given: str) -> dict[str, str]:
    """Read `class=text,…`, or a file with `class=text` on each line.

    Examples
    --------
    >>> parse_class_names("n02084071=dog, n02121808=cat")
    {'n02084071': 'dog', 'n02121808': 'cat'}
    """
    path = Path(given)
    is_file = len(given) < _LONGEST and os.path.isfile(path)  # noqa: PTH113 - of a name too long
    if not is_file and "=" not in given:
        raise InputError(
            f"--class-names must be CLASS=TEXT,… or a file with a line CLASS=TEXT for each class; "
            f"there is no file {given!r}"
        )
    where = f"the file {given!r}" if is_file else "--class-names"
    parts = _lines(path) if is_file else [part.strip() for part in given.split(",")]
    names: dict[str, str] = {}
    for part in parts:
        label, equals, text = (piece.strip() for piece in part.partition("="))
        if not equals or not label:
            raise InputError(f"{where}: {part!r} is not CLASS=TEXT")
        if label in names:
            raise InputError(f"{where} names the class {label!r} twice; leave one out")
        names[label] = text
    return names


def read_prompts(path: str | Path) -> tuple[str, ...]:
    """Read a file with a template on each line, except lines that are empty or start with #."""
    templates = tuple(_lines(Path(path)))
    try:
        require_templates(templates)
    except InputError as error:
        raise InputError(f"the file {str(path)!r}: {error}") from error
    return templates


def _lines(path: Path) -> list[str]:
    try:
        lines: Iterable[str] = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or one_line(error)
        raise InputError(f"cannot read {str(path)!r}: {reason}") from error
    stripped = (line.strip() for line in lines)
    return [line for line in stripped if line and not line.startswith("#")]


_TEXTS = 256
"""Texts that are embedded at a time."""


@dataclass(frozen=True)
class TextTower:
    """The text part of a model.

    Attributes
    ----------
    embed : callable
        Embeds texts as an array (n, d), in the space of the image features.
    scale, bias : float
        Of the logits.
    """

    embed: Callable[[Sequence[str]], NDArray[np.floating[Any]]]
    scale: float
    bias: float = 0.0

    @classmethod
    def of(cls, model: Any, device: str, embed: Callable[[Sequence[str]], Any]) -> TextTower:
        """Move a CLIP-like model of PyTorch to a device; `embed` runs its text part."""
        scale, bias = float(model.logit_scale.detach().exp()), getattr(model, "logit_bias", None)
        model.float().eval().requires_grad_(False).to(device)
        return cls(embed, scale, 0.0 if bias is None else float(bias.detach()))


def embed_classes(
    tower: TextTower, names: Sequence[str], prompts: Sequence[str]
) -> NDArray[np.float32]:
    """Embed classes as vectors of unit length (C, d), from names and templates."""
    texts = [prompt.replace(PLACE, name) for name in names for prompt in prompts]
    parts = [tower.embed(texts[at : at + _TEXTS]) for at in range(0, len(texts), _TEXTS)]
    each = _unit(np.concatenate(parts).astype(np.float64))
    means = each.reshape(len(names), len(prompts), -1).mean(axis=1)
    embeddings = _unit(means).astype(np.float32)
    if not np.isfinite(embeddings).all():
        raise InputError("the text tower returns NaN or infinite embeddings")
    return embeddings


def _unit(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: NDArray[np.float64] = vectors / np.maximum(lengths, np.finfo(np.float64).tiny)
    return unit
