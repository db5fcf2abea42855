"""Images and labels to tune on: rows, splits as in DomainBed, and data sets of each task."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.tuning import small

from oodzoo.core.errors import InputError
from oodzoo.data.dataset import ImageDomains
from oodzoo.linear.heads.domainbed.protocol import seed_hash
from oodzoo.tuning.problem import Problem, opened


@pytest.fixture
def problem(tmp_path: Path) -> Iterator[Problem]:
    with small.problem(tmp_path) as found:
        yield found


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table of 12 images of two domains, without labels; written in no order."""
    rng = np.random.default_rng(0)
    lines = ["path,domain,group,class,age,height,tags"]
    for number in rng.permutation(12).tolist():
        pixels = rng.integers(0, 256, (9, 9, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{number:02}.png")
        domain, group = ("night", "day")[number % 2], f"g{number // 4}"
        tags = "|".join(tag for at, tag in enumerate(("big", "red")) if (number + 1) >> at & 1)
        fields = (f"{number:02}.png", domain, group, f"c{number % 3}")
        lines.append(",".join([*fields, f"{number * 1.5}", f"{100 - number}", tags]))
    (tmp_path / "table.csv").write_text("\n".join(lines))
    return tmp_path / "table.csv"


def split_dataset(n: int, held_out: int, seed: int) -> tuple[list[int], list[int]]:
    """DomainBed's misc.split_dataset: the out-split and the in-split."""
    keys = list(range(n))
    np.random.RandomState(seed).shuffle(keys)
    return keys[:held_out], keys[held_out:]


def number_of(data: ImageDomains, row: int) -> int:
    return int(Path(data.samples[row].path).stem)


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_splits_of_domainbed(problem: Problem, seed: int) -> None:
    for number, domain in enumerate(small.DOMAINS):
        rows = problem.rows(domain)
        held_out = int(len(rows) * 0.2)
        outside, inside = split_dataset(len(rows), held_out, seed_hash(seed, number))
        found = problem.split(domain, seed)
        assert [each.tolist() for each in found] == [rows[inside].tolist(), rows[outside].tolist()]


@pytest.mark.parametrize("seed", range(5))
def test_groups_stay_whole(problem: Problem, seed: int) -> None:
    groups = [None if row % 5 == 0 else f"g{row // 3}" for row in range(33)]
    grouped = replace(problem, groups=groups)
    for domain in small.DOMAINS:
        inside, outside = grouped.split(domain, seed)
        assert sorted([*inside, *outside]) == grouped.rows(domain).tolist()
        named = [{groups[row] for row in part} - {None} for part in (inside, outside)]
        assert not named[0] & named[1]
        assert 1 <= len(outside) <= 4


def test_too_few_images(problem: Problem) -> None:
    numbers = np.where(np.arange(33) < 4, 0, 1)
    few = replace(problem, numbers=numbers, domains=("few", "many"))
    assert len(few.split("many", 0)[1]) == 5
    with pytest.raises(InputError) as caught:
        few.split("few", 0)
    assert str(caught.value) == (
        "the domain 'few' has too few images to hold out a fifth of them: 4; at least 5 are needed"
    )


def test_one_group(problem: Problem) -> None:
    grouped = replace(problem, groups=["a"] * 33)
    with pytest.raises(InputError) as caught:
        grouped.split("photo", 0)
    assert str(caught.value) == (
        "all images of the domain 'photo' are of one group, so that none can be held out"
    )


def test_classes(table: Path) -> None:
    data = ImageDomains(table, columns={"label": "class"})
    with opened(data, small.PREPROCESSING.geometry) as problem:
        assert (problem.kind, problem.n_outputs) == ("classification", 3)
        assert problem.domains == ("day", "night")
        for row in range(12):
            number = number_of(data, row)
            assert problem.labels[row] == number % 3
            assert problem.domains[problem.numbers[row]] == ("night", "day")[number % 2]
            assert problem.groups[row] == f"g{number // 4}"
            with Image.open(table.parent / f"{number:02}.png") as image:
                expected = small.PREPROCESSING.geometry.apply(image)
            np.testing.assert_array_equal(problem.images.prepared([row])[0], expected)


def test_numbers(table: Path) -> None:
    data = ImageDomains(table, columns={"label": "age+height"}, task="regression")
    with opened(data, small.PREPROCESSING.geometry) as problem:
        assert (problem.kind, problem.n_outputs) == ("regression", 2)
        numbers = np.array([number_of(data, row) for row in range(12)])
        expected = np.stack([numbers * 1.5, 100 - numbers], axis=1)
        np.testing.assert_array_equal(problem.labels, expected)


def test_several_labels(table: Path) -> None:
    data = ImageDomains(table, columns={"label": "tags"}, task="multilabel")
    with opened(data, small.PREPROCESSING.geometry) as problem:
        assert (problem.kind, problem.n_outputs) == ("multilabel", 2)
        numbers = np.array([number_of(data, row) for row in range(12)])
        expected = np.stack([(numbers + 1) & 1, (numbers + 1) >> 1 & 1], axis=1)
        np.testing.assert_array_equal(problem.labels, expected)


def test_fingerprint(table: Path) -> None:
    def fingerprint(**columns: str) -> str:
        data = ImageDomains(table, columns={"label": "class", **columns})
        with opened(data, small.PREPROCESSING.geometry) as problem:
            return problem.fingerprint

    first = fingerprint()
    assert fingerprint() == first
    assert fingerprint(group="height") != first
    assert fingerprint(label="group") != first
    (table.parent / "03.png").write_bytes((table.parent / "04.png").read_bytes())
    assert fingerprint() != first
