"""Models of a zoo: which are refused, and the texts of classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.features.data import MakeModel
from tests.small_clip import WIDTH, small_clip

import oodzoo
from oodzoo.core.errors import InputError
from oodzoo.extraction.extract import run_extraction
from oodzoo.extraction.outcome import ExtractionConfig
from oodzoo.store.class_embeddings import FILE, ClassEmbeddings
from oodzoo.zoo import ModelSpec
from oodzoo.zoo.prompts import PROMPTS, Prompts, embed_classes
from oodzoo.zoo.sources import get_source


@pytest.mark.parametrize(
    ("names", "complaint"),
    [
        ([], "the zoo is empty"),
        ("", "'' is not a zoo"),
        (["model", "model"], "the zoo names two models 'function'"),
        ([print], r"is not a model; wrap .*model_from_callable"),
    ],
)
def test_bad_zoos(
    data: Path, make_model: MakeModel, tmp_path: Path, names: Any, complaint: str
) -> None:
    zoo = [make_model() if name == "model" else name for name in names] or names
    with pytest.raises(InputError, match=complaint):
        oodzoo.extract(data, zoo, tmp_path / "s")
    assert not (tmp_path / "s").exists()


NAMES = {"0": "zero", "1": "one", "2": "two"}


@pytest.fixture
def spec(tmp_path: Path) -> ModelSpec:
    return small_clip(tmp_path)


def _texts(store: oodzoo.FeatureStore) -> ClassEmbeddings:
    found = store.class_embeddings("clip")
    assert found is not None
    return found


def _extract(digits: Any, zoo: Any, store: Path, **options: Any) -> oodzoo.FeatureStore:
    return oodzoo.extract(digits, zoo, store, device="cpu", **options)


def test_by_default_the_classes_and_the_prompts_of_clip(
    digits: Path, spec: ModelSpec, tmp_path: Path
) -> None:
    store = _extract(digits, [spec], tmp_path / "store")
    found = _texts(store)
    tower = get_source("open_clip").text_tower(spec, device="cpu")
    assert tower is not None
    assert (found.classes, found.names, found.prompts) == (("0", "1", "2"),) * 2 + (PROMPTS,)
    np.testing.assert_allclose(found.embeddings, embed_classes(tower, "012", PROMPTS), atol=1e-6)
    assert (found.scale, found.bias) == (tower.scale, 0.0)
    assert found.embeddings.shape == (3, WIDTH)


def test_other_texts_are_embedded_anew_and_nothing_else(
    digits: Path, spec: ModelSpec, tmp_path: Path
) -> None:
    store = _extract(digits, [spec], tmp_path / "store", class_names=NAMES, prompts=["a {}."])
    first = _texts(store)
    assert (first.names, first.prompts) == (("zero", "one", "two"), ("a {}.",))
    before = {path: path.stat().st_mtime_ns for path in store.path.rglob("*.npy")}

    def again(prompts: Prompts) -> tuple[ClassEmbeddings, bool]:
        """The embeddings, and whether the file was written."""
        file = store.path / "models" / "clip" / FILE
        written = file.stat().st_mtime_ns, file.stat().st_ino
        config = ExtractionConfig(device="cpu", prompts=prompts)
        opened, done = run_extraction(oodzoo.ImageDomains(digits), [spec], store.path, config)
        assert done.shards == 0
        assert done.warnings() == []
        return _texts(opened), (file.stat().st_mtime_ns, file.stat().st_ino) != written

    found, written = again(Prompts(templates=("the {}.", "a {}.")))
    assert (found.names, found.prompts) == (first.names, ("the {}.", "a {}."))
    assert written
    assert np.abs(found.embeddings - first.embeddings).max() > 1e-3
    found, written = again(Prompts())  # what was asked for the last time
    assert (found.names, found.prompts) == (first.names, ("the {}.", "a {}."))
    assert not written
    other = NAMES | {"2": "a pair"}
    found, written = again(Prompts(class_names=other))
    assert (found.names, found.prompts) == (("zero", "one", "a pair"), ("the {}.", "a {}."))
    assert written
    assert {path: path.stat().st_mtime_ns for path in store.path.rglob("*.npy")} == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"class_names": {"0": "zero"}}, "lack 2 classes of the data: '1', '2'"),
        ({"class_names": NAMES | {"3": "x"}}, "have '3', which is not a class"),
        ({"class_names": NAMES | {"2": "one"}}, "two classes have the name 'one'"),
        ({"prompts": ["a photo"]}, "the prompt 'a photo' has no place"),
        ({"prompts": []}, "there is no prompt"),
    ],
)
def test_bad_texts_are_rejected_before_anything_is_computed(
    digits: Path, zoo: Any, tmp_path: Path, options: Any, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        _extract(digits, zoo("mlp_glyphs_augmented"), tmp_path / "store", **options)
    assert not (tmp_path / "store").exists()


def test_a_model_whose_tokeniser_is_missing_has_features(
    digits: Path, spec: ModelSpec, tmp_path: Path
) -> None:
    file = tmp_path / "clip" / "open_clip_config.json"
    file.write_text(
        file.read_text().replace('"heads": 2', '"heads": 2, "hf_tokenizer_name": "nobody/none"')
    )
    with pytest.warns(
        UserWarning, match="model 'clip' has no zero-shot predictions: .*cannot load"
    ):
        store = _extract(digits, [spec], tmp_path / "store")
    assert store.models == ("clip",)
    assert store.class_embeddings("clip") is None
