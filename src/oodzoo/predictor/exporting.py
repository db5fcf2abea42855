"""A predictor outside of oodzoo: ONNX files, PyTorch modules, and the pixels that they take."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from oodzoo.errors import InputError
from oodzoo.predictor.export import export_onnx, input_names
from oodzoo.predictor.export_head import export_head, feature_inputs
from oodzoo.predictor.feature_models import FeatureModel
from oodzoo.predictor.images import ImageLike, preprocess_images
from oodzoo.predictor.models import PredictorModel
from oodzoo.predictor.parts import PredictorParts
from oodzoo.predictor.resizing import IMAGE
from oodzoo.predictor.torch_module import predictor_module
from oodzoo.zoo import Model


class Exportable(ABC):
    """Writes a predictor for other programs."""

    models: tuple[PredictorModel, ...] | tuple[FeatureModel, ...]

    @property
    @abstractmethod
    def features_only(self) -> bool: ...

    @property
    @abstractmethod
    def modality(self) -> Literal["image", "text"] | None: ...

    @property
    @abstractmethod
    def loadable_models(self) -> tuple[PredictorModel, ...]: ...

    @abstractmethod
    def loaded(self) -> dict[str, Model]: ...

    @abstractmethod
    def _parts(self) -> PredictorParts: ...

    def export(
        self, file: str | os.PathLike[str], *, head_only: bool = False, raw: bool = False
    ) -> Path:
        """Write one ONNX file from pixels to probabilities; see :mod:`oodzoo.predictor.export`.

        With `raw`, the file takes one RGB image of any size, and resizes it. With `head_only`, it
        takes the features of each model instead; see :mod:`oodzoo.predictor.export_head`. This is
        the only form if the models have features only.
        """
        if raw and (head_only or self.features_only):
            raise InputError("the head takes features, not an image; leave out --raw (raw=)")
        if head_only or self.features_only:
            return export_head(self._parts(), Path(file))
        parts, models = self._parts(), self.loadable_models
        return export_onnx(parts, models, self.loaded, Path(file), raw=raw)

    def export_inputs(
        self, *, head_only: bool = False, raw: bool = False
    ) -> dict[str, tuple[int | str, ...]]:
        """Name and shape of each input of the exported ONNX file, without the batch.

        With `raw`, there is no batch: `{"image": ("height", "width", 3)}`.
        """
        if raw:
            return {IMAGE: ("height", "width", 3)}
        if head_only or self.features_only:
            names = feature_inputs(self._parts())
            return {names[model.name]: (model.feature_dim,) for model in self.models}
        inputs = input_names(self.loadable_models)
        return {name: (*geometry.crop, 3) for name, geometry in inputs.items()}

    def to_torch(self) -> Any:
        """Return one `torch.nn.Module` from preprocessed pixels to logits, ready to train.

        See :mod:`oodzoo.predictor.torch_module`. It has weights of its own: training it does not
        change the predictor.
        """
        return predictor_module(self._parts(), self.loadable_models)

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
