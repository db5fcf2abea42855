from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.leaks.data import Planted, extract_copies, planted
from tests.oracles import leaks as oracle

from oodzoo.data.files import ImageFile, LocalFile
from oodzoo.leaks.pairs import NearDuplicates
from oodzoo.leaks.similar import similar_images
from oodzoo.store.feature_store import FeatureStore


def places(found: NearDuplicates) -> dict[tuple[int, int], float]:
    """The similarity of each pair, by the numbers in the names of its images."""
    result = {}
    for pair in (*found.across.worst, *found.within.worst):
        first, second = sorted(int(Path(path).stem) for path in pair.paths)
        result[first, second] = pair.similarity
    return result


def require_same(found: NearDuplicates, wanted: dict[tuple[int, int], float]) -> None:
    assert places(found) == {
        pair: pytest.approx(similarity, abs=2e-4) for pair, similarity in wanted.items()
    }


def expected(drawn: Planted) -> dict[tuple[int, int], float]:
    groups = [group or None for group in drawn.groups]
    return oracle.near_duplicates(list(drawn.models.values()), drawn.domains, groups)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("noise", [0.15, 0.6])
def test_pairs_are_those_of_a_literal_double_loop(tmp_path: Path, seed: int, noise: float) -> None:
    drawn = planted(seed, noise=noise)
    found = similar_images(drawn.store(tmp_path))
    require_same(found, expected(drawn))
    similar = oracle.similarities(list(drawn.models.values()))
    assert found.threshold == pytest.approx(oracle.threshold(similar, drawn.domains), abs=1e-4)
    assert found.scope == "all"
    assert found.images == 120
    assert found.compared == 1


def test_planted_copies_are_found_and_nothing_else(tmp_path: Path) -> None:
    drawn = planted()
    found = similar_images(drawn.store(tmp_path))
    assert places(found).keys() == set(drawn.copies)
    assert len(found.across) == len(found.within) == 2
    pair = found.across.worst[0]
    assert pair.evidence == "probable"
    assert pair.domains[0] != pair.domains[1]
    assert not found.within.worst[0].identical


@pytest.mark.parametrize("seed", range(3))
def test_in_a_domain_of_images_that_are_alike_only_closer_ones_are_found(
    tmp_path: Path, seed: int
) -> None:
    drawn = planted(seed, alike=0.6)
    found = similar_images(drawn.store(tmp_path))
    require_same(found, expected(drawn))
    similar = oracle.similarities(list(drawn.models.values()))
    assert sum(similar[at, at + 1] > found.threshold for at in range(8, 39, 2)) > 10
    assert places(found).keys() == set(drawn.copies)


def test_the_order_of_images_does_not_matter(tmp_path: Path) -> None:
    drawn = planted(1, noise=0.5)
    order = np.random.default_rng(0).permutation(len(drawn.domains))
    one = similar_images(drawn.store(tmp_path / "a"))
    other = similar_images(drawn.store(tmp_path / "b", order))
    assert one.across.counts == other.across.counts
    require_same(other, places(one))


def test_images_of_one_group_are_left_out(tmp_path: Path) -> None:
    drawn = planted()
    for at in (2, 7, 0, 40):
        drawn.groups[at] = "same"
    found = similar_images(drawn.store(tmp_path))
    require_same(found, expected(drawn))
    assert (2, 7) not in places(found)
    assert (0, 40) in places(found)  # a group in two domains is a leak itself


def test_different_labels_are_counted(tmp_path: Path) -> None:
    drawn = planted()
    drawn.labels[0], drawn.labels[40] = "a", "b"
    drawn.labels[1], drawn.labels[83] = "a", "a"
    found = similar_images(drawn.store(tmp_path))
    assert [pair.labels_differ for pair in found.across.worst].count(True) == 1
    assert found.across.labels_differ == 1
    of_a_class = similar_images(drawn.store(tmp_path), pairs="class")
    assert (0, 40) not in places(of_a_class)
    assert (1, 83) in places(of_a_class)
    assert of_a_class.scope == "class"
    assert of_a_class.compared < 0.6


def test_a_budget_limits_what_is_compared(tmp_path: Path) -> None:
    found = similar_images(planted().store(tmp_path), budget=300 * 100)
    assert found.scope == "part"
    assert 0 < found.compared <= 100 / 7140
    assert "Only a sample" in found.extent


def test_useless_features_find_nothing(tmp_path: Path) -> None:
    drawn = planted()
    rng = np.random.default_rng(0)
    drawn.models = {"two": rng.integers(0, 2, (120, 2)).astype(float)}
    found = similar_images(drawn.store(tmp_path))
    assert found.threshold > 0.99
    drawn.models["constant"] = np.ones((120, 3))
    assert similar_images(drawn.store(tmp_path / "b")).images == 120


def test_useless_models_are_not_used_beside_others(tmp_path: Path) -> None:
    drawn = planted()
    plain = similar_images(drawn.store(tmp_path / "a"))
    drawn.models["two"] = np.random.default_rng(0).integers(0, 2, (120, 2)).astype(float)
    found = similar_images(drawn.store(tmp_path / "b"))
    assert found.models == plain.models
    assert "two" not in found.models
    require_same(found, places(plain))


# --- real images and models -------------------------------------------------------------------


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return extract_copies(tmp_path_factory.mktemp("copied"))


@pytest.fixture(scope="module")
def store(copied: Path) -> FeatureStore:
    return FeatureStore(copied / "store")


def files_of(store: FeatureStore, copied: Path) -> dict[str, ImageFile]:
    folders = dict.fromkeys(store.domains, copied / "data") | {"target": copied / "target"}
    return {
        image: LocalFile(str(folders[domain] / path))
        for domain in folders
        for image, path in zip(store.images(domain), store.paths(domain), strict=True)
    }


def test_copies_of_real_images_are_found(store: FeatureStore, copied: Path) -> None:
    found = similar_images(store, files=files_of(store, copied))
    evidence = {
        frozenset(Path(path).name for path in pair.paths): pair.evidence
        for pair in found.across.worst
    }
    first = sorted(path.name for path in (copied / "data" / "chalk" / "1").glob("*.png"))
    assert evidence[frozenset((first[0], "again.jpg"))] == "same pixels"
    assert evidence[frozenset((first[1], "exact.png"))] == "identical"
    assert evidence[frozenset((first[2], "other.jpg"))] == "same pixels"
    assert found.across.worst[0].evidence == "identical"
    assert list(found.across.counts) == [
        k for k in ("identical", "same pixels", "probable") if k in found.across.counts
    ]
    (target,) = (p for p in found.across.worst if "other.jpg" in p.paths)
    assert target.labels == ("1", None)
    assert not target.labels_differ


def test_without_files_pairs_are_probable(store: FeatureStore) -> None:
    found = similar_images(store)
    assert set(found.across.counts) <= {"identical", "probable"}
    assert all(pair.correlation is None for pair in found.across.worst)


def test_only_images_with_files_are_compared(store: FeatureStore, copied: Path) -> None:
    files = files_of(store, copied)
    some = {image: files[image] for image in store.images("chalk")}
    found = similar_images(store, files=some)
    assert found.images == len(store.paths("chalk")) + 1  # one is in another domain, too
    assert similar_images(store, files={}).images == 0


def test_other_pixels_refute_similar_features(store: FeatureStore, copied: Path) -> None:
    files = files_of(store, copied)
    whole = similar_images(store, files=files)
    (pair,) = (p for p in whole.across.worst if "marker/1/again.jpg" in p.paths)
    noise = copied / "noise.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (32, 32, 3), np.uint8)).save(noise)
    image = store.images("marker")[store.paths("marker").index("marker/1/again.jpg")]
    refuted = similar_images(store, files=files | {image: LocalFile(str(noise))})
    assert pair.paths not in [p.paths for p in refuted.across.worst]
    # an image that cannot be read refutes nothing
    unread = similar_images(store, files=files | {image: LocalFile(str(copied / "none.png"))})
    (same,) = (p for p in unread.across.worst if p.paths == pair.paths)
    assert same.correlation is None
    assert same.evidence == "probable"


def test_within_a_domain_the_same_pixels_are_needed(store: FeatureStore, copied: Path) -> None:
    found = similar_images(store, files=files_of(store, copied))
    assert [set(p.paths) for p in found.within.worst] == [
        {"paper/0/first.jpg", "paper/0/second.jpg"}
    ]
    image = store.images("paper")[store.paths("paper").index("paper/0/second.jpg")]
    changed = copied / "changed.png"
    first = Image.open(copied / "data/paper/0/first.jpg").convert("RGB")
    pixels = np.random.default_rng(0).integers(0, 256, (first.height, first.width, 3), np.uint8)
    Image.blend(first, Image.fromarray(pixels), 0.5).save(changed)
    files = files_of(store, copied) | {image: LocalFile(str(changed))}
    assert not len(similar_images(store, files=files).within)
