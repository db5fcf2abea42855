"""Pictures as files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tests.report.example import example_run

from oodzoo.errors import InputError
from oodzoo.report.pictures import pictures_of, write_pictures

ALL = {
    "ranking", "discriminability-by-domain", "stability-by-domain", "left-out-domains", "accuracy",
    "accuracy-over-k", "inclusion-probabilities", "scores",
}  # fmt: skip
START = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}


@pytest.mark.parametrize("form", START)
def test_every_picture_in_every_format(tmp_path: Path, form: str) -> None:
    written = write_pictures(example_run(3), tmp_path, form)
    assert {path.stem for path in written} == ALL
    for path in written:
        assert path.suffix == f".{form}"
        assert path.read_bytes().startswith(START[form])
        if form == "png":
            with Image.open(path) as image:
                assert len(image.convert("RGB").getcolors(1 << 24) or []) > 20


@pytest.mark.parametrize("form", ["svg", "pdf"])
def test_the_same_figures_give_the_same_file(tmp_path: Path, form: str) -> None:
    run = {"evaluation": example_run(3)["evaluation"]}
    first = [path.read_bytes() for path in write_pictures(run, tmp_path / "a", form)]
    assert first == [path.read_bytes() for path in write_pictures(run, tmp_path / "b", form)]


@pytest.mark.parametrize(
    ("part", "pictures"),
    [
        ("ranking", {name for name in ALL if "domain" in name} | {"ranking"}),
        ("evaluation", {"accuracy", "accuracy-over-k"}),
        ("selection", {"inclusion-probabilities"}),
        ("testbed", {"scores"}),
    ],
)
def test_what_is_absent_is_not_drawn(part: str, pictures: set[str]) -> None:
    run: dict[str, Any] = example_run(3) | {part: None}
    assert set(pictures_of(run)) == ALL - pictures


def test_names_are_no_formulas(tmp_path: Path) -> None:
    odd = ["$x_", r"$\frac{", "网络", "a & <b>", "%d{}"]
    run = example_run(models=odd, domains=["$", "b", "c"], classes=odd)
    written = write_pictures(run, tmp_path, "svg")
    assert {path.stem for path in written} == ALL


def test_unknown_format(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="format 'bmp': known are png, svg, pdf"):
        write_pictures(example_run(3), tmp_path, "bmp")
    assert not list(tmp_path.iterdir())
