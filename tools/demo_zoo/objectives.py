"""Training objectives: one class per objective, each with a ``loss``.

An objective owns the parts that only training needs (a projector, a decoder); only a
classification head, if there is one, becomes part of the model.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from tools.demo_zoo.models import Model
from tools.demo_zoo.sources import Source
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["OBJECTIVES", "Objective"]

SIDE, PATCH = 32, 4


class Objective(nn.Module, ABC):
    """A model in training; ``normalise`` maps colours in [0, 1] to the model's input."""

    def __init__(self, model: Model, source: Source, normalise: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.model, self.source, self.normalise = model, source, normalise
        self.prepare()

    def prepare(self) -> None:
        """Create the parts that training needs; called once."""

    @abstractmethod
    def loss(self, batch: int, generator: torch.Generator) -> Tensor:
        """Draw a batch of this size and return its loss."""

    def logits(self, images: Tensor) -> Tensor:
        return self.model(self.normalise(images))[1]  # type: ignore[no-any-return]


class Supervised(Objective):
    """Cross-entropy on the classes of the source."""

    def prepare(self) -> None:
        self.model.add_head(self.source.classes)

    def loss(self, batch: int, generator: torch.Generator) -> Tensor:
        originals, labels = self.source.draw(batch, generator)
        images = self.source.view(originals, generator)
        return F.cross_entropy(self.logits(images), labels, label_smoothing=0.05)


class Adversarial(Supervised):
    """Cross-entropy on images perturbed against the model: projected gradient, L-infinity."""

    radius, step, steps = 0.10, 0.05, 3

    def loss(self, batch: int, generator: torch.Generator) -> Tensor:
        originals, labels = self.source.draw(batch, generator)
        images = self.source.view(originals, generator)
        return F.cross_entropy(self.logits(self._attack(images, labels)), labels)

    def _attack(self, images: Tensor, labels: Tensor) -> Tensor:
        self.model.eval()  # the attack must not move the batch norms' running moments
        worst = images.clone()
        for _ in range(self.steps):
            worst.requires_grad_(True)
            loss = F.cross_entropy(self.logits(worst), labels)
            (slope,) = torch.autograd.grad(loss, worst)
            moved = worst.detach() + self.step * slope.sign()
            worst = moved.clamp(images - self.radius, images + self.radius).clamp(0.0, 1.0)
        self.model.train()
        return worst.detach()


class Rotation(Objective):
    """Predict by which multiple of 90 degrees the image was rotated."""

    def prepare(self) -> None:
        self.model.add_head(4)

    def loss(self, batch: int, generator: torch.Generator) -> Tensor:
        originals, _ = self.source.draw(batch, generator)
        images = self.source.view(originals, generator)
        quarters = torch.arange(4, device=images.device).repeat_interleave(batch // 4)
        turned = [torch.rot90(part, k, (2, 3)) for k, part in enumerate(images.chunk(4))]
        return F.cross_entropy(self.logits(torch.cat(turned)), quarters)


class Contrastive(Objective):
    """Two views of an original attract, all others repel (NT-Xent, as in SimCLR)."""

    temperature = 0.2

    def prepare(self) -> None:
        width = self.model.feature_dim
        self.projector = nn.Sequential(
            nn.Linear(width, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 64)
        )

    def loss(self, batch: int, generator: torch.Generator) -> Tensor:
        originals, _ = self.source.draw(batch, generator)
        views = [self.source.view(originals, generator) for _ in range(2)]
        features = self.model.features(self.normalise(torch.cat(views)))
        points = F.normalize(self.projector(features), dim=1)
        alike = points @ points.T / self.temperature
        alike.fill_diagonal_(float("-inf"))
        partner = torch.arange(2 * batch, device=points.device).roll(batch)
        return F.cross_entropy(alike, partner)


class Autoencoding(Objective):
    """Reconstruct the image from the features, through a small transposed-convolution decoder."""

    noise = 0.0

    def prepare(self) -> None:
        self.decoder = nn.Sequential(
            nn.Linear(self.model.feature_dim, 64 * 16),
            nn.Unflatten(1, (64, 4, 4)),
            nn.ReLU(),
            nn.ConvTranspose2d(64, 32, 4, 2, 1),
            nn.ReLU(),
            nn.ConvTranspose2d(32, 16, 4, 2, 1),
            nn.ReLU(),
            nn.ConvTranspose2d(16, 3, 4, 2, 1),
        )

    def loss(self, batch: int, generator: torch.Generator) -> Tensor:
        originals, _ = self.source.draw(batch, generator)
        images = self.source.view(originals, generator)
        seen = images + self.noise * torch.randn(
            images.shape, device=images.device, generator=generator
        )
        return F.mse_loss(self.decoder(self.model.features(self.normalise(seen))), images)


class Denoising(Autoencoding):
    """Reconstruct the clean image from the features of a noisy one."""

    noise = 0.35


class Masked(Autoencoding):
    """Reconstruct hidden patches from the pooled features of the masked image.

    Decoding from the pooled features, not from each patch's own, makes the pooled features
    informative.
    """

    hidden = 0.4

    def loss(self, batch: int, generator: torch.Generator) -> Tensor:
        originals, _ = self.source.draw(batch, generator)
        images = self.source.view(originals, generator)
        across = SIDE // PATCH
        dice = torch.rand(batch, 1, across, across, device=images.device, generator=generator)
        hide = F.interpolate((dice < self.hidden).float(), scale_factor=PATCH, mode="nearest")
        seen = self.normalise(images) * (1 - hide)
        wrong = (self.decoder(self.model.features(seen)) - images).square().mean(dim=1)
        share: Tensor = (wrong * hide[:, 0]).sum() / hide.sum()
        return share


OBJECTIVES: dict[str, type[Objective]] = {
    "supervised": Supervised,
    "adversarial": Adversarial,
    "rotation": Rotation,
    "contrastive": Contrastive,
    "autoencoding": Autoencoding,
    "denoising": Denoising,
    "masking": Masked,
}
"""Objectives by name; "random initialisation" has none."""
