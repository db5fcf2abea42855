"""The recipes: architecture, source, augmentation and objective of each model.

They cover the ways in which public pre-trained models differ. No setting was tuned on the digits;
where one was revised, the reason was the loss, the scale of the features, or their accuracy on
held-out letters.
"""

from __future__ import annotations

from dataclasses import dataclass

from tools.demo_zoo.appearance import COLOURFUL, PLAIN, POSED, STRONG, Appearance

__all__ = ["RECIPES", "Recipe", "Scaling"]


@dataclass(frozen=True)
class Scaling:
    """Mean and standard deviation by which colours in [0, 1] are normalised."""

    mean: tuple[float, float, float]
    std: tuple[float, float, float]


HALF = Scaling((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
UNIT = Scaling((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
PAGE = Scaling((0.78, 0.78, 0.78), (0.31, 0.31, 0.31))  # about those of glyphs on a page


@dataclass(frozen=True)
class Recipe:
    """Everything that determines a model, up to rounding."""

    name: str
    architecture: str
    source: str
    appearance: Appearance | None
    objective: str
    seed: int
    steps: int
    learning_rate: float = 3e-3
    scaling: Scaling = HALF
    batch: int = 256

    @property
    def look(self) -> str:
        """Name and description of the augmentation."""
        if self.source == "photos":
            return "photo: cropped, flipped, recoloured, sometimes greyed"
        return self.appearance.summary if self.appearance else ""

    @property
    def pretraining(self) -> str:
        """One line for ``zoo.toml``."""
        if self.source == "none":
            return self.objective
        return f"{self.source}, {self.objective}, {self.look.split(':')[0]} augmentation"


RECIPES: tuple[Recipe, ...] = (
    Recipe("resnet_glyphs_augmented", "residual CNN", "glyphs", STRONG, "supervised", 1, 6000),
    Recipe("convnext_letters_augmented", "ConvNeXt", "letters", STRONG, "supervised", 2, 6000),
    Recipe("separable_glyphs_colour", "separable CNN", "glyphs", COLOURFUL, "supervised", 3, 4000),
    Recipe("cnn_letters_pose", "plain CNN", "letters", POSED, "supervised", 4, 4000),
    Recipe("cnn_letters", "plain CNN", "letters", PLAIN, "supervised", 5, 2500, 3e-3, PAGE),
    Recipe("vit_letters", "vision transformer", "letters", PLAIN, "supervised", 6, 4000, 1.5e-3),
    Recipe("mixer_glyphs", "MLP-mixer", "glyphs", PLAIN, "supervised", 7, 3000, 1.5e-3, PAGE),
    Recipe("mlp_glyphs_augmented", "MLP", "glyphs", STRONG, "supervised", 8, 4000, 3e-3, UNIT),
    Recipe("resnet_letters_adversarial", "residual CNN", "letters", POSED, "adversarial", 9, 2500),
    Recipe("cnn_scripts_augmented", "plain CNN", "scripts", STRONG, "supervised", 10, 5000),
    Recipe("separable_shapes", "separable CNN", "shapes", STRONG, "supervised", 11, 2500),
    Recipe("cnn_rotation", "plain CNN", "glyphs", PLAIN, "rotation", 12, 2500, 3e-3, PAGE),
    Recipe("resnet_contrastive", "residual CNN", "letters", STRONG, "contrastive", 13, 4000),
    Recipe("cnn_autoencoder", "coding CNN", "letters", PLAIN, "autoencoding", 14, 3000, 3e-3, UNIT),
    Recipe("cnn_denoising", "coding CNN", "letters", COLOURFUL, "denoising", 15, 3000, 3e-3, UNIT),
    Recipe("vit_masked", "vision transformer", "letters", POSED, "masking", 16, 4000, 1.5e-3),
    Recipe("cnn_photos", "plain CNN", "photos", None, "contrastive", 17, 2500),
    Recipe("separable_random", "separable CNN", "none", None, "random initialisation", 18, 0),
    Recipe("mixer_random", "MLP-mixer", "none", None, "random initialisation", 19, 0),
)
