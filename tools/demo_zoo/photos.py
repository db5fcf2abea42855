"""Patches of scikit-learn's two sample photographs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from sklearn.datasets import load_sample_images
from torch import Tensor
from torch.nn import functional as F

__all__ = ["Photos"]

SIDE = 32


@dataclass(frozen=True)
class Photos:
    """The photographs at half size, ``(2, 3, height, width)`` in [0, 1]."""

    pixels: Tensor
    classes: int = 0

    @classmethod
    def load(cls, device: torch.device) -> Photos:
        stack = np.stack(load_sample_images().images)
        pixels = torch.from_numpy(stack).permute(0, 3, 1, 2).float().div(255.0)
        return cls(F.avg_pool2d(pixels, 2).to(device))

    def draw(self, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Crop ``n`` random squares of 48 pixels; the label is the index of the photograph."""
        side = 48
        _, _, height, width = self.pixels.shape
        device = self.pixels.device

        def whole(high: int) -> Tensor:
            return torch.randint(high, (n, 1, 1), device=device, generator=generator)

        which, top, left = whole(2), whole(height - side), whole(width - side)
        steps = torch.arange(side, device=device)
        rows, columns = top + steps[None, :, None], left + steps[None, None, :]
        # advanced indexing around the channel axis moves it to the end
        return self.pixels[which, :, rows, columns].permute(0, 3, 1, 2), which.flatten()

    def view(self, squares: Tensor, generator: torch.Generator) -> Tensor:
        """Crop, flip and recolour each square at random, down to 32 x 32."""
        n, device = len(squares), squares.device

        def uniform(low: float, high: float, *shape: int) -> Tensor:
            drawn = torch.rand(n, *shape, device=device, generator=generator)
            return low + (high - low) * drawn

        theta = torch.zeros(n, 2, 3, device=device)
        zoom = uniform(0.55, 0.85)
        theta[:, 0, 0] = zoom * torch.where(uniform(0, 1) < 0.5, -1.0, 1.0)
        theta[:, 1, 1] = zoom
        theta[:, :, 2] = uniform(-0.15, 0.15, 2)
        grid = F.affine_grid(theta, [n, 3, SIDE, SIDE], align_corners=False)
        image = F.grid_sample(squares, grid, mode="bilinear", align_corners=False)
        image = image * uniform(0.6, 1.4, 3, 1, 1) + uniform(-0.15, 0.15, 1, 1, 1)
        grey = image.mean(dim=1, keepdim=True).expand_as(image)
        return torch.where(uniform(0, 1, 1, 1, 1) < 0.3, grey, image).clamp(0.0, 1.0)
