"""`load_zoo`: zoo files, named zoos, lists and wildcards; every error is one line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from oodzoo import InputError, load_zoo

MINIMAL = {"name": '"net"', "source": '"onnx/net.onnx"'}


def write(path: Path, *models: dict[str, str]) -> Path:
    """A zoo file; the values are TOML."""
    lines = [
        line for m in models for line in ["[[model]]", *(f"{key} = {m[key]}" for key in m), ""]
    ]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def complaint(zoo: Any) -> str:
    with pytest.raises(InputError) as caught:
        load_zoo(zoo)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_every_key(tmp_path: Path) -> None:
    known = {
        "name": "net", "source": "onnx/net.onnx", "input_size": 224, "mean": [0.485, 0.456, 0.0],
        "std": [0.229, 1.0, 0.225], "features": "pool", "logits": "fc", "sha256": "0" * 64,
        "pretraining": "ImageNet-1k supervised", "licence": "Apache-2.0", "architecture": "ResNet",
        "origin": "https://example.org", "feature_dim": 2048, "parameters": 25_000_000,
        "geometry": {"resize": [256, 256], "crop": [224, 224], "fit": "cover"},
    }  # fmt: skip
    values = {key: json.dumps(value) for key, value in known.items()}
    values["geometry"] = '{ resize = [256, 256], crop = [224, 224], fit = "cover" }'
    arguments = '{ num_classes = 0, block = { depth = [1, 2.5] }, act = "silu" }'
    model = {"name": '"built"', "source": '"timm/resnet50"', "pretrained": "false"}
    spec, built = load_zoo(write(tmp_path / "zoo.toml", values, model | {"arguments": arguments}))
    assert json.loads(json.dumps(spec.to_dict())) == known
    assert (spec.kind, spec.identifier) == ("onnx", "net.onnx")
    assert built.to_dict() == {
        "name": "built", "source": "timm/resnet50", "pretrained": False,
        "arguments": {"num_classes": 0, "block": {"depth": [1, 2.5]}, "act": "silu"},
    }  # fmt: skip
    hash(spec)


def test_paths_are_relative_to_the_zoo_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "zoo").mkdir()
    absolute = MINIMAL | {"name": '"absolute"', "source": f'"onnx/{tmp_path}/x.onnx"'}
    deep = MINIMAL | {"name": '"deep"', "source": '"onnx/a/onnx/b.onnx"'}
    path = write(tmp_path / "zoo" / "zoo.toml", MINIMAL, absolute, deep)
    monkeypatch.chdir("/")
    assert [spec.file for spec in load_zoo(str(path))] == [
        tmp_path / "zoo/net.onnx",
        tmp_path / "x.onnx",
        tmp_path / "zoo/a/onnx/b.onnx",
    ]


def test_a_list_of_specs() -> None:
    specs = load_zoo("timm/resnet50.a1_in1k , hf/facebook/dinov2-small,onnx//abs/file.onnx,")
    assert [(s.kind, s.identifier) for s in specs] == [
        ("timm", "resnet50.a1_in1k"),
        ("hf", "facebook/dinov2-small"),
        ("onnx", "/abs/file.onnx"),
    ]
    assert [s.name for s in specs] == ["timm-resnet50.a1_in1k", "hf-facebook-dinov2-small", "file"]
    assert load_zoo([s.source for s in specs]) == specs


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"batch": "3"}, r"model 1 ('net'): unknown key 'batch'; expected one of name, source"),
        ({"input_size": '"224"'}, "input_size must be a positive integer, got '224'"),
        ({"mean": "[0.5, 0.5, true]"}, "mean must be a list of three numbers"),
        ({"std": "[0.5, 0.5, 0]"}, "std must be positive, got [0.5, 0.5, 0.0]"),
        ({"name": '""'}, "name must be a non-empty string, got ''"),
        ({"pretrained": "0"}, "pretrained must be true or false, got 0"),
        ({"pretrained": "false"}, "takes no pretrained: a model of the kind onnx is loaded as it"),
        ({"arguments": "{}"}, "the source 'onnx/net.onnx' takes no arguments"),
        ({"arguments": "{ a = [inf] }"}, "arguments must be a table of strings, numbers"),
        ({"geometry": "{ resize = [8, 8] }"}, "is wrong: Object missing required field `crop`"),
        ({"geometry": "{ resize = [8, 8], crop = [8, 0] }"}, "resize and crop must be positive"),
        ({"geometry": "{ resize = [8, 8], crop = [8, 8], fit = 'fit' }"}, "Invalid enum value"),
        ({"geometry": "{ resize = [8, 8], crop = [8, 8], fill = 256 }"}, "fill of geometry must"),
        ({"geometry": "{ size = 8 }"}, "unknown key 'size' of geometry; expected one of resize, c"),
        (
            {"source": '"timm/resnet50"', "geometry": "{ resize = [8, 8], crop = [8, 8] }"},
            "the source 'timm/resnet50' takes no geometry",
        ),
        ({"source": '"nets/a.onnx"'}, "; for this file, write onnx/nets/a.onnx"),
        (
            {"source": '"keras/resnet50"'},
            "with a kind of hf, onnx, open_clip, sentence-transformers, timm, ",
        ),
        ({"source": '"ONNX/net.onnx"'}, "; for this file, write onnx/net.onnx"),
        ({"name": '"a/b"'}, "the name 'a/b' cannot be the name of a folder"),
        ({"name": '"a\\u0000b"'}, "cannot be the name of a folder"),
    ],
)
def test_a_bad_value(tmp_path: Path, change: dict[str, str], expected: str) -> None:
    message = complaint(write(tmp_path / "zoo.toml", MINIMAL | change))
    assert expected in message
    assert message.startswith("zoo.toml, model 1")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("model = [1]", "model 1: expected a [[model]] table, got 1"),
        ('[model]\nname = "a"\nsource = "onnx/a"', "contains no [[model]] table"),
        ("[[model]", "is not valid TOML"),
        (b"\xff\xfe", "is not valid TOML"),
        ('[[model]]\nname = "a"', "zoo.toml, model 1 ('a'): the key 'source' is missing"),
        ('[[model]]\nsource = "onnx/a"', "zoo.toml, model 1: the key 'name' is missing"),
        ('[[model]]\nname = "net"\nsource = "onnx/a"\n' * 2, "names two models 'net'; rename"),
        ('[[model]]\nname = "vits"\nsource = "timm/vit_small*"\n', (
            "model 1 ('vits'): the source 'timm/vit_small*' has a wildcard, but a "
            "[[model]] table is one model; give a table for each, or the pattern")),
    ],
)  # fmt: skip
def test_a_bad_file(tmp_path: Path, text: str | bytes, expected: str) -> None:
    path = tmp_path / "zoo.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert expected in complaint(path)


ONE_NAME = "; leave one out, or give them different names in a zoo file (.toml)"


@pytest.mark.parametrize(
    ("zoo", "expected"),
    [
        ("onnx/a/x.onnx,onnx/b/x.onnx", f"the list of models names two models 'x'{ONE_NAME}"),
        ("hf//a/x,hf//b/x", f"the list of models names two models 'hf-x'{ONE_NAME}"),
        ("hf/~nobody-of-this-name/vit", "'hf/~nobody-of-this-name/vit': no such home folder"),
        *((zoo, "is not a zoo") for zoo in ("", " ", "nothing", "keras/x", ",")),
        *((zoo, "is not <kind>/<name>") for zoo in ("demo,timm/x", "onnx/a.onnx,b")),
        ("modrn", "'modrn' is not a zoo; did you mean modern?"),
        ("absent.toml", "no such zoo file: 'absent.toml'; did you mean "),
        ("folder.toml", "cannot read the zoo file"),
        ("zo.toml:large", "no such zoo file: 'zo.toml'; did you mean zoo.toml"),
        ("models", "did you mean onnx/models/*.onnx?"),
        (".", "did you mean folder.toml or zoo.toml?"),
        ("zoo.toml:smal-*", "that matches 'smal-*'; did you mean small*?"),
        ("modern/resnet5", "the zoo modern has no model 'resnet5'; did you mean resnet50.a1_in1k?"),
        ("onnx/models/*.on", "no model matches 'onnx/models/*.on'"),
        ("onnx/models/mor*",
         "no model matches 'onnx/models/mor*'; 1 path matched, but none is a model"),
    ],
)  # fmt: skip
def test_what_is_no_zoo(models: Path, zoo: str, expected: str) -> None:
    (models.parent / "folder.toml").mkdir()
    assert expected in complaint(zoo)


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with ONNX files and others, beside a zoo file; its parent is the current folder."""
    folder = tmp_path / "models"
    (folder / "more").mkdir(parents=True)
    (tmp_path / "onnx").mkdir()
    file = load_zoo("demo")[0].file
    for name in ("models/a.onnx", "models/b.onnx", "models/e,f.onnx", "models/more/c.onnx",
                 "onnx/d.onnx", "odd[1].onnx"):  # fmt: skip
        shutil.copyfile(file, tmp_path / name)
    (folder / "readme.txt").touch()
    for name in ("vit", "vit2", "other"):
        (tmp_path / "hf" / name).mkdir(parents=True)
        (tmp_path / "hf" / name / "config.json").touch()
    (tmp_path / "hf/vit.txt").touch()
    (tmp_path / "hf/vit-empty").mkdir()
    (tmp_path / "hf/w.safetensors").touch()
    tables = [f'[[model]]\nname = "{n}"\nsource = "onnx/{f}.onnx"' for n, f in
              (("small-a", "models/a"), ("small-b", "models/b"), ("large", "odd[1]"))]  # fmt: skip
    (tmp_path / "zoo.toml").write_text("\n".join(tables))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    return folder


@pytest.mark.parametrize(
    ("zoo", "found"),
    [
        ("models/a.onnx", ["a"]),
        ("models/a.onnx, models/more/c.onnx", ["a", "c"]),
        ("onnx/models/a.onnx,models/b.onnx,demo/cnn_photos", ["a", "b", "cnn_photos"]),
        ("onnx/models/**/*.onnx", ["a", "b", "e,f", "c"]),
        ("onnx/{}/?.onnx,demo/cnn_photos", ["a", "b", "cnn_photos"]),
        ("zoo.toml:small-*", ["small-a", "small-b"]),
        ("zoo.toml:large,zoo.toml:*-a,models/b.onnx", ["large", "small-a", "b"]),
        # a model that two patterns match is listed once
        ("onnx/models/?.onnx,onnx/models/b.onnx", ["a", "b"]),
        ("demo/cnn_ph*,demo/*photos,demo/cnn_photos", ["cnn_photos"]),
    ],
)
def test_files_of_onnx_and_of_zoos(models: Path, zoo: str, found: list[str]) -> None:
    specs = load_zoo(zoo.format(models))
    assert [spec.name for spec in specs] == found
    assert all(spec.file.is_file() for spec in specs)


def test_named_zoos_and_folders(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modern = load_zoo("modern")
    assert load_zoo("modern/*") == modern
    assert load_zoo("modern/resnet50*") == [s for s in modern if s.name == "resnet50.a1_in1k"]
    assert load_zoo("demo/cnn_photos")[0].file.is_file()
    for start in ("hf/./hf/", f"hf/{models.parent}/hf/", "hf/~/hf/", "timm/local-dir:hf/"):
        kind = start.partition("/")[0]
        assert [s.name for s in load_zoo(f"{start}vit*")] == [f"{kind}-vit", f"{kind}-vit2"]
    assert [s.source for s in load_zoo("hf/./hf/v*")] == ["hf/./hf/vit", "hf/./hf/vit2"]
    (spec,) = load_zoo("open_clip/ViT-B-16/./hf/w*")
    assert spec.source == "open_clip/ViT-B-16/./hf/w.safetensors"
