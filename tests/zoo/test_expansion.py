"""Specs with wildcards: named zoos, files and folders, and the names of libraries."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import oodzoo
from oodzoo.errors import InputError
from oodzoo.zoo import load_zoo
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


def test_names_of_files_must_differ(models: Path) -> None:
    shutil.copyfile(models / "a.onnx", models / "more" / "a.onnx")
    assert "names two models 'a'; leave one out" in complaint("onnx/models/**/*.onnx")


def test_a_model_that_two_patterns_match_is_listed_once(models: Path) -> None:
    assert names("onnx/models/*.onnx,onnx/models/b.onnx") == ["a", "b"]
    assert names("onnx/models/b.onnx,onnx/models/*.onnx") == ["b", "a"]
    assert names("demo/cnn_ph*,demo/*photos,demo/cnn_photos") == ["cnn_photos"]
    assert names("demo/cnn_photos,demo/*photos") == ["cnn_photos"]
    assert "names two models" in complaint("timm/resnet50.a1_in1k,timm/resnet50.a1_in1k")


def test_a_file_here_is_not_the_one_of_the_same_name_in_a_zoo(models: Path) -> None:
    shutil.copyfile(models / "a.onnx", "cnn_photos.onnx")
    assert "names two models 'cnn_photos'" in complaint("demo/cnn_photos,onnx/*.onnx")


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


def test_timm(timm: Any) -> None:
    found = load_zoo("timm/test_vit*")
    assert found == load_zoo([spec.source for spec in found])
    assert {spec.name for spec in found} >= {"timm-test_vit.r160_in1k", "timm-test_vit2.r160_in1k"}
    assert "did you mean vit_small*" in complaint("timm/vit_smoll*")


def test_torchvision(torchvision: Any) -> None:
    assert names("torchvision/resnet1?") == ["torchvision-resnet18"]
    assert names("torchvision/resnet50.*") == [
        "torchvision-resnet50.IMAGENET1K_V1",
        "torchvision-resnet50.IMAGENET1K_V2",
    ]
    assert "torchvision has no pre-trained model that matches 'resmet*'; did you mean resnet*" in (
        complaint("torchvision/resmet*")
    )


def test_open_clip(open_clip: Any) -> None:
    found = [spec.source for spec in load_zoo("open_clip/ViT-B-32/laion*")]
    assert "open_clip/ViT-B-32/laion2b_s34b_b79k" in found
    assert all(source.startswith("open_clip/ViT-B-32/laion") for source in found)


def test_filters_of_a_zoo() -> None:
    demo = load_zoo("demo")
    assert oodzoo.load_zoo("demo", licence="apache-*", max_parameters="1M") == demo
    small = oodzoo.load_zoo("demo", max_parameters="40K")
    assert small == [spec for spec in demo if (spec.parameters or 0) <= 40_000]
    assert 0 < len(small) < len(demo)
    with pytest.raises(InputError, match="meets --licence mit: licences are Apache"):
        oodzoo.load_zoo("demo", licence="mit")
