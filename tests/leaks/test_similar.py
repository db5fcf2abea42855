"""Near-duplicates of a store: by features and pixels, in words and as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageFilter, ImageOps
from tests.leaks.data import Planted, extract_copies, planted
from tests.oracles import leaks as oracle

from oodzoo.data.files import ImageFile, LocalFile
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.leaks.similar import (
    MOST,
    SIDE,
    NearDuplicates,
    Pair,
    Pairs,
    correlation,
    similar_images,
    thumbnails,
)


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


@pytest.mark.parametrize(("seed", "noise"), [(0, 0.15), (1, 0.6)])
def test_pairs_are_those_of_a_literal_double_loop(tmp_path: Path, seed: int, noise: float) -> None:
    drawn = planted(seed, noise=noise)
    found = similar_images(drawn.store(tmp_path))
    require_same(found, expected(drawn))
    similar = oracle.similarities(list(drawn.models.values()))
    assert found.threshold == pytest.approx(oracle.threshold(similar, drawn.domains), abs=1e-4)
    assert found.scope == "all"
    assert (found.images, found.compared) == (120, 1)
    order = np.random.default_rng(0).permutation(120)  # which does not matter
    other = similar_images(drawn.store(tmp_path / "b", order))
    assert found.across.counts == other.across.counts
    require_same(other, places(found))
    if noise == 0.15:
        assert places(found).keys() == set(drawn.copies)
        assert {pair.evidence for pair in found.across.worst} == {"probable"}


@pytest.mark.parametrize("seed", range(2))
def test_in_a_domain_of_images_that_are_alike_only_closer_ones_are_found(
    tmp_path: Path, seed: int
) -> None:
    drawn = planted(seed, alike=0.6)
    found = similar_images(drawn.store(tmp_path))
    require_same(found, expected(drawn))
    similar = oracle.similarities(list(drawn.models.values()))
    assert sum(similar[at, at + 1] > found.threshold for at in range(8, 39, 2)) > 10
    assert places(found).keys() == set(drawn.copies)


def test_different_labels_and_groups(tmp_path: Path) -> None:
    """Images of one group are left out, but for a group in two domains, which is a leak itself."""
    drawn = planted()
    for at in (2, 7, 0, 40):
        drawn.groups[at] = "same"
    drawn.labels[0], drawn.labels[40] = "a", "b"
    drawn.labels[1], drawn.labels[83] = "a", "a"
    found = similar_images(drawn.store(tmp_path))
    require_same(found, expected(drawn))
    assert (2, 7) not in places(found)
    assert (0, 40) in places(found)
    assert [pair.labels_differ for pair in found.across.worst].count(True) == 1
    assert found.across.labels_differ == 1
    of_a_class = similar_images(drawn.store(tmp_path), pairs="class")
    assert (0, 40) not in places(of_a_class)
    assert (1, 83) in places(of_a_class)
    assert of_a_class.scope == "class"
    assert of_a_class.compared < 0.6
    part = similar_images(drawn.store(tmp_path), budget=300 * 100)
    assert part.scope == "part"
    assert 0 < part.compared <= 100 / 7140


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


def test_other_pixels_refute_similar_features(store: FeatureStore, copied: Path) -> None:
    """Across domains they must differ clearly; within a domain they must be the same."""
    files = files_of(store, copied)
    whole = similar_images(store, files=files)
    (pair,) = (p for p in whole.across.worst if "marker/1/again.jpg" in p.paths)
    (within,) = whole.within.worst
    assert set(within.paths) == {"paper/0/first.jpg", "paper/0/second.jpg"}
    pixels = Image.fromarray(np.random.default_rng(0).integers(0, 256, (32, 32, 3), np.uint8))
    pixels.save(copied / "noise.png")
    first = Image.open(copied / "data/paper/0/first.jpg").convert("RGB")
    Image.blend(first, pixels.resize(first.size), 0.5).save(copied / "changed.png")

    def replaced(path: str, name: str) -> NearDuplicates:
        domain = path.partition("/")[0]
        image = store.images(domain)[store.paths(domain).index(path)]
        return similar_images(store, files=files | {image: LocalFile(str(copied / name))})

    refuted = replaced("marker/1/again.jpg", "noise.png")
    assert pair.paths not in [p.paths for p in refuted.across.worst]
    # an image that cannot be read refutes nothing
    unread = replaced("marker/1/again.jpg", "none.png")
    (same,) = (p for p in unread.across.worst if p.paths == pair.paths)
    assert (same.correlation, same.evidence) == (None, "probable")
    assert not len(replaced("paper/0/second.jpg", "changed.png").within)


def picture(seed: int, size: tuple[int, int] = (120, 90)) -> Image.Image:
    """A smooth picture of random blobs."""
    pixels = np.random.default_rng(seed).integers(0, 256, (9, 12, 3), np.uint8)
    return Image.fromarray(pixels).resize(size, Image.Resampling.BICUBIC)


@pytest.mark.parametrize("seed", range(3))
def test_correlation_is_the_best_of_all_windows(seed: int) -> None:
    first, second = thumbnails(picture(seed)), thumbnails(picture(seed + 10))
    found = correlation(first, second)
    assert found == pytest.approx(oracle.correlation(first, second, SIDE), abs=1e-4)
    assert found == pytest.approx(correlation(second, first))


CHANGES: dict[str, Callable[[Image.Image], Image.Image]] = {
    "smaller": lambda image: image.resize((60, 45)),
    "mirrored": ImageOps.mirror,
    "darker": lambda image: ImageEnhance.Brightness(image).enhance(0.7),
    "grey": lambda image: image.convert("L").convert("RGB"),
    "cropped": lambda image: image.crop((8, 2, 116, 85)),
    "with a border": lambda image: ImageOps.expand(image, 4, "white"),
    "blurred": lambda image: image.filter(ImageFilter.GaussianBlur(1)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_images_correlate(change: str) -> None:
    for seed in range(2):
        image = picture(seed)
        assert correlation(thumbnails(image), thumbnails(CHANGES[change](image))) > 0.93
        assert correlation(thumbnails(image), thumbnails(picture(seed + 100))) < 0.6
    flat = thumbnails(Image.new("RGB", (40, 40), "white"))
    assert correlation(flat, thumbnails(picture(0))) == correlation(flat, flat) == 0


def pair(similarity: float, correlation: float | None = None, **changed: object) -> Pair:
    fields = {
        "paths": ("a.png", "b.png"),
        "domains": ("ink", "oil"),
        "labels": ("cat", "cat"),
        "similarity": similarity,
        "correlation": correlation,
    }
    return Pair(**(fields | changed))  # type: ignore[arg-type]


def result(across: list[Pair], within: list[Pair], scope: str = "all") -> NearDuplicates:
    return NearDuplicates(Pairs.of(across), Pairs.of(within), 1000, ("m", "n"), scope, 0.125, 0.35)


def test_pairs_are_sorted_by_evidence_and_similarity() -> None:
    for found, evidence in (
        (pair(0.5), "probable"),
        (pair(0.5, 0.9), "probable"),
        (pair(0.3, 0.99), "same pixels"),
        (pair(1.0, identical=True), "identical"),
    ):
        assert found.evidence == evidence
        assert not found.labels_differ
    assert pair(0.5, labels=("cat", "dog")).labels_differ
    assert not pair(0.5, labels=("cat", None)).labels_differ
    assert pair(0.5, paths=("a.png", "a.png")).keys == ("ink: a.png", "oil: a.png")
    many = Pairs.of([pair(at / 1000) for at in range(MOST + 50)])
    assert (len(many.worst), len(many)) == (MOST, MOST + 50)
    given = [pair(0.9), pair(0.3, 0.99), pair(0.95), pair(1.0, identical=True), pair(0.6, 1.0)]
    pairs = Pairs.of(given, not_listed=7)
    assert [p.similarity for p in pairs.worst] == [1.0, 0.6, 0.3, 0.95, 0.9]
    assert pairs.counts == {"identical": 1, "same pixels": 2, "probable": 9}
    assert len(pairs) == 12
    evidence = "1 identical, 2 with nearly the same pixels, 9 probable"
    assert str(pairs) == f"12 pairs of near-duplicate images ({evidence})"


def test_results_in_words_and_json() -> None:
    found = result([pair(0.9), pair(0.8, labels=("cat", "dog"))], [pair(0.7)])
    leak, within, labels = found.problems
    assert "leak between domains: 2 pairs" in leak
    assert "remove one image of each pair" in leak
    assert "1 pair of near-duplicate images" in within
    assert "the same group" in within
    assert "1 pair of near-duplicate images with different labels" in labels
    assert not result([], []).problems
    for scope, expected in {
        "all": "All pairs of 1,000 images were compared by features of 2 models.",
        "class": "Only pairs with the same label (12.5% of all pairs of 1,000 images)",
        "part": "Only a sample of the pairs with the same label (0.12 of all",
    }.items():
        assert result([], [], scope).extent.startswith(expected)
    found = result([pair(0.9, 0.98, labels=("cat", None))], [pair(0.7)])
    document = json.loads(json.dumps(found.to_dict()))
    assert document["across"]["worst"][0]["evidence"] == "same pixels"
    assert NearDuplicates.from_dict(document) == found
    assert found.metrics == {"pairs_across_domains": 1, "pairs_within_domains": 1}
    assert repr(found).startswith("NearDuplicates(1 pair across domains, 1 within; ")
