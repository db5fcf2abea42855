"""Predictors: classify images, or any samples that have features, with a linear head."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, NoReturn, Self, cast, overload

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import ClassifierTags, InputTags, RegressorTags, Tags, TargetTags

from oodzoo.combining.statements import shown_choice
from oodzoo.core.backend import default_batch_size, require_device, resolve_device, to_numpy
from oodzoo.core.errors import InputError
from oodzoo.core.remote.location import Url, parse_location
from oodzoo.core.text import count, some_of
from oodzoo.linear.heads.adaptive import AdaptingDomain
from oodzoo.predictor.card import predictor_as_html
from oodzoo.predictor.chunks import (
    BATCH_SIZE,
    Encoder,
    FeatureChunk,
    ImageLike,
    Inputs,
    Listed,
    as_list,
    checked_features,
    iter_encoded,
    iter_features,
    iter_given,
    keep_first,
    known_encoders,
    one_column,
    preprocess_images,
)
from oodzoo.predictor.export import export_head, export_onnx, feature_inputs, input_names
from oodzoo.predictor.models import FeatureModel, PredictorModel, load_models
from oodzoo.predictor.parts import PredictorParts
from oodzoo.predictor.prediction import Prediction, Unreadable, missing, require_sets, score
from oodzoo.predictor.prediction_sets import SetLevel, intervals_of, set_of
from oodzoo.predictor.remote import push_to_hub, read_remote, write_url
from oodzoo.predictor.resizing import IMAGE
from oodzoo.predictor.saved import read_folder, write_folder
from oodzoo.predictor.torch_module import predictor_module
from oodzoo.store.format import part_of_run
from oodzoo.tasks.classification import label_array
from oodzoo.zoo import Model


@dataclass(eq=False, repr=False)
class Predictor(PredictorParts, BaseEstimator):  # type: ignore[misc]
    """Classifier or regressor, returned by :func:`oodzoo.fit` and :func:`oodzoo.load`.

    Its methods take a list of images, if its models are of a zoo. Any predictor takes features
    instead: a dict {model: array (n, d)}, whose rows are the same samples. A predictor that was
    fitted to arrays or imported features has nothing but features; the array itself will do if it
    has one model. With `encoders`, it takes the inputs of these functions: texts, waveforms, rows
    of a table.

    For scikit-learn it is a fitted classifier or regressor of such samples, which works with its
    scorers, metrics and displays; as FrozenEstimator(predictor) also in pipelines and with
    CalibratedClassifierCV. `clone` returns it unchanged. It can be pickled: a pickle refers to the
    files of the models by path, and models are loaded again when they are first used.

    Attributes
    ----------
    classes_ : array (n_classes,)
        The classes, or the names of the numbers or labels.
    task : Task
        What is predicted.
    models : tuple of PredictorModel, or of FeatureModel
        The models with at least one selected feature; a FeatureModel has features only.
    encoders : dict
        Functions that compute the features of models that have features only.
    columns : Columns
        The selected features of each model.
    head : LinearHead
    gaussian : TrainingGaussian
        Gaussians of the selected features of the training samples.
    provenance : Provenance
        Training data, scores and options; informational only.
    adaptive : AdaptiveHead or None
        Head that adapts to the samples of a domain, for :meth:`adapted`; only a pool has one.
    left_out : LeftOut or None
        Prediction sets and confidence on held-out domains. None for several labels and fine-tuned
        models.
    """

    encoders: Mapping[str, Encoder] = field(default_factory=dict, kw_only=True)
    device: str = field(default="auto", kw_only=True)
    batch_size: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check_params(self.device, self.batch_size)
        self.models = cast("tuple[PredictorModel, ...]", tuple(self.models))
        self.classes_ = label_array(self.classes)
        self.classes = self.classes_.tolist()
        self.encoders = known_encoders(self.encoders, self.models)
        self._loaded: dict[str, Model] = {}

    def __repr__(self) -> str:
        names = some_of([model.name for model in self.models], 5)
        features = count(len(self.columns), "feature")
        outputs = self.task.count_outputs(len(self.classes_))
        choice = shown_choice(self.provenance.choice, self.models)
        return f"Predictor({choice}: {outputs} from {features} of {names})"

    def __str__(self) -> str:
        accuracy = self.provenance.accuracy
        metric = self.task.metric.replace("_", " ")
        measured = "" if accuracy is None else f": {metric} {accuracy:.1f} % on held-out domains"
        return f"{self!r}{measured}"

    def _repr_html_(self) -> str:
        return predictor_as_html(self)

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        """What notebooks show; they prefer it to `_repr_html_`."""
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    def __getstate__(self) -> dict[str, Any]:
        """The attributes, for pickles: models by the absolute paths of their files, not loaded."""
        models: list[PredictorModel | FeatureModel] = []
        for model in self.models:
            if model.spec is None:
                models.append(model)
                continue
            if model.is_temporary:
                warnings.warn(
                    f"the file of the model {model.name!r} is temporary: this pickle cannot be "
                    "used after the process has ended; save the predictor to a folder with save(), "
                    "and pickle what oodzoo.load returns",
                    stacklevel=2,
                )
            spec = replace(model.spec, folder=model.spec.folder.resolve())
            models.append(replace(model, spec=spec))
        return vars(self) | {"models": tuple(models), "_loaded": {}}

    def stream(
        self,
        images: Inputs,
        *,
        adapt: bool = False,
        min_confidence: float | None = None,
        coverage: float | None = None,
    ) -> Iterator[Prediction | Unreadable]:
        """Classify any number of images or other samples in order, with bounded memory.

        An image that cannot be read, or a blank text, gives an :class:`Unreadable` instead of an
        error.

        Parameters
        ----------
        images : iterable or mapping
            As in :meth:`predict`.
        adapt : bool, default False
            Whether to adapt to these images first, as :meth:`adapted` does. All of them are then
            listed and go through the models before the first prediction. Features above
            1 GiB are not kept, but computed again.
        min_confidence : float, optional
            Predictions of classes whose probability is below this are `abstained`, with no label.
            `left_out.at_confidence` says how accurate the others are on held-out domains.
        coverage : float, optional
            Share of prediction sets, or intervals, that contain the truth, as in
            :meth:`predict_sets`; each prediction then has its `set` or `intervals`.
        """
        samples, task = as_list(images, self.noun), self.task
        if min_confidence is not None:
            if not 0 <= min_confidence <= 1:
                raise InputError(f"the confidence must be from 0 to 1, got {min_confidence!r}")
            if not task.one_class:
                raise InputError(
                    "a smallest confidence needs one class per sample, and the predictor predicts "
                    f"{task.several_words}; leave out min_confidence (--min-confidence)"
                )
        level = None if coverage is None else require_sets(task, self.left_out, coverage)
        if not adapt:
            yield from self._predict_chunks(self._chunks(samples), min_confidence, level)
            return
        listed: Any = samples
        if not isinstance(samples, Mapping) and not hasattr(samples, "shape"):
            listed = list(samples)
        kept = list[FeatureChunk]()
        adapted = self._adapted(keep_first(self._chunks(listed), kept))
        n_kept = sum(len(chunk.paths) for chunk in kept)
        chunks = chain(kept, self._chunks(listed, n_kept))
        yield from adapted._predict_chunks(chunks, min_confidence, level)

    def adapted(self, images: Inputs) -> Predictor:
        """Return a predictor for the domain of these unlabelled images or other samples.

        Some heads of a pool act on features standardised within each domain, if that helped on
        held-out training domains. For them, mean and standard deviation are those of these images;
        see :mod:`oodzoo.linear.heads.adaptive`. The images should be of one domain, and of most
        classes. Their order does not matter. Images that cannot be read are left out.

        Raises
        ------
        InputError
            If fewer than 20 images can be read, or if the predictor is not a pool.
        """
        return self._adapted(self._chunks(as_list(images, self.noun)))

    def _adapted(self, chunks: Iterable[FeatureChunk]) -> Predictor:
        if self.adaptive is None:
            raise InputError(
                f"this predictor ({self.provenance.choice}) cannot adapt to images; only a pool "
                "can: fit again with choose='pool' (--choose pool)"
            )
        domain = AdaptingDomain(self.adaptive)
        for chunk in chunks:
            domain.add(chunk.features)
        provenance = replace(self.provenance, adapted=domain.n)
        adapted = replace(self, head=domain.head(), provenance=provenance)
        adapted._loaded = self._loaded
        return adapted

    def _chunks(self, images: Listed, start: int = 0) -> Iterator[FeatureChunk]:
        """Selected features, from a position on."""
        if not isinstance(images, Mapping) and self.modality is not None:
            listed, size = one_column(images, self.noun), self._batch_size()
            yield from iter_features(listed, self.loaded(), self.columns, size, start)
            return
        dimensions = getattr(images, "ndim", None)
        is_array = dimensions is not None and not self.encoders
        if is_array and dimensions != 2:  # if need be features of a wrong shape
            is_array = np.asarray(to_numpy(images)).dtype.kind in "fiu"
        if is_array or isinstance(images, Mapping):
            yield from iter_given(checked_features(images, self.models), self.columns, start)
            return
        size = self.batch_size or BATCH_SIZE
        yield from iter_encoded(images, self.models, self.encoders, self.columns, size, start)

    def _predict_chunks(
        self,
        chunks: Iterable[FeatureChunk],
        min_confidence: float | None,
        level: SetLevel | None,
    ) -> Iterator[Prediction | Unreadable]:
        task, classes, start = self.task, self.classes_, 0
        for chunk in chunks:
            rows = {position: row for row, position in enumerate(chunk.positions)}
            values = self.head.values(chunk.features)
            distances = self.gaussian.distances(chunk.features).tolist()
            for at, path in enumerate(chunk.paths):
                if at in chunk.problems:
                    yield Unreadable(start + at, path, chunk.problems[at])
                    continue
                distance, found = distances[rows[at]], values[rows[at]]
                abstained = min_confidence is not None and bool(found.max() < min_confidence)
                yield Prediction(
                    position=start + at,
                    path=path,
                    label=None if abstained else task.outcome(found, classes),
                    probabilities=found if task.has_probabilities else None,
                    distance=distance,
                    out_of_domain=distance > 1,
                    abstained=abstained,
                    set=set_of(found, classes, level) if level and task.one_class else None,
                    intervals=intervals_of(found, level) if level and not task.one_class else None,
                )
            start += len(chunk.paths)

    def predict(self, images: Inputs) -> NDArray[Any]:
        """Predict the most probable class of each image, or other sample.

        For other tasks than classification, numbers (n,) or (n, C); or zeros and ones (n, C) for
        the labels, in the order of `classes_`.

        Parameters
        ----------
        images : iterable or mapping
            Paths, Pillow images or uint8 arrays (height, width, 3), in a list, an array or a
            column of a table; one of them is a list of one. The path of a folder stands for its
            images, sorted by path.
            Features as a dict {model: array (n, d)}, or as an array if the predictor has
            features of one model. With encoders, a list, an array or a table of
            their inputs. Strings, if the models are text encoders of a zoo.

        Raises
        ------
        InputError
            If an image of a list cannot be read, or a text is blank; :meth:`stream` continues with
            the others. Of a folder, if none can be read.

        Warns
        -----
        UserWarning
            If some images of a folder cannot be read. They keep their place in the result: with
            None as the class; NaN as numbers, labels, probabilities and distance; and an empty set.
        """
        labels = [prediction.label for prediction in self._predictions(images)]
        return self.task.outcome_array(labels, self.classes_)

    def predict_proba(self, images: Inputs) -> NDArray[np.float64]:
        """Predict probabilities (n, n_classes), columns in the order of `classes_`."""
        if not self.task.has_probabilities:
            raise InputError("the predictor predicts numbers, which have no probabilities")
        rows = [prediction.probabilities for prediction in self._predictions(images)]
        return np.array(rows).reshape(-1, len(self.classes_))

    def predict_sets(self, images: Inputs, coverage: float = 0.9) -> list[tuple[Any, ...]]:
        """Predict for each sample a set of classes that contains the right one.

        The sets contain it with this probability as measured on held-out domains: see
        `left_out.at_coverage(0.9)` for the coverage of each, the lowest one and the mean size.
        The threshold is explained in :mod:`oodzoo.predictor.prediction_sets`.

        Parameters
        ----------
        images : iterable or mapping
            As in :meth:`predict`.
        coverage : {0.8, 0.9, 0.95}

        Returns
        -------
        list of tuple
            The classes of each sample, the most probable first. If numbers are predicted, an
            interval (low, high) for each of them.
        """
        found = self._predictions(images, coverage)
        return [each.intervals or each.set or () for each in found]

    def domain_distance(self, images: Inputs) -> NDArray[np.float64]:
        """Distance of each sample from the training samples; above 1 it is unlike them.

        See :class:`~oodzoo.predictor.gaussian.TrainingGaussian`.
        """
        return np.array([prediction.distance for prediction in self._predictions(images)])

    def score(self, images: Inputs, y: Sequence[Any] | NDArray[Any]) -> float:
        """Compute the main metric as a fraction: accuracy, or that of the task.

        See :mod:`oodzoo.tasks`. Several labels are given as zeros and ones, or lists of
        strings.
        """
        found = list(self._predictions(as_list(images, self.noun)))  # all must be readable
        labels = [prediction.label for prediction in found]
        values = [prediction.probabilities for prediction in found]
        return score(self.task, labels, values, self.classes_, y, self.noun)

    @overload
    def save(self, folder: os.PathLike[str]) -> Path: ...
    @overload
    def save(self, folder: str) -> Path | Url: ...
    def save(self, folder: str | os.PathLike[str]) -> Path | Url:
        """Write the predictor and its models to a folder or URL; :func:`oodzoo.load` reads it.

        An existing predictor is replaced: at any moment, there is the old one or the new one. Any
        other existing folder is an error.
        """
        location = parse_location(folder)
        if isinstance(location, Url):
            return write_url(self, location)
        written = write_folder(self, location)
        if any(each.spec and each.spec.folder.resolve() == written for each in self.models):
            self.models = read_folder(written).models  # its own files have been replaced
        return written

    def push_to_hub(
        self,
        repo_id: str,
        *,
        private: bool | None = None,
        token: str | None = None,
        revision: str | None = None,
        commit_message: str | None = None,
    ) -> str:
        """Push the predictor to a repository of the Hugging Face Hub, as one commit.

        The repository gets the files that :meth:`save` writes, with the model card. It is created
        if it does not exist. A predictor in it is replaced; a repository of anything else is an
        error. A card that was edited there is kept, with a warning. `oodzoo.load("hf://owner/name")`
        reads it. Needs the extra `hub`.

        Parameters
        ----------
        repo_id : str
            "owner/name".
        private : bool, optional
            Whether a new repository is private; by default, as the settings of the owner say.
        token : str, optional
            By default that of `hf auth login` or of HF_TOKEN. It must permit writing.
        revision : str, optional
            A branch, created if it does not exist; by default the main branch.
        commit_message : str, optional

        Returns
        -------
        str
            The URL of the repository.
        """
        return push_to_hub(
            self,
            repo_id,
            private=private,
            token=token,
            revision=revision,
            commit_message=commit_message,
        )

    def export(
        self, file: str | os.PathLike[str], *, head_only: bool = False, raw: bool = False
    ) -> Path:
        """Write one ONNX file from pixels to probabilities; see :mod:`oodzoo.predictor.export`.

        With `raw`, the file takes one RGB image of any size, and resizes it. With `head_only`, it
        takes the features of each model instead, which is the only form if the models have
        features only.
        """
        if raw and (head_only or self.features_only):
            raise InputError("the head takes features, not an image; leave out --raw (raw=)")
        if head_only or self.features_only:
            return export_head(self, Path(file))
        return export_onnx(self, self.loaded, Path(file), raw=raw)

    def export_inputs(
        self, *, head_only: bool = False, raw: bool = False
    ) -> dict[str, tuple[int | str, ...]]:
        """Name and shape of each input of the exported ONNX file, without the batch.

        With `raw`, there is no batch: `{"image": ("height", "width", 3)}`.
        """
        if raw:
            return {IMAGE: ("height", "width", 3)}
        if head_only or self.features_only:
            names = feature_inputs(self)
            return {names[model.name]: (model.feature_dim,) for model in self.models}
        inputs = input_names(self.loadable_models)
        return {name: (*geometry.crop, 3) for name, geometry in inputs.items()}

    def to_torch(self) -> Any:
        """Return one `torch.nn.Module` from preprocessed pixels to logits, ready to train.

        See :mod:`oodzoo.predictor.torch_module`. It has weights of its own: training it does not
        change the predictor.
        """
        return predictor_module(self)

    def preprocess(self, images: Sequence[ImageLike]) -> dict[str, NDArray[np.uint8]]:
        """Prepare images for the exported ONNX file, as one array per input.

        Examples
        --------
        `session.run(["probabilities"], predictor.preprocess(["a.jpg"]))`, with a session of
        onnxruntime, returns the same as `predictor.predict_proba(["a.jpg"])`.
        """
        if self.modality == "text":
            raise InputError("the models of this predictor take texts; there are no pixels")
        inputs = input_names(self.loadable_models)
        return {name: preprocess_images(images, geometry) for name, geometry in inputs.items()}

    def loaded(self) -> dict[str, Model]:
        """The loaded models, by name; loads those that are not loaded yet."""
        missing = [each for each in self.loadable_models if each.name not in self._loaded]
        self._loaded |= load_models(missing, self.device)
        return self._loaded

    def fit(self, images: Any, y: Any = None, **params: Any) -> NoReturn:
        """Raise InputError: a predictor is fitted already, by :func:`oodzoo.fit`.

        scikit-learn's FrozenEstimator has a `fit` that changes nothing.
        """
        raise InputError(
            "a predictor is fitted already, and only oodzoo.fit can fit one; to use it inside an "
            "estimator of scikit-learn, wrap it: sklearn.frozen.FrozenEstimator(predictor)"
        )

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters that can be changed: device and batch size."""
        return {"batch_size": self.batch_size, "device": self.device}

    def set_params(self, **params: Any) -> Self:
        """Change the device or the batch size; on another device, models are loaded again.

        Raises
        ------
        InputError
            For any other parameter, or for a value that is not a device or a batch size.
        """
        if unknown := [name for name in params if name not in self.get_params()]:
            raise InputError(
                f"cannot set {unknown[0]!r}: of a predictor, only device and batch_size can be "
                "changed; to change anything else, fit again"
            )
        changed = self.get_params() | params
        check_params(**changed)
        if changed["device"] != self.device:
            self._loaded = {}
        self.device, self.batch_size = changed["device"], changed["batch_size"]
        return self

    def __sklearn_tags__(self) -> Tags:
        task, numbers = self.task, not self.task.has_probabilities
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.target_tags = TargetTags(
            required=True,
            multi_output=not task.one_class and not (numbers and len(self.classes_) == 1),
            single_output=task.one_class or numbers,
        )
        if numbers:
            tags.estimator_type, tags.regressor_tags = "regressor", RegressorTags()
        else:
            tags.estimator_type = "classifier"
            tags.classifier_tags = ClassifierTags(multi_label=not task.one_class)
        listed = not self.features_only
        tags.input_tags = InputTags(one_d_array=listed, two_d_array=not listed, string=listed)
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_clone__(self) -> Self:
        return self

    def _predictions(self, images: Inputs, coverage: float | None = None) -> Iterator[Prediction]:
        is_path, n, lost = isinstance(images, str | os.PathLike), 0, list[str]()
        for n, found in enumerate(self.stream(images, coverage=coverage), start=1):  # noqa: B007
            if isinstance(found, Prediction):
                yield found
                continue
            name = f"number {found.position}" if found.path is None else repr(found.path)
            if not is_path:
                raise InputError(
                    f"cannot read the {self.noun} {name}: {found.reason}; leave it out, or use "
                    "stream"
                )
            lost.append(f"{name}: {found.reason}")
            yield missing(found, self.task, self.classes_)
        if lost and len(lost) == n:
            raise InputError(f"none of the {self.noun}s can be read; first error: {lost[0]}")
        if lost:
            warnings.warn(
                f"{len(lost):,} of {count(n, self.noun)} cannot be read: None or NaN stands for a "
                f"prediction; the first is {lost[0]}",
                stacklevel=3,
            )

    def _batch_size(self) -> int:
        if self.batch_size is not None:
            return self.batch_size
        return min(
            default_batch_size(resolve_device(self.device, model.spec.kind))
            for model in self.loadable_models
        )


def load(
    folder: str | os.PathLike[str],
    *,
    encoders: Mapping[str, Encoder] | None = None,
    device: str = "auto",
    batch_size: int | None = None,
) -> Predictor:
    """Read a predictor that :meth:`Predictor.save` or `oodzoo fit` wrote.

    Every file is checked against its checksum. The models are loaded for the first image.

    Parameters
    ----------
    folder : path or URL
        The folder of a run stands for its predictor. A URL such as "s3://bucket/model" is read
        through the local cache, and "hf://owner/name[@revision]", what
        :meth:`Predictor.push_to_hub` pushed, through that of huggingface_hub.
    encoders : dict, optional
        The functions that compute features, by model, if the models have features only; they are
        not saved. Each maps a batch of inputs to an array or tensor (n, d). With them, the
        predictor takes inputs instead of features.
    device : str, default "auto"
        Device of the models: "cpu", "cuda", "cuda:1", "mps"; "auto" takes the fastest available.
    batch_size : int, optional
        Images per forward pass, by default depending on the device; or inputs per call of an
        encoder.
    """
    location = parse_location(folder)
    if isinstance(location, Url):
        parts = read_remote(location)
    else:
        parts = read_folder(part_of_run(location, "model"))
    return Predictor(**vars(parts), encoders=encoders or {}, device=device, batch_size=batch_size)


def check_params(device: Any, batch_size: Any) -> None:
    """Raise InputError for what is not a device or a batch size."""
    if not isinstance(device, str):
        raise InputError(f"the device must be a string such as 'cpu' or 'cuda', got {device!r}")
    require_device(device)
    if batch_size is None:
        return
    if not isinstance(batch_size, int) or isinstance(batch_size, bool):
        raise InputError(f"the batch size must be a number of samples or None, got {batch_size!r}")
    if batch_size < 1:
        raise InputError(f"the batch size must be 1 or more, got {batch_size}")
