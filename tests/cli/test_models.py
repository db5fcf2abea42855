"""`oodzoo models`: tables, filters and bad input."""

from __future__ import annotations

from tests.conftest import Run

from oodzoo.zoo import load_zoo


def names(run: Run, *arguments: str) -> list[str]:
    return [model["name"] for model in run("models", *arguments, "--json").document["models"]]


def test_filters_narrow_the_list(run: Run) -> None:
    small = names(run, "modern", "--max-parameters", "30M", "--licence", "apache-*,mit")
    assert small == ["vit_small_patch14_reg4_dinov2.lvd142m", "resnet50.a1_in1k"]
    assert names(run, "modern", "--max-parameters", "30M", "--name", "*vit*") == small[:1]
    assert names(run, "demo", "--name", "cnn_photos") == ["cnn_photos"]


def test_models_of_a_pattern(run: Run) -> None:
    found = names(run, "demo/*random,demo/cnn_photos,demo/cnn_ph*")
    assert found == ["separable_random", "mixer_random", "cnn_photos"]


def test_the_document_has_what_is_known(run: Run) -> None:
    (model,) = run("models", "demo/cnn_photos", "--json").document["models"]
    assert model["licence"] == "Apache-2.0"
    assert model["parameters"] == 34_876
    (spec,) = load_zoo("demo/cnn_photos")
    assert (model["size"], model["cached"]) == (spec.file.stat().st_size, True)


def test_models_that_cannot_be_loaded_are_listed_with_the_reason(run: Run) -> None:
    missing = run("models", "paper", "--name", "resnet50", "--json").document["missing"]
    assert len(missing) == 3
    assert all(entry["reason"] for entry in missing)
