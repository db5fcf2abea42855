"""What scikit-learn asks of an estimator, for one that is fitted already."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NoReturn, Self

from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import ClassifierTags, InputTags, RegressorTags, Tags, TargetTags

from oodzoo.errors import InputError
from oodzoo.task import Task
from oodzoo.zoo import Model
from oodzoo.zoo.device import require_device


class FittedEstimator(BaseEstimator, ABC):  # type: ignore[misc]
    """A classifier or regressor that scikit-learn neither fits nor clones.

    Its parameters are `device` and `batch_size`: what can be changed after the fit.
    """

    classes_: NDArray[Any]
    device: str
    batch_size: int | None
    _loaded: dict[str, Model]

    @property
    @abstractmethod
    def task(self) -> Task:
        """What is predicted."""

    @property
    @abstractmethod
    def features_only(self) -> bool:
        """Whether the samples are features, rather than images or texts."""

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

    @abstractmethod
    def _repr_html_(self) -> str:
        """A table, instead of the diagram of BaseEstimator."""

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        """What notebooks show; they prefer it to `_repr_html_`."""
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    def __sklearn_tags__(self) -> Tags:
        kind, several = self.task.kind, len(self.classes_) > 1
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.target_tags = TargetTags(
            required=True,
            multi_output=kind == "multilabel" or (kind == "regression" and several),
            single_output=kind != "multilabel",
        )
        if kind == "regression":
            tags.estimator_type, tags.regressor_tags = "regressor", RegressorTags()
        else:
            tags.estimator_type = "classifier"
            tags.classifier_tags = ClassifierTags(multi_label=kind == "multilabel")
        listed = not self.features_only
        tags.input_tags = InputTags(one_d_array=listed, two_d_array=not listed, string=listed)
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_clone__(self) -> Self:
        return self


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
