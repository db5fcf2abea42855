"""What a predictor can be fine-tuned on."""

from __future__ import annotations

import shutil
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.striped import striped_predictor, write_stripes

import oodzoo
from oodzoo.errors import InputError
from oodzoo.predictor.tuning_data import model_to_tune, open_to_tune, readable_to_tune
from oodzoo.zoo.preprocessing import TextPreprocessing


def data_to_tune(data: Any, predictor: oodzoo.Predictor) -> oodzoo.ImageDomains:
    return readable_to_tune(open_to_tune(data, predictor), predictor)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[oodzoo.Predictor, Path]:
    folder = tmp_path_factory.mktemp("striped")
    data = write_stripes(folder / "data")
    return striped_predictor(folder, data, {"one": 0, "two": 2}, "ensemble"), data


@pytest.fixture
def predictor(made: tuple[oodzoo.Predictor, Path]) -> oodzoo.Predictor:
    return made[0]


@pytest.fixture
def data(made: tuple[oodzoo.Predictor, Path], tmp_path: Path) -> Path:
    """A copy of the training images that a test may change."""
    return shutil.copytree(made[1], tmp_path / "data")


def test_the_images_of_the_training(predictor: oodzoo.Predictor, data: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = data_to_tune(data, predictor)
        assert len(found) == 48
        opened = oodzoo.ImageDomains(data)
        assert data_to_tune(opened, predictor) is opened


def test_other_images_are_reported(predictor: oodzoo.Predictor, data: Path) -> None:
    (data / "red" / "down" / "0.png").unlink()
    words = "is not the data that the predictor was trained on: 1 image missing; its models"
    with pytest.warns(UserWarning, match=words):
        assert len(data_to_tune(data, predictor)) == 47
    (data / "red" / "down" / "1.png").write_bytes((data / "red" / "down" / "2.png").read_bytes())
    for name in ("3.png", "4.png"):
        shutil.move(data / "red" / "down" / name, data / "red" / "across" / f"down-{name}")
    words = "on: 2 images missing, 2 images labelled differently; its models"
    with pytest.warns(UserWarning, match=words):
        data_to_tune(data, predictor)
    Image.new("RGB", (16, 16)).save(data / "red" / "down" / "0.png")
    with pytest.warns(UserWarning, match="missing, 1 image added, 2 images labelled differently"):
        data_to_tune(data, predictor)


def test_groups_and_paths_are_not_compared(
    predictor: oodzoo.Predictor, data: Path, tmp_path: Path
) -> None:
    """As in a table with other columns, or of which some are left out."""
    rows = [
        f"{file},{file.parts[-3]},{file.parts[-2]},{at}"
        for at, file in enumerate(sorted(data.rglob("*.png")))
    ]
    (tmp_path / "table.csv").write_text("path,domain,label,group\n" + "\n".join(rows) + "\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(data_to_tune(tmp_path / "table.csv", predictor)) == 48


def test_a_damaged_record_of_the_images(predictor: oodzoo.Predictor, data: Path) -> None:
    damaged = replace(predictor.provenance, images="abc")
    changed = oodzoo.Predictor(**(vars(predictor._parts()) | {"provenance": damaged}))
    with pytest.raises(InputError, match="the images in the provenance are damaged"):
        data_to_tune(data, changed)


def test_unreadable_images_are_left_out(predictor: oodzoo.Predictor, data: Path) -> None:
    (data / "red" / "down" / "zero.png").write_bytes(b"no image")
    with pytest.warns(UserWarning, match=r"left out 1 image .* 'red/down/zero.png': ") as found:
        assert len(data_to_tune(data, predictor)) == 48
    assert len(found) == 1  # the others are those of the training


def test_one_domain(predictor: oodzoo.Predictor, data: Path) -> None:
    for domain in ("blue", "green"):
        shutil.rmtree(data / domain)
    with pytest.raises(InputError, match="has one domain, 'red'; at least two are needed"):
        data_to_tune(data, predictor)
    with pytest.raises(InputError, match="of one domain, 'all'; fine-tuning needs two or more"):
        data_to_tune(oodzoo.ImageDomains(data, domains="one"), predictor)


def test_one_domain_that_can_be_read(predictor: oodzoo.Predictor, data: Path) -> None:
    for domain in ("blue", "green"):
        for file in (data / domain).rglob("*.png"):
            file.write_bytes(b"")
    with (
        pytest.warns(UserWarning, match="left out 32 images"),
        pytest.raises(InputError, match="of one domain, 'red'"),
    ):
        data_to_tune(data, predictor)


def test_other_classes(predictor: oodzoo.Predictor, data: Path) -> None:
    shutil.copytree(data / "red" / "down", data / "red" / "dots")
    with pytest.raises(InputError, match="has the class 'dots', which the predictor has not"):
        data_to_tune(data, predictor)
    for domain in data.iterdir():
        shutil.rmtree(domain / "down")
    with pytest.raises(InputError, match="has the class 'dots', which the predictor has not"):
        data_to_tune(data, predictor)
    shutil.move(data / "red" / "dots", data / "red" / "down")
    shutil.copytree(data / "red" / "down", data / "blue" / "dots")
    shutil.copytree(data / "red" / "down", data / "blue" / "checks")
    with pytest.raises(InputError, match="has the class 'checks' and 1 more, which"):
        data_to_tune(data, predictor)


def test_missing_classes(predictor: oodzoo.Predictor, data: Path) -> None:
    three = replace_classes(predictor, ["across", "down", "dots"])
    with pytest.raises(InputError, match="has no class 'dots', which the predictor has; give"):
        data_to_tune(data, three)


def replace_classes(predictor: oodzoo.Predictor, classes: list[str]) -> oodzoo.Predictor:
    head = replace(
        predictor.head,
        weights=np.zeros((len(classes), len(predictor.columns))),
        bias=np.zeros(len(classes)),
    )
    return oodzoo.Predictor(**(vars(predictor._parts()) | {"classes": classes, "head": head}))


def test_labels_of_another_kind(predictor: oodzoo.Predictor, data: Path) -> None:
    files = sorted(data.rglob("*.png"))
    numbers = oodzoo.ImageDomains(
        files,
        labels=np.linspace(0, 1, len(files)),
        domains=[file.parts[-3] for file in files],
        task="regression",
    )
    with pytest.raises(InputError, match="has labels for 'regression', but the predictor is for"):
        data_to_tune(numbers, predictor)


def test_texts(predictor: oodzoo.Predictor, tmp_path: Path) -> None:
    table = tmp_path / "texts.csv"
    rows = [f"some {n},{d},{c}" for n, d in enumerate("ab") for c in ("across", "down")]
    table.write_text("text,domain,label\n" + "\n".join(rows) + "\n")
    with pytest.raises(InputError, match="has texts; the predictor takes images"):
        data_to_tune(oodzoo.ImageDomains(table, columns={"text": "text"}), predictor)


def test_the_model_with_the_largest_weight_or_the_highest_score(
    predictor: oodzoo.Predictor,
) -> None:
    names = [model.name for model in predictor.models]
    for first, other in (names, names[::-1]):
        scored = replace(predictor.provenance, scores={first: 2.0, other: 1.0}, pool={})
        pooled = replace(scored, pool={first: 0.2, other: 0.8})
        tied = replace(scored, pool={first: 0.5, other: 0.5})
        for provenance, best in ((scored, first), (pooled, other), (tied, first)):
            parts = vars(predictor._parts()) | {"provenance": provenance}
            assert model_to_tune(oodzoo.Predictor(**parts), None).name == best
        assert model_to_tune(predictor, first).name == first


def test_unknown_models(predictor: oodzoo.Predictor) -> None:
    with pytest.raises(InputError, match="has no model 'tow'; did you mean two"):
        model_to_tune(predictor, "tow")
    with pytest.raises(InputError, match="has no model 'xyz'; it has "):
        model_to_tune(predictor, "xyz")


def test_a_predictor_of_features() -> None:
    rng = np.random.default_rng(0)
    y, domains = np.tile(["no", "yes"], 30), np.repeat(["a", "b"], 30)
    fitted = oodzoo.fit({"mine": rng.normal(size=(60, 3))}, y, domains)
    with pytest.raises(InputError, match=r"features only; fine-tuning needs .* got mine"):
        model_to_tune(fitted, None)


def test_a_predictor_of_texts(predictor: oodzoo.Predictor) -> None:
    texts: Any = TextPreprocessing()
    models = [replace(model, preprocessing=texts) for model in predictor.loadable_models]
    parts = vars(predictor._parts()) | {"models": models}
    with pytest.raises(InputError, match="take texts; only models of images can be fine-tuned"):
        model_to_tune(oodzoo.Predictor(**parts), None)
