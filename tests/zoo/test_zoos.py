"""Named zoos, and specs with wildcards: files and folders, and the names of libraries."""

from __future__ import annotations

import shutil
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oodzoo.core.errors import InputError
from oodzoo.zoo import load_zoo, zoo_names
from oodzoo.zoo.catalogue import catalogue, missing, named_zoo
from oodzoo.zoo.spec import ModelSpec, check_spec, require_unique_names
from oodzoo.zoo.torch_model import count_parameters
from oodzoo.zoo.wildcards import matching
from oodzoo.zoo.zoos import is_pattern


def names(zoo: str | list[str]) -> list[str]:
    return [spec.name for spec in load_zoo(zoo)]


def complaint(zoo: str) -> str:
    with pytest.raises(InputError) as caught:
        load_zoo(zoo)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with three ONNX files and other files; it is in the current folder."""
    folder = tmp_path / "models"
    (folder / "more").mkdir(parents=True)
    for spec, name in zip(load_zoo("demo"), ("a.onnx", "b.onnx", "more/c.onnx"), strict=False):
        shutil.copyfile(spec.file, folder / name)
    (folder / "readme.txt").touch()
    monkeypatch.chdir(tmp_path)
    return folder


def test_named_zoos() -> None:
    modern = load_zoo("modern")
    assert load_zoo("modern/*") == modern
    assert load_zoo("modern/resnet50*") == [s for s in modern if s.name == "resnet50.a1_in1k"]
    assert load_zoo("demo/cnn_photos")[0].file.is_file()
    assert complaint("modern/resnet5") == (
        "the zoo modern has no model 'resnet5'; did you mean resnet50.a1_in1k?"
    )


def test_only_specs_of_several_models_are_patterns(models: Path) -> None:
    assert is_pattern("timm/vit*")
    assert is_pattern("onnx/models/*.onnx")
    assert is_pattern("demo/cnn_photos")
    assert not is_pattern("timm/resnet50.a1_in1k")
    assert not is_pattern("demo")
    assert not is_pattern("keras/vit*")
    (models / "[1].onnx").touch()
    assert not is_pattern("onnx/models/[1].onnx")


@pytest.mark.parametrize(
    ("zoo", "found"),
    [
        ("models/a.onnx", ["a"]),
        ("models/*.onnx", ["a", "b", "e,f"]),
        ("models/a.onnx, models/more/c.onnx", ["a", "c"]),
        ("onnx/models/a.onnx,models/b.onnx,demo/cnn_photos", ["a", "b", "cnn_photos"]),
        ("onnx/d.onnx", ["d"]),
        ("models/e,f.onnx", ["e,f"]),
    ],
)
def test_paths_of_onnx_files(models: Path, zoo: str, found: list[str]) -> None:
    (models.parent / "onnx").mkdir()
    shutil.copyfile(models / "a.onnx", models.parent / "onnx/d.onnx")
    shutil.copyfile(models / "a.onnx", models / "e,f.onnx")
    assert [spec.name for spec in load_zoo(zoo)] == found
    assert all(spec.file.is_file() for spec in load_zoo(zoo))


def test_models_of_a_zoo_file(models: Path) -> None:
    tables = [f'[[model]]\nname = "{n}"\nsource = "onnx/models/{f}.onnx"' for n, f in
              (("small-a", "a"), ("small-b", "b"), ("large", "a"))]  # fmt: skip
    Path("zoo.toml").write_text("\n".join(tables))
    assert names("zoo.toml:small-*") == ["small-a", "small-b"]
    assert names("zoo.toml:large,zoo.toml:*-a,models/b.onnx") == ["large", "small-a", "b"]
    assert complaint("zoo.toml:smal-*").endswith("that matches 'smal-*'; did you mean small*?")
    assert complaint("zo.toml:large") == "no such zoo file: 'zo.toml'; did you mean zoo.toml?"


def test_onnx_files(models: Path) -> None:
    assert names("onnx/models/*.onnx") == ["a", "b"]
    assert names("onnx/models/**/*.onnx") == ["a", "b", "c"]
    assert names(f"onnx/{models}/?.onnx,demo/cnn_photos") == ["a", "b", "cnn_photos"]
    assert all(spec.file.is_file() for spec in load_zoo("onnx/models/**/*.onnx"))
    assert complaint("onnx/models/*.on") == "no model matches 'onnx/models/*.on'"
    assert complaint("onnx/models/mor*") == (
        "no model matches 'onnx/models/mor*'; 1 path matched, but none is a model"
    )


def test_a_model_that_two_patterns_match_is_listed_once(models: Path) -> None:
    assert names("onnx/models/*.onnx,onnx/models/b.onnx") == ["a", "b"]
    assert names("onnx/models/b.onnx,onnx/models/*.onnx") == ["b", "a"]
    assert names("demo/cnn_ph*,demo/*photos,demo/cnn_photos") == ["cnn_photos"]
    assert names("demo/cnn_photos,demo/*photos") == ["cnn_photos"]
    assert "names two models" in complaint("timm/resnet50.a1_in1k,timm/resnet50.a1_in1k")


def test_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("vit", "vit2", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").touch()
    (tmp_path / "vit.txt").touch()
    (tmp_path / "vit-empty").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for start in ("hf/./", f"hf/{tmp_path}/", "hf/~/", "timm/local-dir:"):
        found = load_zoo(f"{start}vit*")
        kind = start.partition("/")[0]
        assert [spec.name for spec in found] == [f"{kind}-vit", f"{kind}-vit2"]
    assert [spec.source for spec in load_zoo("hf/./v*")] == ["hf/./vit", "hf/./vit2"]
    (tmp_path / "w.safetensors").touch()
    (spec,) = load_zoo("open_clip/ViT-B-16/./w*")
    assert spec.source == "open_clip/ViT-B-16/./w.safetensors"


def test_a_zoo_file_has_no_patterns(tmp_path: Path) -> None:
    file = tmp_path / "zoo.toml"
    file.write_text('[[model]]\nname = "vits"\nsource = "timm/vit_small*"\n')
    assert complaint(str(file)) == (
        "zoo.toml, model 1 ('vits'): the source 'timm/vit_small*' has a wildcard, but a [[model]] "
        "table is one model; give a table for each, or the pattern instead of a zoo file"
    )
    (tmp_path / "a[1].onnx").touch()
    file.write_text('[[model]]\nname = "a"\nsource = "onnx/a[1].onnx"\n')
    assert names(str(file)) == ["a"]


# --- wildcards ------------------------------------------------------------------------------------


SHELF = ["vit_small_patch16.dino", "vit_small_patch16.augreg", "vit_base.dino", "resnet50.a1"]


def no_match(pattern: str) -> str:
    with pytest.raises(InputError) as caught:
        matching(pattern, SHELF, "the shelf has no model")
    return str(caught.value)


@pytest.mark.parametrize(
    ("pattern", "near"),
    [
        ("vit_smoll*", "did you mean vit_small*?"),
        ("resmet*", "did you mean resnet*?"),
        ("*dinp*", "did you mean *dino*?"),
    ],
)
def test_near_patterns_are_named(pattern: str, near: str) -> None:
    assert no_match(pattern) == f"the shelf has no model that matches {pattern!r}; {near}"


@given(st.text("ab*?[]-", min_size=1), st.lists(st.text("ab[", min_size=1)))
def test_suggestions_match_something(pattern: str, names: list[str]) -> None:
    try:
        assert matching(pattern, names, "no") == [n for n in names if fnmatchcase(n, pattern)]
    except InputError as error:
        _, asked, near = str(error).partition("; did you mean ")
        for each in near.removesuffix("?").split(" or ") if asked else ():
            assert any(fnmatchcase(name, each) for name in names)


# --- named zoos -----------------------------------------------------------------------------------


_LISTED = [spec for name in ("paper", "modern") for spec in named_zoo(name)]


def test_the_named_zoos() -> None:
    assert set(zoo_names()) == {"demo", "paper", "modern"}
    with pytest.raises(
        InputError, match="unknown zoo 'papers'; expected one of demo, paper, modern"
    ):
        named_zoo("papers")
    assert load_zoo("modern") == named_zoo("modern")
    assert missing("demo") == []


def test_the_paper_has_35_models_in_three_groups() -> None:
    entries = catalogue("paper")
    assert [entry.number for entry in entries] == list(range(1, 36))
    groups = [entry.group for entry in entries]
    assert [groups.count(group) for group in (1, 2, 3)] == [12, 10, 13]
    assert len(named_zoo("paper")) + len(missing("paper")) == 35
    assert [entry.number for entry in missing("paper")] == [15, 17, 18]
    assert all(entry.missing for entry in missing("paper"))


@pytest.mark.parametrize("name", ["paper", "modern"])
def test_every_model_is_fully_described(name: str) -> None:
    specs = named_zoo(name)
    require_unique_names((spec.name for spec in specs), name)
    for spec in specs:
        check_spec(spec, name)
        known = (
            spec.architecture,
            spec.pretraining,
            spec.origin,
            spec.parameters,
            spec.feature_dim,
        )
        assert all(known), spec
        assert spec.licence, spec
        # The preprocessing of the source is not overridden.
        assert (spec.input_size, spec.mean, spec.std) == (None, None, None)


@pytest.mark.filterwarnings("ignore:QuickGELU mismatch")
@pytest.mark.parametrize("spec", _LISTED, ids=[spec.name for spec in _LISTED])
def test_every_model_is_known_to_its_source(spec: ModelSpec, request: Any) -> None:
    """Built without weights: the name exists, and its size is as stated."""
    request.getfixturevalue(spec.kind)
    torch = request.getfixturevalue("torch")
    source = import_module(f"oodzoo.zoo.{spec.kind}")
    with torch.device("meta"), torch.inference_mode():
        built = source.build(spec, pretrained=False)
        size = built.preprocessing.geometry.crop
        features, logits = built.forward(built.module.eval(), torch.zeros(2, 3, *size))
    assert tuple(features.shape) == (2, spec.feature_dim)
    assert count_parameters(built.module) == spec.parameters
    assert logits is None or len(logits) == 2
