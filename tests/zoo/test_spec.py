"""Zoo files and lists of models; every error is one line."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from pathlib import Path
from typing import Any

import pytest

from oodzoo.core.errors import InputError
from oodzoo.zoo import ModelSpec, load_zoo
from oodzoo.zoo.spec import portable_source, verified_file

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


# --- valid files ------------------------------------------------------------------------------


def test_every_key(tmp_path: Path) -> None:
    path = write(
        tmp_path / "zoo.toml",
        MINIMAL
        | {
            "input_size": "224",
            "mean": "[0.485, 0.456, 0]",
            "std": "[0.229, 1, 0.225]",
            "features": '"pool"',
            "logits": '"fc"',
            "sha256": f'"{"0" * 64}"',
            "pretraining": '"ImageNet-1k supervised"',
            "licence": '"Apache-2.0"',
            "architecture": '"ResNet"',
            "origin": '"https://example.org"',
            "feature_dim": "2048",
            "parameters": "25_000_000",
            "geometry": '{ resize = [256, 256], crop = [224, 224], fit = "cover" }',
        },
        MINIMAL
        | {
            "name": '"built"',
            "source": '"timm/resnet50"',
            "pretrained": "false",
            "arguments": '{ num_classes = 0, block = { depth = [1, 2.5] }, act = "silu" }',
        },
    )
    spec, built = load_zoo(path)
    assert built.pretrained is False
    assert built.arguments == {"num_classes": 0, "block": {"depth": [1, 2.5]}, "act": "silu"}
    assert (spec.name, spec.kind, spec.identifier) == ("net", "onnx", "net.onnx")
    assert (spec.input_size, spec.feature_dim, spec.parameters) == (224, 2048, 25_000_000)
    assert (spec.mean, spec.std) == ((0.485, 0.456, 0.0), (0.229, 1.0, 0.225))
    assert (spec.features, spec.logits) == ("pool", "fc")
    assert spec.geometry == {"resize": [256, 256], "crop": [224, 224], "fit": "cover"}
    hash(spec)
    # the test covers every key of the format
    in_source = {"layer", "pooling"}
    given = {field.name for field in dataclasses.fields(spec)} - {"folder"} - in_source
    assert set(spec.to_dict()) | set(built.to_dict()) == given


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


# --- invalid files ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"batch": "3"}, r"model 1 ('net'): unknown key 'batch'; expected one of name, source"),
        ({"input_size": '"224"'}, "input_size must be a positive integer, got '224'"),
        ({"input_size": "224.0"}, "input_size must be a positive integer"),
        ({"input_size": "0"}, "input_size must be a positive integer, got 0"),
        ({"input_size": "true"}, "input_size must be a positive integer"),
        ({"feature_dim": "-1"}, "feature_dim must be a positive integer"),
        ({"parameters": "[1]"}, "parameters must be a positive integer"),
        ({"mean": "0.5"}, "mean must be a list of three numbers, got 0.5"),
        ({"mean": "[0.5, 0.5]"}, "mean must be a list of three numbers"),
        ({"mean": '[0.5, 0.5, "x"]'}, "mean must be a list of three numbers"),
        ({"mean": "[0.5, 0.5, true]"}, "mean must be a list of three numbers"),
        ({"mean": "[0.5, 0.5, nan]"}, "mean must be a list of three numbers"),
        ({"std": "[0.5, 0.5, inf]"}, "std must be a list of three numbers"),
        ({"std": "[0.5, 0.5, 0]"}, "std must be positive, got [0.5, 0.5, 0.0]"),
        ({"std": "[0.5, 0.5, -1.0]"}, "std must be positive"),
        ({"name": "3"}, "name must be a non-empty string, got 3"),
        ({"name": '""'}, "name must be a non-empty string, got ''"),
        ({"source": "[]"}, "source must be a non-empty string"),
        ({"features": "1"}, "features must be a non-empty string"),
        ({"sha256": "1979-05-27"}, "sha256 must be a non-empty string"),
        ({"pretrained": "0"}, "pretrained must be true or false, got 0"),
        ({"pretrained": "false"}, "takes no pretrained: a model of the kind onnx is loaded as it"),
        ({"arguments": "{}"}, "the source 'onnx/net.onnx' takes no arguments"),
        ({"arguments": "3"}, "arguments must be a table of strings, numbers, booleans and lists"),
        ({"arguments": "{ a = 1979-05-27 }"}, "arguments must be a table of strings, numbers"),
        ({"arguments": "{ a = [inf] }"}, "arguments must be a table of strings, numbers"),
        ({"geometry": "224"}, "geometry must be a table of strings, numbers, booleans and lists"),
        ({"geometry": "{ resize = [8, 8] }"}, "is wrong: Object missing required field `crop`"),
        ({"geometry": "{ resize = [8, 8], crop = [8] }"}, "is wrong: Expected `array` of length 2"),
        ({"geometry": "{ resize = [8, 8], crop = [8, 0] }"}, "resize and crop must be positive"),
        ({"geometry": "{ resize = [8, 8], crop = [8, 8], fit = 'fit' }"}, "Invalid enum value"),
        ({"geometry": "{ resize = [8, 8], crop = [8, 8], fill = 256 }"}, "fill of geometry must"),
        ({"geometry": "{ size = 8 }"}, "unknown key 'size' of geometry; expected one of resize, c"),
        (
            {"source": '"timm/resnet50"', "geometry": "{ resize = [8, 8], crop = [8, 8] }"},
            "the source 'timm/resnet50' takes no geometry",
        ),
        ({"source": '"net.onnx"'}, "the source 'net.onnx' is not <kind>/<name>"),
        ({"source": '"nets/a.onnx"'}, "; for this file, write onnx/nets/a.onnx"),
        ({"source": '"onnx/"'}, "the source 'onnx/' is not <kind>/<name>"),
        (
            {"source": '"keras/resnet50"'},
            "with a kind of hf, onnx, open_clip, sentence-transformers, timm, ",
        ),
        ({"source": '"ONNX/net.onnx"'}, "; for this file, write onnx/net.onnx"),
        ({"name": '"a/b"'}, "the name 'a/b' cannot be the name of a folder"),
        ({"name": '"a\\\\b"'}, "cannot be the name of a folder"),
        ({"name": '".."'}, "cannot be the name of a folder"),
        ({"name": '"."'}, "cannot be the name of a folder"),
        ({"name": '".hidden"'}, "cannot be the name of a folder"),
        ({"name": '" a"'}, "cannot be the name of a folder"),
        ({"name": '"a:b"'}, "cannot be the name of a folder"),
        ({"name": '"a\\nb"'}, "cannot be the name of a folder"),
        ({"name": '"a\\u0000b"'}, "cannot be the name of a folder"),
    ],
)
def test_a_bad_value(tmp_path: Path, change: dict[str, str], expected: str) -> None:
    message = complaint(write(tmp_path / "zoo.toml", MINIMAL | change))
    assert expected in message
    assert message.startswith("zoo.toml, model 1")


@pytest.mark.parametrize("key", ["name", "source"])
def test_a_missing_key(tmp_path: Path, key: str) -> None:
    rest = {k: v for k, v in MINIMAL.items() if k != key}
    assert f"the key '{key}' is missing" in complaint(write(tmp_path / "zoo.toml", MINIMAL, rest))
    assert "model 2" in complaint(write(tmp_path / "zoo.toml", MINIMAL, rest))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "contains no [[model]] table; add one per model"),
        ("# nothing", "contains no [[model]] table"),
        ("model = 3", "contains no [[model]] table"),
        ("model = []", "contains no [[model]] table"),
        ("model = [1]", "model 1: expected a [[model]] table, got 1"),
        ('[model]\nname = "a"\nsource = "onnx/a"', "contains no [[model]] table"),
        ('[[models]]\nname = "a"', "unknown key 'models'; use [[model]] tables"),
        ("[[model]", "is not valid TOML"),
        ('[[model]]\nname = "a"\nname = "b"', "is not valid TOML"),
        (b"\xff\xfe", "is not valid TOML"),
    ],
)
def test_a_bad_file(tmp_path: Path, text: str | bytes, expected: str) -> None:
    path = tmp_path / "zoo.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    message = complaint(path)
    assert expected in message
    assert "zoo.toml" in message


def test_duplicate_names(tmp_path: Path) -> None:
    path = write(tmp_path / "zoo.toml", MINIMAL, MINIMAL | {"source": '"onnx/other.onnx"'})
    assert re.search(r"zoo\.toml' names two models 'net'; rename", complaint(path))
    for texts, name in (
        ("onnx/a/x.onnx,onnx/b/x.onnx", "x"),
        ("hf//home/ada/x,hf//home/bob/x", "hf-x"),
    ):
        assert complaint(texts) == (
            f"the list of models names two models '{name}'; leave one out, or give them different "
            "names in a zoo file (.toml)"
        )


def test_an_unknown_home_folder() -> None:
    message = complaint("hf/~nobody-of-this-name/vit")
    assert message == "the source 'hf/~nobody-of-this-name/vit': no such home folder"


@pytest.mark.parametrize(
    "zoo",
    ["", " ", "nothing", "resnet50", "keras/x", ",", "demo,timm/x", "onnx/a.onnx,b", "x,timm/a"],
)
def test_not_a_zoo(zoo: str) -> None:
    assert re.search(r"is not a zoo|is not <kind>/<name>", complaint(zoo))


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    assert "cannot read the zoo file" in complaint(tmp_path / "absent.toml")
    (tmp_path / "folder.toml").mkdir()
    assert "cannot read the zoo file" in complaint(tmp_path / "folder.toml")


# --- the files of models --------------------------------------------------------------------


def test_sha256_is_verified(tmp_path: Path) -> None:
    (tmp_path / "net").write_bytes(b"weights")
    digest = hashlib.sha256(b"weights").hexdigest()
    spec = ModelSpec("net", "onnx/net", folder=tmp_path)
    assert verified_file(spec) == (tmp_path / "net", digest)
    assert verified_file(dataclasses.replace(spec, sha256=digest.upper()))[1] == digest
    with pytest.raises(
        InputError, match=r"model 'net': .* has the sha256 .*, but its zoo file sets 00"
    ):
        verified_file(dataclasses.replace(spec, sha256="0" * 64))
    with pytest.raises(InputError, match=r"model 'net': cannot read .*absent': No such file"):
        verified_file(dataclasses.replace(spec, source="onnx/absent"))
    with pytest.raises(InputError, match="model 'net': cannot read"):
        verified_file(dataclasses.replace(spec, source="onnx/."))


@pytest.mark.parametrize(
    ("source", "portable"),
    [
        ("onnx//home/ada/net.onnx", "onnx/net.onnx"),
        ("onnx/models/net.onnx", "onnx/net.onnx"),
        ("hf//home/ada/checkpoint", "hf/checkpoint"),
        ("hf/~/checkpoint", "hf/checkpoint"),
        ("open_clip/ViT-B-16//home/ada/net.safetensors", "open_clip/net.safetensors"),
        ("open_clip/local-dir:/home/ada/clip", "open_clip/clip"),
        ("hf/facebook/dinov2-small", "hf/facebook/dinov2-small"),
        ("timm/resnet50.a1_in1k", "timm/resnet50.a1_in1k"),
        ("open_clip/ViT-B-16/openai", "open_clip/ViT-B-16/openai"),
    ],
)
def test_portable_sources_name_no_folders(source: str, portable: str) -> None:
    assert portable_source(ModelSpec(name="net", source=source)) == portable


def test_similar_zoos_and_zoo_files_are_suggested(tmp_path: Path) -> None:
    assert complaint("modrn").endswith("'modrn' is not a zoo; did you mean modern?")
    (tmp_path / "zoo.toml").touch()
    hint = f"did you mean {tmp_path / 'zoo.toml'}?"
    assert complaint(str(tmp_path / "zo.toml")).endswith(hint)


def test_a_folder_in_place_of_a_zoo(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").touch()
    assert complaint(str(tmp_path)).endswith(f"did you mean onnx/{tmp_path}/*.onnx?")
    (tmp_path / "zoo.toml").touch()
    assert complaint(str(tmp_path)).endswith(f"did you mean {tmp_path / 'zoo.toml'}?")


def test_variant_is_empty_without_arguments() -> None:
    assert ModelSpec("m", "timm/x").variant == ""
    assert ModelSpec("m", "timm/x", arguments={}).variant == ""
    given = ModelSpec("m", "timm/x", arguments={"b": 1, "a": [True]})
    assert given.variant == ' arguments {"a": [true], "b": 1}'
