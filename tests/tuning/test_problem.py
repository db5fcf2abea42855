"""Images and labels to tune on: splits as in DomainBed, which `tune` does not show."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.tuning import small

from oodzoo.core.errors import InputError
from oodzoo.data.dataset import ImageDomains
from oodzoo.linear.heads.domainbed.protocol import seed_hash
from oodzoo.tuning.problem import TuningData, opened


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


def test_splits_of_domainbed(problem: TuningData) -> None:
    for number, domain in enumerate(small.DOMAINS):
        rows = problem.rows(domain)
        outside, inside = split_dataset(len(rows), int(len(rows) * 0.2), seed_hash(7, number))
        found = problem.split(domain, 7)
        assert [each.tolist() for each in found] == [rows[inside].tolist(), rows[outside].tolist()]
    groups = [None if row % 5 == 0 else f"g{row // 3}" for row in range(33)]
    grouped = replace(problem, groups=groups)
    for domain in small.DOMAINS:  # groups stay whole
        inside, outside = (part.tolist() for part in grouped.split(domain, 1))
        assert sorted([*inside, *outside]) == grouped.rows(domain).tolist()
        named = [{groups[row] for row in part} - {None} for part in (inside, outside)]
        assert not named[0] & named[1]
        assert 1 <= len(outside) <= 4


def test_domains_that_cannot_be_split(problem: TuningData) -> None:
    numbers = np.where(np.arange(33) < 4, 0, 1)
    few = replace(problem, numbers=numbers, domains=("few", "many"))
    assert len(few.split("many", 0)[1]) == 5
    for bad, domain, words in (
        (few, "few", r"'few' has too few images .*: 4; at least 5 are needed"),
        (replace(problem, groups=["a"] * 33), "photo", "all images of the domain 'photo' are of"),
    ):
        with pytest.raises(InputError, match=words):
            bad.split(domain, 0)


@pytest.mark.parametrize(
    ("kind", "label", "expected"),
    [
        ("classification", "class", lambda n: n % 3),
        ("regression", "age+height", lambda n: np.stack([n * 1.5, 100 - n], axis=1)),
        ("multilabel", "tags", lambda n: np.stack([(n + 1) & 1, (n + 1) >> 1 & 1], axis=1)),
    ],
)
def test_data_sets(table: Path, kind: str, label: str, expected: Any) -> None:
    data = ImageDomains(table, columns={"label": label}, task=kind)
    with opened(data, small.PREPROCESSING.geometry) as problem:
        assert (problem.task.kind, problem.domains) == (kind, ("day", "night"))
        assert problem.n_outputs == (3 if kind == "classification" else 2)
        numbers = np.array([int(Path(data.samples[row].path).stem) for row in range(12)])
        np.testing.assert_array_equal(problem.labels, expected(numbers))
        for row, number in enumerate(numbers.tolist()):
            assert problem.domains[problem.numbers[row]] == ("night", "day")[number % 2]
            assert problem.groups[row] == f"g{number // 4}"
            with Image.open(table.parent / f"{number:02}.png") as image:
                pixels = small.PREPROCESSING.geometry.apply(image)
            np.testing.assert_array_equal(problem.images.prepared([row])[0], pixels)


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
