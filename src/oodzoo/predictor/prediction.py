"""Predictions of single samples or as arrays, their score, and images sorted by them.

No file is ever replaced. An image whose file is there already, with the same content, is left as it
is, so that the same command can be run again; another file of the same name makes the image get a
number, as `photo-2.jpg`.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from oodzoo.core.backend import to_numpy
from oodzoo.core.errors import InputError
from oodzoo.core.io import explaining_disk_errors, remove_stale, write_new
from oodzoo.core.remote.location import Url
from oodzoo.core.text import count, short_name
from oodzoo.data.files import ImageFile, LocalFile, RemoteImage
from oodzoo.predictor.left_out import LeftOut, require_confidence
from oodzoo.predictor.prediction_sets import SetLevel, intervals_of, set_of
from oodzoo.tasks import Kind, Labels, Task, as_labels
from oodzoo.tasks.metrics import metric

Floats = NDArray[np.float64]


def outcome(kind: Kind, values: Floats, classes: NDArray[Any]) -> Any:
    """Return the prediction for one sample from its probabilities or numbers (C,).

    The most probable class; a number, or a tuple of several; or a tuple of the labels whose
    probability is above one half.

    Examples
    --------
    >>> outcome("multilabel", np.array([0.9, 0.2, 0.6]), np.array(["cat", "dog", "fox"]))
    ('cat', 'fox')
    >>> outcome("regression", np.array([1.5]), np.array(["age"]))
    1.5
    """
    if kind == "classification":
        return classes[values.argmax()].item()
    if kind == "multilabel":
        return tuple(classes[values > 0.5].tolist())
    numbers = tuple(values.tolist())
    return numbers[0] if len(numbers) == 1 else numbers


def label_array(labels: Sequence[Any], dtype: Any = None) -> NDArray[Any]:
    """Classes as an array; those of mixed types keep their types."""
    if dtype is None:
        dtype = object if len({type(label) for label in labels}) > 1 else None
    return np.array(list(labels), dtype=dtype)


def outcome_array(kind: Kind, outcomes: Sequence[Any], classes: NDArray[Any]) -> NDArray[Any]:
    """Predictions of several samples as an array.

    Classes (n,), numbers (n,) or (n, C), or zeros and ones (n, C) in the order of the labels. A
    sample without a prediction has the class None, or NaN.

    Examples
    --------
    >>> outcome_array("multilabel", [("a",), None], np.array(["a", "b"]))
    array([[ 1.,  0.],
           [nan, nan]])
    """
    lacks = any(each is None for each in outcomes)
    if kind == "classification":
        return label_array(outcomes, object if lacks else classes.dtype)
    if kind == "regression":
        shape = (-1,) if len(classes) == 1 else (-1, len(classes))
        return np.array(list(outcomes), np.float64).reshape(shape)
    none = np.full(len(classes), np.nan)
    rows = [none if each is None else np.isin(classes, each) for each in outcomes]
    return np.array(rows, np.float64 if lacks else np.int64).reshape(-1, len(classes))


def score(
    kind: Kind, outcomes: Sequence[Any], values: Iterable[Floats | None], classes: NDArray[Any],
    y: Any, noun: str,
) -> float:  # fmt: skip
    """Compute the main metric of predictions, as a fraction.

    Parameters
    ----------
    kind : {"classification", "regression", "multilabel"}
    outcomes : sequence
        Of :func:`outcome`.
    values : iterable of arrays
        Their probabilities; not used for classes and numbers.
    classes : array (C,)
    y : sequence or array
        The true classes, numbers or labels; labels as zeros and ones or as lists of strings.
    noun : str
        What a sample is called in messages.
    """
    predicted = outcome_array(kind, outcomes, classes)
    if kind == "classification":
        truth: Any = np.array(_known(list(to_numpy(y).tolist()), classes), object)
    elif kind == "regression":
        truth = _in_order(as_labels(y, kind), y, classes)
        predicted = predicted.reshape(len(predicted), -1)
    else:
        truth = _indicators(y, classes)
        predicted = np.array(list(values)).reshape(-1, len(classes))
    if len(predicted) != len(truth):
        raise InputError(
            f"{noun}s and labels must have the same length, got {count(len(predicted), noun)} and "
            f"{count(len(truth), 'label')}"
        )
    if truth.shape[1:] != predicted.shape[1:]:
        raise InputError(
            f"the predictor predicts {count(predicted.shape[1], 'number')} per {noun}, the labels "
            f"have {truth.shape[1]}"
        )
    if kind == "classification":
        return float(np.mean([a == b for a, b in zip(predicted.tolist(), truth, strict=True)]))
    return metric(kind, predicted, truth)


def _known(truth: list[Any], classes: NDArray[Any]) -> list[Any]:
    """Reject labels none of which is a class."""
    known = classes.tolist()
    if truth and not any(label in known for label in truth):
        raise InputError(
            f"none of the labels is a known class: got {truth[0]!r} ({type(truth[0]).__name__}), "
            f"expected classes such as {known[0]!r} ({type(known[0]).__name__})"
        )
    return truth


def _in_order(labels: Labels, y: Any, classes: NDArray[Any]) -> Floats:
    """The columns of labels in the order of a predictor, by name if y is a data frame."""
    values: Floats = labels.values
    if not hasattr(y, "columns"):
        return values
    names = [str(name) for name in classes.tolist()]
    if sorted(labels.classes) != sorted(names):
        raise InputError(
            f"the columns of the labels are {', '.join(map(repr, labels.classes))}; the predictor "
            f"has {', '.join(map(repr, names))}"
        )
    return values[:, [labels.classes.index(name) for name in names]]


def _indicators(y: Any, classes: NDArray[Any]) -> Floats:
    """Labels as zeros and ones in the order of the labels of a predictor."""
    labels = as_labels(y, "multilabel")
    names = [str(name) for name in classes.tolist()]
    if getattr(y, "ndim", 1) == 2 and labels.values.shape[1] == len(names):
        return _in_order(labels, y, classes)
    if unknown := [name for name in labels.classes if name not in names]:
        raise InputError(
            f"the predictor does not know the label {unknown[0]!r}; it has "
            f"{', '.join(map(repr, names))}"
        )
    task = Task("multilabel", tuple(names))
    rows = [
        task.encode(name for name, has in zip(labels.classes, row, strict=True) if has)
        for row in labels.values
    ]
    return task.decode(rows)


@dataclass(frozen=True)
class Prediction:
    """The prediction for one sample.

    Attributes
    ----------
    position : int
        Position among the given samples.
    path : str or None
        Path of an image; None for an image in memory, and for any other sample.
    label
        The most probable class. For other tasks, the predicted number, or a tuple of several; or
        the tuple of labels whose probability is above one half.
    probabilities : array (n_classes,) or None
        Probability of each class or label, in the order of `classes_`; None for numbers.
    distance : float
        Distance from the training samples; above 1 the sample is unlike them.
    out_of_domain : bool
        Whether the distance is above 1.
    abstained : bool
        Whether the label is None because the most probable class is not probable enough.
    set : tuple or None
        The prediction set, if one is wanted: classes, the most probable first.
    intervals : tuple of (low, high), or None
        The interval of each number, if they are wanted.
    """

    position: int
    path: str | None
    label: Any
    probabilities: NDArray[np.float64] | None
    distance: float
    out_of_domain: bool
    abstained: bool = False
    set: tuple[Any, ...] | None = None
    intervals: tuple[tuple[float, float], ...] | None = None

    @property
    def confidence(self) -> float | None:
        """Probability of the most probable class or label; None for numbers."""
        return None if self.probabilities is None else float(self.probabilities.max())

    def __repr__(self) -> str:
        sample = self.position if self.path is None else short_name(self.path, 80)
        sure = "" if self.confidence is None else f", {100 * self.confidence:.0f} %"
        unlike = ", unlike the training samples" if self.out_of_domain else ""
        return f"Prediction({sample!r}: {short_name(repr(self.label), 80)}{sure}{unlike})"


@dataclass(frozen=True)
class Unreadable:
    """A sample without a prediction, and the reason."""

    position: int
    path: str | None
    reason: str


def missing(found: Unreadable, kind: Kind, classes: NDArray[Any]) -> Prediction:
    """What stands for a sample without a prediction: no class, and NaN."""
    nan = np.full(len(classes), np.nan)
    regression = kind == "regression"
    label = outcome(kind, nan, classes) if regression else None
    probabilities = None if regression else nan
    return Prediction(found.position, found.path, label, probabilities, np.nan, out_of_domain=False)


class Finish:
    """Adds to predictions what is wanted beside the label: abstention, sets, intervals.

    Parameters
    ----------
    kind : {"classification", "regression", "multilabel"}
        What is predicted.
    left_out : LeftOut or None
        What was measured on left-out domains.
    classes : array (C,)
    min_confidence, coverage : float, optional

    Raises
    ------
    InputError
        If it cannot be had of this predictor.
    """

    def __init__(
        self,
        kind: Kind,
        left_out: LeftOut | None,
        classes: NDArray[Any],
        min_confidence: float | None,
        coverage: float | None,
    ) -> None:
        self._kind, self._classes, self._least = kind, classes, min_confidence
        if min_confidence is not None:
            require_confidence(min_confidence)
            if kind != "classification":
                raise InputError(
                    "a smallest confidence needs one class per sample, and the predictor predicts "
                    f"{_OTHERS[kind]}; leave out min_confidence (--min-confidence)"
                )
        self._sets = None if coverage is None else require_sets(kind, left_out, coverage)

    def __call__(self, found: Prediction, values: NDArray[np.float64]) -> Prediction:
        """Add what is wanted; `values` (C,) are probabilities or numbers."""
        if self._sets is not None:
            if self._kind == "regression":
                found = replace(found, intervals=intervals_of(values, self._sets))
            else:
                found = replace(found, set=set_of(values, self._classes, self._sets))
        if self._least is not None and values.max() < self._least:
            found = replace(found, label=None, abstained=True)
        return found


def require_sets(kind: Kind, left_out: LeftOut | None, coverage: float) -> SetLevel:
    """The recorded sets of a coverage; an InputError if a predictor has none."""
    if kind == "multilabel":
        raise InputError(
            "prediction sets are of one class per sample, and the predictor predicts several "
            "labels; leave out coverage (--coverage)"
        )
    if left_out is None or not left_out.sets:
        raise InputError(
            "this predictor has no record of prediction sets on left-out domains: it was "
            "fine-tuned, or has too few samples; fit again with oodzoo fit, or leave out coverage "
            "(--coverage)"
        )
    return left_out.at_coverage(coverage)


_OTHERS: dict[Kind, str] = {"regression": "numbers", "multilabel": "several labels"}


UNSURE = "_unsure"
"""Folder of the images without a label."""

Link = Literal["hard", "soft"]
LINKS = ("hard", "soft")

_FORBIDDEN = re.compile(r'[/\\:*?"<>|]')
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
_LONGEST = 160
"""Bytes of the name of a folder."""


def folder_names(classes: Iterable[Any]) -> dict[Any, str]:
    """A name of a folder for each class, which any operating system allows; all differ.

    Names that differ in upper and lower case only are the same on some systems.

    Examples
    --------
    >>> folder_names(["cat", "Cat", "a/b", "", "_unsure"])
    {'cat': 'cat', 'Cat': 'Cat-2', 'a/b': 'a_b', '': '_', '_unsure': '_unsure-2'}
    """
    used, result = {UNSURE}, {}
    for label in classes:
        text = _FORBIDDEN.sub("_", str(label))
        text = "".join(c if c.isprintable() else "_" for c in text)
        text = text.encode()[:_LONGEST].decode(errors="ignore")
        text = re.sub(r"^[.\s]+|[.\s]+$", "_", text) or "_"
        if _RESERVED.fullmatch(text):
            text = f"_{text}"
        name, number = text, 1
        while name.casefold() in used:
            number += 1
            name = f"{text}-{number}"
        used.add(name.casefold())
        result[label] = name
    return result


class Sorter:
    """Copies or links images into the folder of their class.

    Parameters
    ----------
    folder : Path
        Where the folders of the classes are made.
    classes : iterable
    link : {"hard", "soft"}, optional
        Kind of link; by default images are copied.

    Attributes
    ----------
    counts : Counter
        Number of images in each folder, by its name, also of those that were there already.
    left : int
        Number of images that were there already.
    """

    def __init__(self, folder: Path, classes: Iterable[Any], link: str | None = None) -> None:
        if link is not None and link not in LINKS:
            raise InputError(f"a link must be one of {', '.join(LINKS)}, got {link!r}")
        if folder.exists() and not folder.is_dir():
            raise InputError(f"{str(folder)!r} is not a folder; images are sorted into folders")
        self.folder = folder
        self.counts: Counter[str] = Counter()
        self.left = 0
        self._names = folder_names(classes)
        self._link = link

    def require_outside(self, file: ImageFile) -> None:
        """Raise an InputError for an image that was sorted already, or lies among such images."""
        if isinstance(file, LocalFile) and self._resolved() in _resolved(file.path).parents:
            raise InputError(
                f"{file.path!r} is inside {str(self.folder)!r}, where images are sorted into; "
                "choose a folder outside of the images"
            )

    def add(self, file: ImageFile, label: Any) -> Path:
        """Put an image into the folder of a label, None for no label; return where it is."""
        name = UNSURE if label is None else self._names[label]
        target = self.folder / name / _file_name(file)
        with explaining_disk_errors(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            if name not in self.counts:
                remove_stale(target.parent)
            content = None if self._link else file.read()
            number = 1
            place = target
            while not self._put(file, content, place):
                if self._is_there(file, content, place):
                    self.left += 1
                    break
                number += 1
                place = target.with_name(f"{target.stem}-{number}{target.suffix}")
        self.counts[name] += 1
        return place

    def _put(self, file: ImageFile, content: bytes | None, place: Path) -> bool:
        """Write an image or a link; False if there is a file of this name."""
        if content is not None:
            return not os.path.lexists(place) and write_new(place, content)
        source = _local_path(file)
        try:
            if self._link == "soft":
                place.symlink_to(source)
            else:
                os.link(source, place)
        except FileExistsError:
            return False
        except OSError as error:
            if self._link == "hard" and os.path.lexists(source):
                raise InputError(
                    f"{str(source)!r} cannot have a hard link in {str(place.parent)!r}: "
                    f"{error.strerror}; leave out the links, or use soft ones"
                ) from error
            raise
        return True

    def _is_there(self, file: ImageFile, content: bytes | None, place: Path) -> bool:
        """Whether a file is the image: the same file, or one with the same content."""
        try:
            if isinstance(file, LocalFile) and place.samefile(file.path):
                return True
            expected = file.read() if content is None else content
            return place.stat().st_size == len(expected) and place.read_bytes() == expected
        except OSError:  # a link to nothing, a folder, or a file that may not be read
            return False

    def _resolved(self) -> Path:
        return _resolved(self.folder)


def _resolved(path: str | Path) -> Path:
    return Path(os.path.realpath(path))


def _local_path(file: ImageFile) -> Path:
    if not isinstance(file, LocalFile):
        raise InputError(f"{str(file)!r} is not a local file and cannot be linked; copy the images")
    return Path(file.path).absolute()


def _file_name(file: ImageFile) -> str:
    """The name of the file of an image, for a local disk."""
    if not isinstance(file, RemoteImage):
        return Path(str(file)).name
    name = Url(file.file.url).name.partition("?")[0].partition("#")[0]
    return _FORBIDDEN.sub("_", name)[-_LONGEST:] or "image"
