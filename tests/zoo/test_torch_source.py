from __future__ import annotations

from typing import Any

import pytest

from oodzoo.zoo import ModelSpec, load_model
from oodzoo.zoo.torch_source import repeatable, seeded


def test_the_seed_is_the_name(torch: Any) -> None:
    def draw(name: str) -> float:
        with seeded(ModelSpec(name, "timm/x")):
            return float(torch.rand(1))

    assert draw("a") == draw("a") == draw("a@blocks.3")
    assert draw("a") != draw("b")


def test_the_generator_of_the_caller_is_not_touched(torch: Any) -> None:
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    first = torch.rand(1)
    with seeded(ModelSpec("a", "timm/x")):
        torch.rand(5)
    assert torch.equal(torch.cat([first, torch.rand(1)]), expected)


def test_pre_trained_models_are_not_seeded(torch: Any) -> None:
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    with repeatable(ModelSpec("a", "timm/x", pretrained=True)):
        assert torch.equal(torch.rand(1), expected)


@pytest.mark.parametrize(
    ("source", "arguments"),
    [
        ("timm/test_vit", {"img_size": 64, "num_classes": 0}),
        ("timm/resnet18", {"num_classes": 4}),
        ("torchvision/squeezenet1_1", {"num_classes": 4}),
    ],
)
def test_random_weights_can_be_loaded_again(
    timm: Any, torchvision: Any, torch: Any, source: str, arguments: dict[str, Any]
) -> None:
    spec = ModelSpec("random", source, pretrained=False, input_size=64)
    first = load_model(spec)
    torch.rand(7)
    assert load_model(spec).info == first.info
    other = load_model(ModelSpec("other", source, pretrained=False, input_size=64))
    assert other.info.fingerprint != first.info.fingerprint
    given = ModelSpec("random", source, pretrained=False, input_size=64, arguments=arguments)
    model = load_model(given)
    assert model.info.n_logits == (arguments["num_classes"] or None)
    assert model.info.fingerprint != first.info.fingerprint


def test_open_clip(open_clip: Any, torch: Any) -> None:
    spec = ModelSpec("random", "open_clip/RN50/openai", pretrained=False, input_size=32)
    first = load_model(spec)
    torch.rand(7)
    assert load_model(spec).info == first.info
