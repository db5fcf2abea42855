"""Tests of real predictors on real images, features and texts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sklearn.metrics import accuracy_score, average_precision_score, confusion_matrix, r2_score

import oodzoo
from oodzoo.diagnostics.labels import LabelDiagnosis
from oodzoo.diagnostics.numbers import NumberDiagnosis
from oodzoo.errors import InputError
from oodzoo.events import Listener
from oodzoo.report.assessment_page import assessment_page
from oodzoo.task import Kind


def test_figures_are_those_of_the_predictions(
    result: oodzoo.TestResult, predictor: oodzoo.Predictor, new_digits: Path
) -> None:
    files = sorted(new_digits.rglob("*.png"))
    guessed = predictor.predict(files)
    truth = [file.parent.name for file in files]
    assert result.images == len(files) == 36
    assert result.accuracy == result.value == pytest.approx(100 * accuracy_score(truth, guessed))
    assert np.array_equal(result.confusion, confusion_matrix(truth, guessed))
    for domain, part in result.domains.items():
        mine = [at for at, file in enumerate(files) if file.parts[-3] == domain]
        expected = accuracy_score([truth[at] for at in mine], [guessed[at] for at in mine])
        assert result.value_of(part) == pytest.approx(100 * expected)
    assert list(result.domains) == ["pencil", "tilted"]
    low, high = result.interval or (0, 0)
    assert low < result.accuracy <= high
    wrong = {
        file.relative_to(new_digits).as_posix(): guess
        for file, guess in zip(files, guessed, strict=True)
        if guess != file.parent.name
    }
    assert {each.path: each.predicted for each in result.mistakes} == wrong
    assert len(wrong) >= 3
    assert set(result.files) == set(wrong)
    assert result.reliability.images == 36


def test_a_folder_of_classes_is_one_domain(
    result: oodzoo.TestResult, saved: Path, new_digits: Path
) -> None:
    found = oodzoo.test(saved, new_digits / "tilted")
    assert list(found.domains) == ["tilted"]
    assert found.confusion == result.domains["tilted"].diagnosis.confusion  # type: ignore[union-attr]


def test_other_forms_of_data_give_the_same(
    result: oodzoo.TestResult, predictor: oodzoo.Predictor, new_digits: Path, tmp_path: Path
) -> None:
    files = sorted(new_digits.rglob("*.png"))
    table = tmp_path / "table.csv"
    rows = [f"{file},{file.parent.name},{file.parts[-3]}" for file in files]
    table.write_text("\n".join(["file,digit,place", *rows]))
    roles = {"path": "file", "label": "digit", "domain": "place"}
    given: list[tuple[Any, dict[str, Any]]] = [
        (table, {"columns": roles}),
        (oodzoo.ImageDomains(new_digits), {}),
        (
            [np.array(Image.open(file)) for file in files],
            {
                "labels": [file.parent.name for file in files],
                "domains": [file.parts[-3] for file in files],
            },
        ),
    ]
    for data, options in given:
        found = oodzoo.test(predictor, data, **options)
        assert found.confusion == result.confusion
        assert list(found.domains) == list(result.domains)
    alone = oodzoo.test(predictor, table, columns=roles, domains="one")
    assert list(alone.domains) == ["all"]
    assert alone.confusion == result.confusion


def test_unknown_classes_are_not_compared_with_left_out_domains() -> None:
    rng = np.random.default_rng(0)
    y, place = np.tile(["no", "yes"], 90), np.repeat(["a", "b", "c"], 60)
    X = rng.normal(size=(180, 3)) + 9 * (y == "yes")[:, None]
    predictor = oodzoo.fit({"m": X}, y, place)
    assert predictor.provenance.accuracy_interval is not None
    labels = np.where(np.arange(180) % 3, y, "maybe")
    result = oodzoo.test(predictor, {"m": X}, labels=labels, domains=["new"] * 180)
    assert result.accuracy == pytest.approx(200 / 3)
    assert result.known_accuracy == 100
    assert result.promise is not None
    assert result.promise.verdicts == {"new": "within"}
    assert "is what is compared with left-out domains" in " ".join(result.remarks())
    strange = np.where(place == "a", "maybe", y)
    partly = oodzoo.test(predictor, {"m": X}, labels=strange, domains=[f"new-{d}" for d in place])
    assert partly.promise is not None
    assert partly.promise.verdicts == {"new-b": "within", "new-c": "within"}


def test_odd_data_is_counted_and_listed(
    predictor: oodzoo.Predictor, new_digits: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(new_digits / "tilted", tmp_path / "odd")
    shutil.move(folder / "2", folder / "two")
    (folder / "0" / "broken.png").write_bytes(b"no image")
    result = oodzoo.test(predictor, folder)
    assert result.unknown == {"two": 6}
    assert result.absent == ("2",)
    assert result.images == 18
    assert result.known_accuracy == pytest.approx(result.accuracy * 18 / 12)
    assert result.known_accuracy != 100
    assert result.per_class["two"].recall == 0
    (missed,) = result.unreadable
    assert (missed.path, missed.domain) == ("0/broken.png", "odd")
    text = " ".join(result.remarks())
    for words in (
        "6 images are of a class that the predictor does not know and count as wrong: 'two' (6)",
        "No image has the class '2'",
        "1 image could not be read and is in no figure; the first is '0/broken.png'",
    ):
        assert words in text


def test_training_data_is_recognised(predictor: oodzoo.Predictor, digits: Path) -> None:
    found = oodzoo.test(predictor, digits)
    assert found.is_training_data
    assert found.trained_on == ("chalk", "marker", "paper")
    assert "trained on exactly this data" in " ".join(found.remarks())
    part = oodzoo.test(predictor, digits / "chalk")
    assert not part.is_training_data
    assert "domain of the same name: 'chalk'" in " ".join(part.remarks())


def test_flagged_images_are_compared_with_the_others(
    predictor: oodzoo.Predictor, new_digits: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(new_digits / "pencil", tmp_path / "data")
    rng = np.random.default_rng(0)
    for at in range(3):
        noise = Image.fromarray(rng.integers(0, 256, (32, 32, 3), np.uint8))
        noise.save(folder / "1" / f"noise{at}.png")
    result = oodzoo.test(predictor, folder)
    far = result.out_of_domain
    found = {each.path: each for each in predictor.stream(sorted(folder.rglob("*.png")))}
    flagged = [path for path, each in found.items() if each.out_of_domain]  # type: ignore[union-attr]
    assert far.images == len(flagged) >= 3
    right = [str(found[path].label) == Path(str(path)).parent.name for path in flagged]  # type: ignore[union-attr]
    assert far.flagged == pytest.approx(100 * np.mean(right))
    assert "unlike the training images" in " ".join(result.remarks())


def test_listeners_get_progress_and_metrics(predictor: oodzoo.Predictor, new_digits: Path) -> None:
    class Recorder(Listener):
        def __init__(self) -> None:
            self.at: list[tuple[int, int]] = []
            self.metrics: dict[str, float] = {}
            self.status = ""

        def progress(self, stage: str, done: int, total: int, **facts: Any) -> None:
            assert stage == "test"
            self.at.append((done, total))

        def metric(self, stage: str, name: str, value: float, *, step: int | None = None) -> None:
            self.metrics[name] = value

        def end(self, stage: str, **facts: Any) -> None:
            self.status = facts["status"]

    listener = Recorder()
    result = oodzoo.test(predictor, new_digits / "tilted", listener=listener)
    assert listener.at[0] == (0, 18)
    assert listener.at[-1] == (18, 18)
    assert listener.metrics["accuracy"] == result.accuracy
    assert listener.metrics["accuracy_by_domain/tilted"] == result.accuracy
    assert listener.status == "done"


# --- features: any task --------------------------------------------------------------------------


def problem(kind: Kind) -> tuple[dict[str, Any], Any, Any]:
    rng = np.random.default_rng(0)
    domains = np.repeat(["a", "b", "c"], 50)
    latent = rng.normal(size=(150, 4))
    Y = latent[:, :2] + 0.3 * rng.normal(size=(150, 2))
    Y = Y * 30 + 100 if kind == "regression" else (Y > 0).astype(int)
    return {"sensor": latent @ rng.normal(size=(4, 6))}, Y, domains


@pytest.mark.parametrize("kind", ["regression", "multilabel"])
def test_numbers_and_labels_are_tested(kind: Kind, tmp_path: Path) -> None:
    features, Y, domains = problem(kind)
    predictor = oodzoo.fit(features, Y, domains, task=kind, choose="single")
    result = oodzoo.test(predictor, features, labels=Y, domains=domains)
    found = result.diagnosis
    if kind == "regression":
        assert isinstance(found, NumberDiagnosis)
        assert result.value == pytest.approx(100 * r2_score(Y, predictor.predict(features)))
    else:
        assert isinstance(found, LabelDiagnosis)
        expected = average_precision_score(Y, predictor.predict_proba(features))
        assert result.value == pytest.approx(100 * expected)
    assert result.value == pytest.approx(100 * predictor.score(features, Y))
    low, high = result.interval or (0, 0)
    assert low < result.value < high
    with pytest.raises(AttributeError, match="has no classes"):
        _ = result.accuracy
    file = tmp_path / "features.npz"
    np.savez(file, **features, labels=Y, domains=domains, label_names=predictor.classes_)
    assert oodzoo.test(predictor, file).value == pytest.approx(result.value)


def test_one_sample_of_a_domain_is_tested_too() -> None:
    features, Y, domains = problem("regression")
    predictor = oodzoo.fit(features, Y, domains, task="regression", choose="single")
    one = np.array(["alone"] + ["d"] * 149)
    result = oodzoo.test(predictor, features, labels=Y, domains=one)
    assert result.domains["alone"].interval is None
    document = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert oodzoo.TestResult.from_dict(document) == result
    assert "–" in str(result)
    assert "90 % interval –" in assessment_page(result)


def test_features_have_names_of_rows() -> None:
    rng = np.random.default_rng(1)
    y = np.arange(60) % 2
    X = rng.normal(size=(60, 3)) + y[:, None]
    predictor = oodzoo.fit({"m": X}, y, np.arange(60) % 3, choose="single")
    result = oodzoo.test(predictor, X, labels=y)
    assert result.noun == "sample"
    assert list(result.domains) == ["all"]
    assert result.value == pytest.approx(100 * predictor.score(X, y))
    assert all(each.path.isdigit() for each in result.mistakes)


# --- bad input -----------------------------------------------------------------------------------


def test_what_cannot_be_tested_is_refused(
    predictor: oodzoo.Predictor, new_digits: Path, tmp_path: Path, photos: Path
) -> None:
    with pytest.raises(InputError, match=r"none of the classes of .* is one of the predictor"):
        oodzoo.test(predictor, photos)
    with pytest.raises(InputError, match="no such file or folder"):
        oodzoo.test(predictor, tmp_path / "nothing")
    with pytest.raises(InputError, match="root= is not used with an open data set"):
        oodzoo.test(predictor, oodzoo.ImageDomains(new_digits), root=tmp_path)
    with pytest.raises(InputError, match="domains= is one string, 'tilted'"):
        oodzoo.test(predictor, new_digits, domains="tilted")
    broken = tmp_path / "broken" / "0"
    broken.mkdir(parents=True)
    (broken / "a.png").write_bytes(b"")
    with pytest.raises(InputError, match=r"none of the images of .* can be read; the first is"):
        oodzoo.test(predictor, broken.parent)
    with pytest.raises(InputError, match="only a pool can"):
        oodzoo.test(predictor, new_digits, adapt=True)


def test_features_without_labels_are_refused(tmp_path: Path) -> None:
    features, Y, domains = problem("regression")
    predictor = oodzoo.fit(features, Y, domains, task="regression", choose="single")
    with pytest.raises(InputError, match="has no labels; give labels="):
        oodzoo.test(predictor, features)
    with pytest.raises(InputError, match="labels= has 3 values"):
        oodzoo.test(predictor, features, labels=Y[:3])
    np.savez(tmp_path / "x.npz", **features)
    with pytest.raises(InputError, match="has no labels; a test needs them"):
        oodzoo.test(predictor, tmp_path / "x.npz")
    with pytest.raises(InputError, match=r"no such file: .*missing\.npz"):
        oodzoo.test(predictor, tmp_path / "missing.npz")
