"""The embedded digits: complete, disjoint, deterministic, and shifted between domains."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from oodzoo.demo import write_digits
from oodzoo.demo.digits import DOMAINS, deal_domains


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_digits(tmp_path_factory.mktemp("digits"))


def images(folder: Path) -> list[Path]:
    return sorted(folder.glob("*/*/*.png"))


def test_layout_is_domains_of_classes_of_images(folder: Path) -> None:
    domains = sorted(path.name for path in folder.iterdir())
    assert domains == sorted(DOMAINS)
    assert len(domains) >= 5
    for domain in domains:
        assert sorted(path.name for path in (folder / domain).iterdir()) == list("0123456789")


def test_every_source_image_appears_exactly_once_under_its_class(folder: Path) -> None:
    targets = load_digits().target
    indices = [int(path.stem.removeprefix("digit-")) for path in images(folder)]
    assert sorted(indices) == list(range(len(targets))) == list(range(1797))
    for path, index in zip(images(folder), indices, strict=True):
        assert path.parent.name == str(targets[index])


def test_every_file_is_a_small_colour_png(folder: Path) -> None:
    for path in images(folder):
        with Image.open(path) as picture:
            assert (picture.format, picture.mode, picture.size) == ("PNG", "RGB", (32, 32))


def test_domains_and_classes_are_balanced(folder: Path) -> None:
    per_domain = Counter(path.parent.parent.name for path in images(folder))
    assert max(per_domain.values()) - min(per_domain.values()) <= 3
    targets = load_digits().target
    per_cell = Counter(zip(deal_domains(targets), targets.tolist(), strict=True))
    for label in range(10):
        counts = [per_cell[domain, label] for domain in DOMAINS]
        assert max(counts) - min(counts) <= 1


def test_a_part_has_as_many_of_each_class_and_domain(folder: Path, tmp_path: Path) -> None:
    part = write_digits(tmp_path / "part", per_class=2)
    classes = [each for domain in part.iterdir() for each in domain.iterdir()]
    assert len(classes) == 60
    assert {len(list(each.iterdir())) for each in classes} == {2}
    for path in part.rglob("*.png"):
        assert path.read_bytes() == (folder / path.relative_to(part)).read_bytes()


def test_two_calls_give_the_same_bytes_and_leave_other_files_alone(
    folder: Path, tmp_path: Path
) -> None:
    names = [path.relative_to(folder) for path in images(folder)]
    (tmp_path / names[0]).parent.mkdir(parents=True)
    (tmp_path / names[0]).write_text("left over from a broken run")
    (tmp_path / "notes.txt").write_text("mine")
    assert write_digits(str(tmp_path)) == tmp_path
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert names == [path.relative_to(tmp_path) for path in images(tmp_path)]
    for name in names:
        assert (folder / name).read_bytes() == (tmp_path / name).read_bytes(), name


def test_domains_differ_more_than_their_samples(folder: Path) -> None:
    """Mean images differ more between domains than between two halves of a domain."""
    means, spread = {}, []
    for domain in DOMAINS:
        stack = np.stack(
            [np.asarray(Image.open(p), float) for p in (folder / domain).rglob("*.png")]
        )
        means[domain] = stack.mean(axis=0)
        spread.append(np.abs(stack[::2].mean(axis=0) - stack[1::2].mean(axis=0)).mean())
    gaps = {
        (one, other): np.abs(means[one] - means[other]).mean()
        for one in DOMAINS
        for other in DOMAINS
        if one < other
    }
    assert min(gaps.values()) > 1.3 * max(spread), gaps


def test_importing_the_demo_loads_nothing_heavy() -> None:
    check = "import sys, oodzoo.demo; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    heavy = {"numpy", "scipy", "sklearn", "PIL", "onnxruntime", "torch"}
    assert not heavy & set(done.stdout.split())
