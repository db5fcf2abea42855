"""`oodzoo.test`: of real predictors on real images and features."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sklearn.metrics import accuracy_score, confusion_matrix
from tests.assessment import conftest as fixtures
from tests.events.heard import Heard
from tests.predictor.data import DOMAINS, Y, problem, rows, truth

import oodzoo
from oodzoo.core.errors import InputError
from oodzoo.report.assessment_page import assessment_page
from oodzoo.tasks import CLASSIFICATION, Kind, Task, task_of
from oodzoo.tasks.multilabel import LabelDiagnosis
from oodzoo.tasks.regression import NumberDiagnosis

new_digits, promised, result = fixtures.new_digits, fixtures.promised, fixtures.result


def test_figures_are_those_of_the_predictions(
    result: oodzoo.TestResult, predictor: oodzoo.Predictor, new_digits: Path
) -> None:
    files = sorted(new_digits.rglob("*.png"))
    guessed, labels = predictor.predict(files), truth(files)
    assert result.images == len(files) == 36
    assert result.accuracy == result.value == pytest.approx(100 * accuracy_score(labels, guessed))
    assert np.array_equal(result.confusion, confusion_matrix(labels, guessed))
    for domain, part in result.domains.items():
        mine = [at for at, file in enumerate(files) if file.parts[-3] == domain]
        expected = accuracy_score([labels[at] for at in mine], guessed[mine])
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


def test_other_forms_of_data_give_the_same(
    result: oodzoo.TestResult,
    predictor: oodzoo.Predictor,
    saved: Path,
    new_digits: Path,
    tmp_path: Path,
) -> None:
    files = sorted(new_digits.rglob("*.png"))
    labels, domains = truth(files), [file.parts[-3] for file in files]
    table = tmp_path / "table.csv"
    lines = map(",".join, zip(map(str, files), labels, domains, strict=True))
    table.write_text("\n".join(["file,digit,place", *lines]))
    roles = {"columns": {"path": "file", "label": "digit", "domain": "place"}}
    pixels = [np.array(Image.open(file)) for file in files]
    tilted: Any = result.domains["tilted"].diagnosis
    given: list[tuple[Any, Any, Any, list[str], Any]] = [
        (predictor, table, roles, list(result.domains), result),
        (predictor, oodzoo.ImageDomains(new_digits), {}, list(result.domains), result),
        (predictor, pixels, {"labels": labels, "domains": domains}, list(result.domains), result),
        (predictor, table, roles | {"domains": "one"}, ["all"], result),
        (saved, new_digits / "tilted", {}, ["tilted"], tilted),  # a folder of classes is a domain
    ]
    for tested, data, options, names, expected in given:
        found = oodzoo.test(tested, data, **options)
        assert (found.confusion, list(found.domains)) == (expected.confusion, names)


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
    heard = Heard()
    part = oodzoo.test(predictor, digits / "chalk", listener=heard)
    assert not part.is_training_data
    assert "domain of the same name: 'chalk'" in " ".join(part.remarks())
    assert (heard.steps()[0], heard.steps()[-1]) == ((0, 36), (36, 36))
    metrics = {"accuracy": part.accuracy, "accuracy_by_domain/chalk": part.accuracy}
    assert heard.metrics("test") == metrics
    assert heard.outline() == [("test", "start"), ("test", "done")]


# --- features: any task --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["regression", "multilabel"])
def test_numbers_and_labels_are_tested(kind: Kind, tmp_path: Path) -> None:
    features, Y, domains = problem(kind)
    X = {"one": features["one"]}
    predictor = oodzoo.fit(X, Y, domains, task=kind, choose="single")
    result = oodzoo.test(predictor, X, labels=Y, domains=domains)
    assert isinstance(result.diagnosis, NumberDiagnosis if kind == "regression" else LabelDiagnosis)
    assert result.value == pytest.approx(100 * predictor.score(X, Y))
    low, high = result.interval or (0, 0)
    assert low < result.value < high
    with pytest.raises(AttributeError, match="has no classes"):
        _ = result.accuracy
    file = tmp_path / "features.npz"
    np.savez(file, **X, labels=Y, domains=domains, label_names=predictor.classes_)
    assert oodzoo.test(predictor, file).value == pytest.approx(result.value)
    alone = ["alone"] + ["d"] * 199  # one sample has no interval
    result = oodzoo.test(predictor, X, labels=Y, domains=alone)
    assert result.domains["alone"].interval is None
    document = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert oodzoo.TestResult.from_dict(document) == result
    assert "–" in str(result)
    assert "90 % interval –" in assessment_page(result)


def test_forms_of_features(predictor: oodzoo.Predictor, tmp_path: Path) -> None:
    single = oodzoo.fit({"m": rows()}, Y, DOMAINS, choose="single")
    result = oodzoo.test(single, rows(), labels=Y)
    assert (result.noun, list(result.domains)) == ("sample", ["all"])
    assert result.value == pytest.approx(100 * single.score(rows(), Y))
    assert all(each.path.isdigit() for each in result.mistakes)
    table = tmp_path / "rows.csv"
    lines = [f"{a},{b},{c},{y}" for (a, b, c), y in zip(rows().tolist(), Y, strict=True)]
    table.write_text("a,b,c,label\n" + "\n".join(lines))
    assert oodzoo.test(single, table).confusion == result.confusion
    encoded = oodzoo.fit({"m": np.asarray}, Y, DOMAINS, inputs=rows(), choose="single")
    assert oodzoo.test(encoded, list(rows()), labels=Y).confusion == result.confusion
    # a predictor of images takes features, too
    rng = np.random.default_rng(0)
    features: Any = {m.name: rng.normal(size=(4, m.feature_dim)) for m in predictor.models}
    labels, domains, paths = [0, 1, 0, 2], ["x", "x", "y", "y"], list("abcd")
    file = tmp_path / "some.npz"
    np.savez(file, **features, labels=labels, domains=domains, paths=paths)
    read = oodzoo.test(predictor, file)
    assert {each.path for each in read.mistakes} <= set(paths)
    assert (list(read.domains), read.noun) == (["x", "y"], "sample")
    given = oodzoo.test(predictor, features, labels=[str(each) for each in labels])
    assert given.confusion == read.confusion
    # a matrix is in the order of the predictor
    targets = np.stack([Y == "yes", DOMAINS == "a"], axis=1).astype(int)
    several = oodzoo.fit({"m": rows()}, targets, DOMAINS, task="multilabel", choose="single")
    found = oodzoo.test(several, rows(), labels=targets.tolist())
    assert found.value == pytest.approx(100 * several.score(rows(), targets))


# --- labels --------------------------------------------------------------------------------------

CLASSES = CLASSIFICATION
AGES, CATS = task_of("regression", ("age", "height")), task_of("multilabel", ("cat", "fox"))


def test_labels_are_found_by_name() -> None:
    found = CLASSES.truth(["dog", "emu", "dog", "ant"], ("cat", "dog", "fox"), "x")
    assert found.names == ("cat", "dog", "fox", "ant", "emu")
    assert found.values.tolist() == [1, 4, 1, 3]
    assert (found.unknown, found.absent) == ({"ant": 1, "emu": 1}, ("cat", "fox"))
    given = task_of("regression", ("height", "age", "size"))
    texts = [given.encode([1.8, 40, 3]), given.encode([1.6, 30, 2])]
    found = given.truth(texts, ("age", "height"), "x")
    np.testing.assert_array_equal(found.values, [[40, 1.8], [30, 1.6]])
    one = task_of("regression", ("years",))
    alone = one.truth([one.encode([4])], ("age",), "x")
    assert alone.values.tolist() == [[4]]
    labels = task_of("multilabel", ("ant", "cat", "dog"))
    texts = [labels.encode(["cat", "ant"]), labels.encode([])]
    found = labels.truth(texts, ("cat", "fox"), "x")
    np.testing.assert_array_equal(found.values, [[1, 0], [0, 0]])
    assert (found.unknown, found.absent) == ({"ant": 1}, ("fox",))


@pytest.mark.parametrize(
    ("task", "known", "text", "words"),
    [
        (CLASSES, ("cat",), "Cat", "got 'Cat', it has 'cat'; did you mean"),
        (CLASSES, ("0",), "zebra", "rename the classes"),
        (AGES, ("age", "b"), "1 2", r"has no number 'b', .*: name the columns with .*age\+b"),
        (CATS, ("a",), '["cat"]', "none of the labels of 'x'"),
        (CATS, ("cat",), "[]", "no sample of 'x'"),
    ],
)
def test_labels_that_cannot_be_compared(
    task: Task, known: tuple[str, ...], text: str, words: str
) -> None:
    with pytest.raises(InputError, match=words):
        task.truth([text], known, "x")


# --- bad input -----------------------------------------------------------------------------------


def test_what_cannot_be_tested_is_refused(
    predictor: oodzoo.Predictor, new_digits: Path, tmp_path: Path, photos: Path
) -> None:
    single = oodzoo.fit({"m": rows()}, Y, DOMAINS, choose="single")
    opened = oodzoo.ImageDomains(new_digits)
    lines = [f"{at}.5,{'ab'[at % 2]},{each}" for at, each in enumerate(new_digits.rglob("*.png"))]
    (tmp_path / "ages.csv").write_text("\n".join(["label,domain,path", *lines]))
    numbers = oodzoo.ImageDomains(tmp_path / "ages.csv")
    broken, file = tmp_path / "broken", tmp_path / "x.npz"
    (broken / "0").mkdir(parents=True)
    (broken / "0" / "a.png").write_bytes(b"")
    np.savez(file, m=rows())
    X = {"m": rows()}
    cases: list[tuple[oodzoo.Predictor, Any, dict[str, Any], str]] = [
        (predictor, photos, {}, r"none of the classes of .* is one of the predictor"),
        (predictor, tmp_path / "nothing", {}, "no such file or folder"),
        (predictor, opened, {"root": tmp_path}, "root= is not used with an open data set"),
        (predictor, new_digits, {"domains": "tilted"}, "domains= is one string, 'tilted'"),
        (predictor, numbers, {}, "labels for 'regression', but the predictor is for 'classif"),
        (predictor, broken, {}, r"none of the images of .* can be read; the first is"),
        (predictor, new_digits, {"adapt": True}, "only a pool can"),
        (single, opened, {}, "have features only, but .* has images"),
        (single, X, {}, "has no labels; give labels="),
        (single, X, {"labels": Y[:3]}, "labels= has 3 values"),
        (single, file, {}, "has no labels; a test needs them"),
        (single, file, {"root": tmp_path}, "root= is not used with features"),
        (single, tmp_path / "missing.npz", {}, r"no such file: .*missing\.npz"),
        (single, {"m": rows()[:0]}, {"labels": []}, "has no rows"),
    ]
    for tested, data, options, message in cases:
        with pytest.raises(InputError, match=message):
            oodzoo.test(tested, data, **options)
