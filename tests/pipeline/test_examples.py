"""Example images of a run: one of each class in turn, and where they are."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.fixtures import draw_digits
from tests.leaks.data import extract_copies
from tests.report.example import example_run

from oodzoo.data.dataset import ImageDomains
from oodzoo.data.files import EmbeddedFile, LocalFile, ObjectImage, read_bytes
from oodzoo.data.listing import Sample
from oodzoo.pipeline.driver import (
    EXAMPLES,
    choose_examples,
    example_files,
    mistake_files,
    stored_file,
)
from oodzoo.store.feature_store import FeatureStore
from oodzoo.tasks.classification import Mistake


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> ImageDomains:
    return ImageDomains(draw_digits(tmp_path_factory.mktemp("digits"), 5))


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with images that occur twice, and a store of their features."""
    return extract_copies(tmp_path_factory.mktemp("copies"))


class Large:
    """Images of 300 x 200 pixels, and one that is none."""

    samples = tuple(Sample(str(n), f"d{n % 2}", f"c{n // 2 % 2}") for n in range(5))

    def open(self, i: int) -> bytes:
        if i == 4:
            return b"no image"
        content = io.BytesIO()
        Image.fromarray(np.full((200, 300, 3), 40 * i, np.uint8)).save(content, "PPM")
        return content.getvalue()


def test_one_of_each_class_in_turn(digits: ImageDomains) -> None:
    for domain, examples in choose_examples(digits).items():
        assert len(examples) == EXAMPLES
        assert [example.label for example in examples[:6]] == [*digits.classes, *digits.classes]
        assert {example.path.split("/")[0] for example in examples} == {domain}


def test_images_in_memory_are_embedded_as_small_copies() -> None:
    data = ImageDomains(Large())
    files = example_files(data, choose_examples(data))
    assert sorted(files) == ["0", "1", "2", "3"]  # not the one that cannot be decoded
    for name, file in files.items():
        assert isinstance(file, EmbeddedFile)
        with Image.open(io.BytesIO(read_bytes(file))) as image:
            assert image.size == (144, 96)
            assert image.getpixel((5, 5)) == (40 * int(name),) * 3
    assert stored_file(ObjectImage(Large(), 4, "4")) is None


def test_mistakes_are_named_by_domain_and_path(copies: Path) -> None:
    store, data = FeatureStore(copies / "store"), ImageDomains(copies / "data")
    domain = "marker"
    path = store.paths(domain)[1]
    evaluation = example_run(2, [domain], ["0", "1"]).evaluation
    assert evaluation is not None
    wrong = replace(evaluation.diagnosis[domain], mistakes=(Mistake(path, domain, "0", "1", 99.0),))
    found = replace(evaluation, diagnosis={domain: wrong})
    assert mistake_files(found, store, data.files_by_digest) == {
        f"{domain}: {path}": LocalFile(str(copies / "data" / path))
    }
    assert mistake_files(found, store, {}) == {}


def test_numbers_from_small_to_large(digits: ImageDomains) -> None:
    labels = [float(-at) for at in range(len(digits))]
    files = [str(Path(digits.name) / sample.path) for sample in digits]
    domains = [sample.domain for sample in digits]
    numbers = ImageDomains(files, labels=labels, domains=domains, task="regression")
    for examples in choose_examples(numbers).values():
        shown = [float(example.label) for example in examples[:5]]
        assert shown == sorted(shown)
        assert shown[-1] - shown[0] >= 10  # of 15 images


def test_every_label_has_an_example(digits: ImageDomains) -> None:
    names = [["even"], ["large", "even"], ["large"], []]
    labels = [names[at % 4] for at in range(len(digits))]
    files = [str(Path(digits.name) / sample.path) for sample in digits]
    domains = [sample.domain for sample in digits]
    several = ImageDomains(files, labels=labels, domains=domains, task="multilabel")
    for examples in choose_examples(several).values():
        names_shown = {name for example in examples for name in example.label.split(", ")}
        assert names_shown == {"even", "large", "no label"}
