"""DomainBed's augmentation of one image by torchvision's functions, with given parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def augmented_image(
    functional: Any,
    image: Any,
    flip: bool,
    order: Sequence[int],
    factors: Sequence[float],
    grey: bool,
) -> Any:
    """Apply functions of torchvision.transforms.v2.functional to a tensor (3, height, width).

    `order` has the operations of the colour jitter as numbers, as in torchvision; `factors` has
    the factor of each operation by its number.
    """
    operations = [
        functional.adjust_brightness,
        functional.adjust_contrast,
        functional.adjust_saturation,
        functional.adjust_hue,
    ]
    if flip:
        image = functional.horizontal_flip(image)
    for number in order:
        image = operations[number](image, factors[number])
    if grey:
        image = functional.rgb_to_grayscale(image, num_output_channels=3)
    return image
