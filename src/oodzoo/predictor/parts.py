"""The parts of a predictor, as they are fitted, saved and exported."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, cast

from oodzoo.combining.one_head import NAMED
from oodzoo.core.errors import InputError
from oodzoo.core.limits import total
from oodzoo.extraction.columns import Columns
from oodzoo.linear.heads.adaptive import AdaptiveHead
from oodzoo.linear.heads.linear import LinearHead
from oodzoo.predictor.gaussian import TrainingGaussian
from oodzoo.predictor.models import AnyModel, FeatureModel, PredictorModel
from oodzoo.predictor.prediction_sets import LeftOut
from oodzoo.tasks import Task, task_of
from oodzoo.zoo.spec import by_network, network_key

TUNED = "tuned"
"""How one fine-tuned model was chosen."""


@dataclass(frozen=True)
class Provenance:
    """Provenance of a predictor; informational only.

    Attributes
    ----------
    domains : tuple of str
        The training domains.
    n_images : int
        Number of training samples.
    data : str
        Fingerprint of the training data.
    scores : dict
        Score of each ranked model; empty if the models were named.
    n_features : int
        Number of concatenated features before the selection.
    threshold : float or None
        Threshold of the inclusion probability; None if all features are kept.
    choice : str
        How the models were chosen and combined: "single", "pool", "ensemble" or "selection",
        "named" if the models were named, or "tuned" for one fine-tuned model.
    pool : dict
        Weight of each model in a pool; empty for any other choice.
    accuracy : float or None
        Accuracy of such a choice on unseen domains, in percent: measured by leaving each training
        domain out, with the choice inside the loop. For other tasks than classification, the main
        metric (:mod:`oodzoo.tasks.metrics`). None if it was not measured.
    accuracy_interval : tuple of float, or None
        Interval of the accuracy.
    target : str or None
        The target domain that the predictor was fitted for.
    adapted : int or None
        Number of unlabelled samples that the head was adapted to, if it was.
    tuning : dict or None
        What was fine-tuned and how, see :func:`oodzoo.tune`; None if nothing was.
    name : str or None
        Name of the training data; None if it has none.
    score : str or None
        The score that `scores` are of.
    accuracy_by_domain : dict
        Accuracy on each held-out domain, in percent; its mean is `accuracy`.
    choice_by_domain : dict
        What was chosen without each of these domains.
    images : str
        Short hashes of the training images and their labels, see :func:`hashed_images`; empty
        for features without images.
    """

    domains: tuple[str, ...]
    n_images: int
    data: str
    scores: dict[str, float]
    n_features: int
    threshold: float | None
    choice: str = NAMED
    pool: dict[str, float] = field(default_factory=dict)
    accuracy: float | None = None
    accuracy_interval: tuple[float, float] | None = None
    target: str | None = None
    adapted: int | None = None
    tuning: dict[str, Any] | None = None
    name: str | None = None
    score: str | None = None
    accuracy_by_domain: dict[str, float] = field(default_factory=dict)
    choice_by_domain: dict[str, str] = field(default_factory=dict)
    images: str = field(default="", repr=False)

    def hashed_labels(self) -> dict[bytes, set[bytes]]:
        """Hashes of the labels of each training image, by the hash of the image."""
        try:
            rows = base64.b64decode(self.images)
        except ValueError as error:
            raise InputError(
                f"the images in the provenance are damaged: {error}; fit again"
            ) from error
        found: dict[bytes, set[bytes]] = {}
        for at in range(0, len(rows), _IMAGE_BYTES + _LABEL_BYTES):
            image = rows[at : at + _IMAGE_BYTES]
            found.setdefault(image, set()).add(rows[at + _IMAGE_BYTES :][:_LABEL_BYTES])
        return found


_IMAGE_BYTES, _LABEL_BYTES = 6, 3
"""Enough to tell images apart, and labels of one image; 12 characters of text for both."""


def hashed_images(samples: Iterable[tuple[str, str]]) -> str:
    """Write the digests of images with their labels as text; the order does not matter."""
    rows = sorted(
        hashlib.sha256(image.encode()).digest()[:_IMAGE_BYTES]
        + hashlib.sha256(label.encode()).digest()[:_LABEL_BYTES]
        for image, label in samples
    )
    return base64.b64encode(b"".join(rows)).decode()


@dataclass(frozen=True)
class Cost:
    """What the models of a predictor cost, summed; None where it is not known for all of them.

    Attributes
    ----------
    milliseconds : float or None
        Inference time per sample on the machine of the extraction.
    parameters : int or None
        Number of parameters.
    bytes : int or None
        Size of the files on disk.
    """

    milliseconds: float | None
    parameters: int | None
    bytes: int | None

    @classmethod
    def of(cls, models: Sequence[AnyModel]) -> Cost:
        """Sum the costs of models; that of layers of one network is the largest of them."""
        networks = by_network(
            models, lambda each: each.name if each.spec is None else network_key(each.spec)
        )

        def summed(what: str) -> Any:
            found = [[getattr(model, what) for model in group] for group in networks]
            return total(None if None in each else max(each) for each in found)

        return cls(summed("milliseconds"), summed("parameters"), summed("bytes"))


@dataclass(eq=False)
class PredictorParts:
    """Everything that determines the predictions, as it is fitted, saved and exported.

    :class:`oodzoo.Predictor` explains the attributes.
    """

    models: tuple[PredictorModel, ...] | tuple[FeatureModel, ...]
    columns: Columns
    classes: list[Any]
    head: LinearHead
    gaussian: TrainingGaussian
    provenance: Provenance
    adaptive: AdaptiveHead | None = None
    left_out: LeftOut | None = None

    @property
    def task(self) -> Task:
        """What is predicted."""
        return task_of(self.head.task.kind, self.classes)

    @property
    def modality(self) -> Literal["image", "text"] | None:
        """What the models take; None if they have features only."""
        return self.models[0].modality

    @property
    def noun(self) -> str:
        """What a sample is called."""
        return self.modality or "sample"

    @property
    def features_only(self) -> bool:
        """Whether the models have features only, and cannot be loaded to compute them."""
        return self.modality is None

    @property
    def loadable_models(self) -> tuple[PredictorModel, ...]:
        """The models, if they can be loaded; an InputError if they have features only."""
        if self.features_only:
            raise InputError(
                "the models of this predictor have features only, and cannot be loaded: "
                f"{', '.join(model.name for model in self.models)}"
            )
        return cast("tuple[PredictorModel, ...]", self.models)

    @property
    def cost(self) -> Cost:
        """Inference time, parameters and size of the models, summed."""
        return Cost.of(self.models)

    def to_dict(self) -> dict[str, Any]:
        """The facts about the predictor, for JSON: choice, accuracy, models, cost, provenance."""
        provenance = asdict(self.provenance)
        weights = provenance.pop("pool")
        del provenance["images"]
        choice = {k: provenance.pop(k) for k in ("choice", "accuracy", "accuracy_interval")}
        return {
            **choice,
            "task": self.task.kind,
            "metric": self.task.metric,
            "classes": self.classes,
            "models": [
                {
                    "name": model.name,
                    "weight": weights.get(model.name),
                    "features": model.feature_dim,
                    "kept": len(self.columns.by_model[model.name]),
                    "features_only": model.spec is None,
                    **{
                        k: getattr(model.spec, k, None)
                        for k in ("pretraining", "licence", "origin")
                    },
                    **asdict(Cost.of([model])),
                }
                for model in self.models
            ],
            "cost": asdict(self.cost),
            "C": self.head.C,
            "out_of_domain": asdict(self.gaussian.scalars()),
            "adaptive": self.adaptive is not None,
            "left_out": None if self.left_out is None else asdict(self.left_out),
            "provenance": provenance,
        }
