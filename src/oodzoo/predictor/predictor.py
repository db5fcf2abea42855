"""A model that labels images: models, the features kept of them, a head, and a warning."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oodzoo.errors import InputError
from oodzoo.features.columns import Columns
from oodzoo.heads.linear import LinearHead
from oodzoo.predictor.gaussian import TrainingGaussian
from oodzoo.predictor.images import ImageLike, features_of, preprocessed
from oodzoo.predictor.models import PredictorModel
from oodzoo.zoo import Model
from oodzoo.zoo.device import default_batch_size, require_device, resolve_device

if TYPE_CHECKING:
    from sklearn.utils import Tags


@dataclass(frozen=True)
class Prediction:
    """What a predictor says of one image.

    Attributes
    ----------
    position : int
        Which of the images that were given.
    path : str or None
        None for an image in memory.
    label
        The most probable class.
    probabilities : array (n_classes,)
        In the order of `classes_`.
    distance : float
        From the training images; above 1 the image is unlike them.
    out_of_domain : bool
        Whether the distance is above 1.
    """

    position: int
    path: str | None
    label: Any
    probabilities: NDArray[np.float64]
    distance: float
    out_of_domain: bool


@dataclass(frozen=True)
class Unreadable:
    """An image that nothing can be said of, and why."""

    position: int
    path: str | None
    reason: str


@dataclass(frozen=True)
class Origin:
    """Where a predictor comes from; told, never used.

    Attributes
    ----------
    domains : tuple of str
        The training domains.
    n_images : int
    data : str
        Fingerprint of the training data.
    scores : dict
        Score of each model that was ranked; empty where the models were named.
    n_features : int
        Features of the models side by side, of which some are kept.
    threshold : float or None
        Of the inclusion probability; None where all features are kept.
    """

    domains: tuple[str, ...]
    n_images: int
    data: str
    scores: dict[str, float]
    n_features: int
    threshold: float | None


class Predictor:
    """Labels images; made by :func:`oodzoo.fit` or :func:`oodzoo.load`.

    To scikit-learn it is a fitted classifier whose samples are images: `predict`,
    `predict_proba`, `score` and `classes_` work with its scorers, metrics and displays. There is
    no `fit`, so it does not go into a grid search or a cross-validation; a clone is itself.

    Attributes
    ----------
    classes_ : array (n_classes,)
    models : tuple of PredictorModel
        Those that have a kept feature.
    kept : Kept
        Which features of them the head sees.
    head : LinearHead
    gaussian : TrainingGaussian
        Of the kept features of the training images.
    origin : Origin
    """

    def __init__(
        self,
        models: Sequence[PredictorModel],
        kept: Columns,
        classes: Sequence[Any],
        head: LinearHead,
        gaussian: TrainingGaussian,
        origin: Origin,
        *,
        device: str = "auto",
        batch_size: int | None = None,
    ) -> None:
        require_device(device)
        if batch_size is not None and batch_size < 1:
            raise InputError(f"the batch size must be at least 1, and is {batch_size}")
        self.models = tuple(models)
        self.columns = kept
        self.classes_ = _column(classes)
        self.head = head
        self.gaussian = gaussian
        self.origin = origin
        self.device = device
        self.batch_size = batch_size
        self._loaded: dict[str, Model] = {}

    def __repr__(self) -> str:
        names = ", ".join(model.name for model in self.models)
        return (
            f"Predictor({len(self.classes_)} classes from {len(self.columns)} features of {names})"
        )

    def stream(self, images: Iterable[ImageLike]) -> Iterator[Prediction | Unreadable]:
        """Label images one after another, in the order in which they come.

        Any number of them: some are in memory at a time. An image that cannot be read is
        reported, and the others go on.
        """
        start = 0
        columns = self.columns.by_model
        for piece in features_of(images, self.loaded(), columns, self._batch_size()):
            probabilities = self.head.probabilities(piece.features)
            distances = self.gaussian.distances(piece.features)
            rows = dict(zip(piece.positions, range(len(piece.positions)), strict=True))
            for at, path in enumerate(piece.names):
                if at in piece.problems:
                    yield Unreadable(start + at, path, piece.problems[at])
                    continue
                row = rows[at]
                yield Prediction(
                    position=start + at,
                    path=path,
                    label=self.classes_[probabilities[row].argmax()].item(),
                    probabilities=probabilities[row],
                    distance=float(distances[row]),
                    out_of_domain=bool(distances[row] > 1),
                )
            start += len(piece.names)

    def predict(self, images: Iterable[ImageLike]) -> NDArray[Any]:
        """The most probable class of each image.

        Parameters
        ----------
        images : iterable
            Paths, Pillow images or arrays of bytes (height, width, 3).

        Raises
        ------
        InputError
            If one of them cannot be read; :meth:`stream` goes on with the others.
        """
        return _column([found.label for found in self._all(images)], self.classes_.dtype)

    def predict_proba(self, images: Iterable[ImageLike]) -> NDArray[np.float64]:
        """Probabilities (n, n_classes), columns in the order of `classes_`."""
        rows = [found.probabilities for found in self._all(images)]
        return np.array(rows).reshape(-1, len(self.classes_))

    def domain_distance(self, images: Iterable[ImageLike]) -> NDArray[np.float64]:
        """How far each image is from the training images; above 1 it is unlike them.

        See :class:`~oodzoo.predictor.gaussian.TrainingGaussian`.
        """
        return np.array([found.distance for found in self._all(images)])

    def score(self, images: Iterable[ImageLike], y: Sequence[Any] | NDArray[Any]) -> float:
        """The share of images whose class is predicted."""
        truth = list(y.tolist() if isinstance(y, np.ndarray) else y)
        known = self.classes_.tolist()
        if truth and not any(label in known for label in truth):
            raise InputError(
                f"none of the labels is a class: the first is {truth[0]!r} "
                f"({type(truth[0]).__name__}), the classes are {known[0]!r}, …"
            )
        labels = self.predict(images).tolist()
        if len(labels) != len(truth):
            raise InputError(f"there are {len(labels)} images and {len(truth)} labels")
        return float(np.mean([a == b for a, b in zip(labels, truth, strict=True)]))

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write the predictor and its models into a folder; :func:`oodzoo.load` reads it.

        A predictor that is there already is replaced; any other folder is refused.
        """
        from oodzoo.predictor.folder import save

        return save(self, Path(folder))

    def export(self, file: str | os.PathLike[str]) -> Path:
        """Write one ONNX file from pixels to probabilities; see :mod:`oodzoo.predictor.export`."""
        from oodzoo.predictor.export import export

        return export(self, Path(file))

    def preprocess(self, images: Sequence[ImageLike]) -> dict[str, NDArray[np.uint8]]:
        """What the exported ONNX file takes: images in the sizes of its models, all in memory.

        Examples
        --------
        `session.run(["probabilities"], predictor.preprocess(["a.jpg"]))`, with a session of
        onnxruntime, gives what `predictor.predict_proba(["a.jpg"])` gives.
        """
        from oodzoo.predictor.export import input_names

        inputs = input_names(self.models)
        return {name: preprocessed(images, geometry) for name, geometry in inputs.items()}

    def _all(self, images: Iterable[ImageLike]) -> Iterator[Prediction]:
        if isinstance(images, str | os.PathLike):
            raise InputError(
                f"predict takes a list of images and was given {os.fspath(images)!r}; put it in a "
                "list, or list a folder with oodzoo.predictor.images.image_files"
            )
        for found in self.stream(images):
            if isinstance(found, Unreadable):
                what = f"number {found.position}" if found.path is None else repr(found.path)
                raise InputError(
                    f"cannot read the image {what}: {found.reason}; leave it out, or use stream"
                )
            yield found

    def loaded(self) -> dict[str, Model]:
        """The models, loaded where they are not yet."""
        for model in self.models:
            if model.name not in self._loaded:
                self._loaded[model.name] = model.load(self.device)
        return self._loaded

    def _batch_size(self) -> int:
        if self.batch_size is not None:
            return self.batch_size
        return min(
            default_batch_size(resolve_device(self.device, model.spec.kind))
            for model in self.models
        )

    # --- what scikit-learn asks ------------------------------------------------------------------

    def __sklearn_tags__(self) -> Tags:
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        return Tags(
            estimator_type="classifier",
            target_tags=TargetTags(required=True, multi_output=False),
            classifier_tags=ClassifierTags(),
            input_tags=InputTags(two_d_array=False),
        )

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_clone__(self) -> Predictor:
        return self


def _column(values: Sequence[Any], dtype: Any = None) -> NDArray[Any]:
    """Labels as an array; texts and numbers together stay what they are."""
    if dtype is None:
        dtype = object if len({type(value) for value in values}) > 1 else None
    return np.array(list(values), dtype=dtype)
