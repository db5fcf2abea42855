"""A predictor on disk: self-contained, checked, replaced as a whole; the files of its models."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.predictor.data import changed
from tests.store.data import rewrite
from tests.zoo.data import SQUASH, VIT, save_checkpoint

import oodzoo
from oodzoo import InputError
from oodzoo.core.io import locked
from oodzoo.predictor.card import model_card
from oodzoo.zoo import ModelSpec

HEAD, GAUSSIAN = "head.safetensors", "gaussian.safetensors"
RESNET = "resnet_glyphs_augmented"


def edit(folder: Path, change: Any) -> None:
    """Change predictor.json."""
    rewrite(folder / "predictor.json", change)


def names(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def refused(folder: Path, says: str) -> str:
    with pytest.raises(InputError, match=says) as caught:
        oodzoo.load(folder)
    return str(caught.value)


def test_a_loaded_predictor_is_the_same(
    predictor: oodzoo.Predictor, saved: Path, unseen: list[Path], zoo: list[ModelSpec]
) -> None:
    loaded = oodzoo.load(saved, device="cpu")
    for name in ("predict_proba", "domain_distance"):
        expected = getattr(predictor, name)(unseen)
        np.testing.assert_array_equal(getattr(loaded, name)(unseen), expected)
    assert loaded.predict_sets(unseen) == predictor.predict_sets(unseen, 0.9)
    assert loaded.provenance == predictor.provenance
    assert loaded.provenance.domains == ("chalk", "marker", "paper")
    assert loaded.provenance.n_images == 108
    assert loaded.classes_.tolist() == predictor.classes_.tolist()
    assert loaded.gaussian.scalars() == predictor.gaussian.scalars()
    assert (loaded.head.C, loaded.left_out) == (predictor.head.C, predictor.left_out)
    models = {f"models/{model.name}.onnx" for model in predictor.models}
    assert names(saved) == {"predictor.json", HEAD, GAUSSIAN, "README.md"} | models
    assert str(zoo[0].folder) not in (saved / "predictor.json").read_text()


def test_a_missing_changed_or_swapped_file(folder: Path, unseen: list[Path]) -> None:
    for name in (HEAD, GAUSSIAN, f"models/{RESNET}.onnx"):
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        refused(folder, rf"{name}' has the sha256 .* was saved with")
        (folder / name).unlink()
        refused(folder, rf"lacks '{name}'; copy the whole folder")
        (folder / name).write_bytes(content)
    edit(folder, lambda document: [m["stated"].pop("sha256") for m in document["models"]])
    loaded = oodzoo.load(folder)
    first, second = sorted((folder / "models").iterdir())
    shutil.copy(second, first)
    with pytest.raises(InputError, match=r"is not the file that the predictor was saved with"):
        loaded.predict(unseen[:1])
    first.unlink()
    with pytest.raises(InputError, match=rf"cannot read '.*{first.name}': No such file"):
        loaded.predict(unseen[:1])


def test_a_damaged_document(folder: Path, tmp_path: Path) -> None:
    refused(tmp_path / "nowhere", r"no such predictor: .*nowhere")
    path = folder / "predictor.json"
    whole = path.read_text()
    for content, words in (
        ('{"kind": "other predictor"}', "its predictor.json was not written by oodzoo"),
        ("{", "predictor.json' is damaged"),
        (whole.replace('"classes": [\n  "0"', '"classes": [\n  "8"'), "not match its checksum; c"),
    ):
        path.write_text(content)
        refused(folder, words)
    changes: list[tuple[str, Callable[[Any], Any]]] = [
        ("schema 2, this version of oodzoo reads 1; upgrade", lambda d: d.update(schema=2)),
        ("schema 0, this version of oodzoo reads 1; fit it again", lambda d: d.update(schema=0)),
        (r"checksums of head.safetensors .*, got none", lambda d: d.update(files={})),
        ("rest and limit must be positive", lambda d: d["out_of_domain"].update(rest=0)),
        ("the source 'weird/thing'", lambda d: d["models"][0].update(source="weird/thing")),
        ("cannot be the name of a folder", lambda d: d["models"][0].update(name="../up")),
        ("of length 3", lambda d: d["models"][0]["stated"].update(mean=[0.5])),
        (r"`\$.classes\[0\]`", lambda d: d.update(classes=[["0"], *d["classes"][1:]])),
        ("Expected `int`", lambda d: d["models"][0].update(feature_dim="many")),
        ("it has no model 'another'", lambda d: d.update(normalised=["another"])),
        ("must have either models or models that only have", lambda d: d.update(models=[])),
        ("must have 1 threshold and", lambda d: d["left_out"]["sets"][0].update(thresholds=[])),
    ]
    keys = ("classes", "models", "head", "out_of_domain", "provenance", "files", "task")
    changes += [(f"missing.*`{key}`", lambda d, key=key: d.pop(key)) for key in keys]  # type: ignore[misc]
    for message, change in changes:
        path.write_text(whole)
        edit(folder, change)
        refused(folder, rf"predictor .*{message}")


@pytest.mark.parametrize(
    ("kind", "name"),
    [("absolute", HEAD), ("above", f"models/{RESNET}.onnx"), ("link", f"models/{RESNET}.onnx")],
)
def test_a_file_outside_the_folder(folder: Path, kind: str, name: str) -> None:
    """The document names it with the right checksum, or it is a symbolic link."""
    shutil.copy(folder / "models" / f"{RESNET}.onnx", folder.parent / "model.onnx")
    for source in ("onnx/../model.onnx", "hf/./..", "timm/local-dir:/"):
        whole = (folder / "predictor.json").read_text()
        edit(folder, lambda document, to=source: document["models"][0].update(source=to))
        assert source in refused(folder, "which is not among its files; fit again")
        (folder / "predictor.json").write_text(whole)
    outside = folder.parent / "outside" / Path(name).name
    outside.parent.mkdir()
    shutil.move(folder / name, outside)
    given = {"absolute": str(outside), "above": f"../outside/{outside.name}", "link": name}[kind]
    if kind == "link":
        (folder / name).symlink_to(outside)

    def change(document: dict[str, Any]) -> None:
        for entry in (document, *document["models"]):
            entry["files"] = {given if n == name else n: d for n, d in entry["files"].items()}
        for model in document["models"]:
            model["source"] = model["source"].replace(name, given)

    edit(folder, change)
    assert repr(given) in refused(folder, r"which is not inside its folder; fit again")


def test_saving_again_replaces_a_predictor_and_nothing_else(
    predictor: oodzoo.Predictor, folder: Path, unseen: list[Path], tmp_path: Path
) -> None:
    (folder / HEAD).write_bytes(b"")
    for name in ("notes.txt", "models-of-mine/a", "version-2/b", "version-01234567/left"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("")
    for _ in range(2):
        predictor.save(folder)
        own = oodzoo.load(folder)
        own.save(folder)  # into the folder that its models come from
        assert own.predict(unseen[:1]).tolist() == predictor.predict(unseen[:1]).tolist()
        found = {path.name for path in folder.iterdir()}
        (version,) = (name for name in found if len(name) == len("version-01234567"))
        mine = {"notes.txt", "models-of-mine", "version-2"}
        assert found - {version} == {"predictor.json", "README.md", ".lock"} | mine
        assert version != "version-01234567"
        assert {path.name for path in (folder / version).iterdir()} == {HEAD, GAUSSIAN, "models"}
    for name in ("empty", "notes"):
        (tmp_path / name).mkdir()
    predictor.save(tmp_path / "empty")
    for name in ("notes/mine.txt", "file"):
        (tmp_path / name).write_text("mine")
    for name, words in (
        ("notes", "exists and is not a predictor"),
        ("file", "exists and is not a predictor"),
        ("file/model", "a part of the path is a file"),
    ):
        with pytest.raises(InputError, match=words):
            predictor.save(tmp_path / name)
    assert (tmp_path / "notes" / "mine.txt").read_text() == "mine"
    assert not list(tmp_path.glob(".tmp*"))


def test_the_model_card_is_replaced_unless_it_was_edited(
    predictor: oodzoo.Predictor, other: oodzoo.Predictor, folder: Path
) -> None:
    card = folder / "README.md"
    other.save(folder)
    assert card.read_text() == model_card(other) != model_card(predictor)
    for edited in (card.read_text() + "Mine.\n", ""):
        card.write_text(edited)
        with pytest.warns(UserWarning, match=r"README.md' was edited.* and is kept"):
            predictor.save(folder)
        assert card.read_text() == edited
        assert oodzoo.load(folder).provenance == predictor.provenance
    card.unlink()
    predictor.save(folder)
    assert card.read_text() == model_card(predictor)


def test_a_replacement_that_fails_leaves_the_old_predictor(
    predictor: oodzoo.Predictor,
    other: oodzoo.Predictor,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with locked(folder), pytest.raises(InputError, match="is being written by another process"):
        predictor.save(folder)
    before = names(folder)
    first, *others = predictor.loadable_models
    missing = replace(first, spec=replace(first.spec, source="onnx/nowhere.onnx"))
    with pytest.raises(InputError, match=r"cannot read '.*nowhere.onnx'"):
        changed(predictor, models=[missing, *others]).save(folder)
    assert names(folder) - before <= {".lock"}
    with monkeypatch.context() as patch:
        patch.setattr("oodzoo.predictor.saved.file_digest", lambda path: "0" * 64)
        with pytest.raises(InputError, match="changed while it was copied"):
            predictor.save(folder)
    assert oodzoo.load(folder).provenance == predictor.provenance

    def fail(*args: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("oodzoo.predictor.saved.sealed", fail)
        with pytest.raises(InputError, match="the disk is full"):
            other.save(folder)
    assert not (folder / "README.md").exists()  # there is never the card of another predictor
    assert oodzoo.load(folder).provenance == predictor.provenance
    predictor.save(folder)


def _external(folder: Path, zoo: list[ModelSpec]) -> str:
    onnx = pytest.importorskip("onnx", reason="writing external weights needs onnx")
    apart: dict[str, Any] = {"location": "weights.bin", "size_threshold": 0}
    onnx.save(onnx.load(zoo[0].file), folder / "a.onnx", save_as_external_data=True, **apart)
    return 'source = "onnx/a.onnx"\nfeatures = "features"\nmean = [0, 0, 0]\nstd = [1, 1, 1]'


def _hf_folder(folder: Path, zoo: list[ModelSpec]) -> str:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    torch.manual_seed(0)
    network = transformers.ViTModel(transformers.ViTConfig(**VIT))
    save_checkpoint(transformers, network, folder / "vit", SQUASH)
    return 'source = "hf/./vit"'


def _untrained(folder: Path, zoo: list[ModelSpec]) -> str:
    arguments = "{ img_size = 64, num_classes = 0 }"
    return f'source = "timm/test_vit"\npretrained = false\narguments = {arguments}'


@pytest.mark.parametrize("make", [_external, _hf_folder, _untrained])
def test_local_models_are_copied(
    request: pytest.FixtureRequest,
    make: Any,
    zoo: list[ModelSpec],
    unseen: list[Path],
    fit_models: Any,
    tmp_path: Path,
) -> None:
    folder = tmp_path / "zoo"
    folder.mkdir()
    if make is not _external:
        request.getfixturevalue("timm")
    (folder / "zoo.toml").write_text('[[model]]\nname = "net"\n' + make(folder, zoo))
    fitted = fit_models(oodzoo.load_zoo(folder / "zoo.toml"))
    expected = fitted.predict_proba(unseen[:3])
    if make is _external:
        sizes = [(folder / name).stat().st_size for name in ("a.onnx", "weights.bin")]
        assert fitted.cost.bytes == sum(sizes)
    saved = fitted.save(tmp_path / "model")
    shutil.rmtree(folder)
    found = oodzoo.load(saved).predict_proba(unseen[:3])
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert str(tmp_path) not in (saved / "predictor.json").read_text()
    if make is _external:
        (saved / "models" / "net" / "weights.bin").unlink()
        refused(saved, r"lacks 'models/.*/weights.bin'")


def test_a_timm_model_is_copied_or_recorded(
    unseen: list[Path], timm_spec: Callable[..., ModelSpec], fit_models: Any, tmp_path: Path
) -> None:
    spec = timm_spec()
    fitted = fit_models([spec])
    expected = fitted.predict_proba(unseen[:3])
    folder = fitted.save(tmp_path / "model")
    assert not list(folder.rglob("*.bin"))
    (spec.folder / "tiny" / "model.safetensors").unlink()
    with pytest.raises(InputError, match=r"has no .safetensors file, and pickled weights"):
        fitted.save(tmp_path / "pickled")
    assert not list(tmp_path.glob(".tmp*"))
    shutil.rmtree(spec.folder)
    np.testing.assert_array_equal(oodzoo.load(folder).predict_proba(unseen[:3]), expected)
    # a model from a hub has no files to check, only its fingerprint
    edit(folder, lambda document: document["models"][0].update(fingerprint="0" * 64))
    with pytest.raises(InputError, match=r"computed with 000000000000…: its weights have changed"):
        oodzoo.load(folder).predict(unseen[:1])
    hub = ModelSpec(name="tiny", source="timm/hf-hub:owner/tiny")
    recorded = changed(fitted, models=(replace(fitted.loadable_models[0], spec=hub),))
    recorded.save(tmp_path / "hub")
    (entry,) = json.loads((tmp_path / "hub" / "predictor.json").read_text())["models"]
    assert (entry["source"], entry["files"]) == ("timm/hf-hub:owner/tiny", {})
    assert entry["fingerprint"] == fitted.models[0].fingerprint
    code = ModelSpec(name="tiny", source="torch_hub/hub:net", folder=tmp_path)
    coded = changed(fitted, models=(replace(fitted.loadable_models[0], spec=code),))
    with pytest.raises(InputError, match="a saved predictor has no code, and 'torch_hub/hub:net'"):
        coded.save(tmp_path / "code")
    assert not list(tmp_path.glob(".tmp*"))
