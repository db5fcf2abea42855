"""JPEG images decoded at a reduced scale: which one, what it shows, and never mixed in a store."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from tests.features.data import Extract, Zoo
from tests.fixtures import draw_digits

import oodzoo
from oodzoo.core.errors import InputError
from oodzoo.data.dataset import ImageDomains
from oodzoo.data.files import UnreadableImageError
from oodzoo.data.pixels import decode, decode_scaled, decoding
from oodzoo.data.sources.folder import UnlabelledImages
from oodzoo.extraction.engines import WorkPart
from oodzoo.extraction.extract import add_unlabelled, extract_part
from oodzoo.extraction.outcome import ExtractionConfig
from oodzoo.predictor.chunks import iter_features
from oodzoo.store.feature_store import FeatureStore
from oodzoo.zoo.preprocessing import Fit, Geometry

COVER = Geometry((256, 256), (224, 224), "cover", decode="reduced")
SMALL = Geometry((32, 32), (32, 32), decode="reduced")


def drawn(width: int, height: int) -> Image.Image:
    """A photo: coarse structure, scaled up."""
    rng = np.random.default_rng(0)
    coarse = Image.fromarray(rng.integers(0, 256, (12, 16, 3), np.uint8))
    return coarse.resize((width, height), Image.Resampling.BICUBIC)


def jpeg(image: Image.Image, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, "JPEG", quality=92, **options)
    return file.getvalue()


def reduced(content: bytes, geometry: Geometry) -> Image.Image:
    with decoding(content, geometry.reduction) as image:
        return image


# --- which scale ----------------------------------------------------------------------------------

SIDES = st.integers(1, 12_000)


@given(
    SIDES, SIDES, st.integers(1, 600), st.integers(1, 600),
    st.sampled_from(["squash", "cover", "contain"]),
)  # fmt: skip
def test_the_smallest_scale_with_twice_the_size(
    width: int, height: int, high: int, wide: int, fit: Fit
) -> None:
    geometry = Geometry((high, wide), (1, 1), fit, decode="reduced")
    found = geometry.reduction(width, height)
    resized = geometry._size(width, height)
    enough = [
        scale
        for scale in (1, 2, 4, 8)
        if all(n / scale >= 2 * side for n, side in zip((width, height), resized, strict=True))
    ]
    assert found == max(enough, default=1)
    assert Geometry((high, wide), (1, 1), fit).reduction(width, height) == 1


@pytest.mark.parametrize(
    ("size", "scale"),
    [
        *(((500, 375), 1), ((1023, 1023), 1), ((1024, 1024), 2), ((4032, 3024), 4)),
        *(((8000, 6000), 8), ((2049, 2050), 4), ((4001, 2251), 4), ((2048, 1365), 2)),
    ],
)
def test_photos(size: tuple[int, int], scale: int) -> None:
    """Of the usual size, and of 12 and 48 megapixels."""
    image = drawn(*size)
    content = jpeg(image)
    found = reduced(content, COVER)
    assert found.size == tuple(-(-side // scale) for side in size)
    whole = decode(content)
    if scale == 1:
        assert found.tobytes() == whole.tobytes()
    pixels, expected = (COVER.apply(each).astype(float) for each in (found, whole))
    assert abs(pixels - expected).max() <= 4
    turned = reduced(jpeg(image.transpose(Image.Transpose.ROTATE_90)), COVER)
    assert turned.size == found.size[::-1]


def test_images_below_twice_the_size_are_bit_for_bit_the_same() -> None:
    for size in ((127, 127), (127, 4000), (4000, 127), (40, 30)):
        content = jpeg(drawn(*size))
        assert reduced(content, SMALL).tobytes() == decode(content).tobytes()


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "TIFF", "BMP"])
def test_other_formats_are_decoded_at_full_size(kind: str) -> None:
    file = io.BytesIO()
    drawn(400, 300).save(file, kind)
    assert reduced(file.getvalue(), SMALL).tobytes() == decode(file.getvalue()).tobytes()


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
def test_orientation_and_colours_are_those_of_the_whole_image(mode: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    content = jpeg(drawn(640, 400).convert(mode), exif=exif, progressive=orientation % 2 == 0)
    found, whole = reduced(content, SMALL), decode(content)
    assert found.size == (whole.width // 4, whole.height // 4)
    expected = np.asarray(whole.reduce(4)).astype(float)
    assert abs(np.asarray(found) - expected).max() <= 6


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("fit", ["squash", "cover", "contain"])
def test_sides_that_the_scale_does_not_divide(fit: Fit, orientation: int) -> None:
    """The reduced image has a part of a pixel more, on the side that was below or at the right."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    stripes = np.zeros((257, 129, 3), np.uint8)
    stripes[-30:] = stripes[:, -30:] = 255
    content = jpeg(Image.fromarray(stripes).resize((129 * 5, 257 * 5)), exif=exif)
    geometry = Geometry((35, 35), (35, 35), fit, decode="reduced")
    found = reduced(content, geometry)
    assert (found.width * found.height) == -(-645 // 8) * -(-1285 // 8)
    off = geometry.apply(found).astype(float) - geometry.apply(decode(content))
    assert abs(off).mean() < 0.7


def test_several_sizes_are_those_decoded_alone() -> None:
    content = jpeg(drawn(1200, 900))
    sizes = [(32, 32), (100, 100), (33, 33), (250, 250), (32, 32)]
    geometries = [Geometry(size, size, decode="reduced") for size in sizes]
    geometries.append(Geometry((32, 32), (32, 32)))
    found: dict[Any, Any] = {}
    for image, positions in decode_scaled(content, [each.reduction for each in geometries]):
        found |= dict.fromkeys(positions, (image.size, image.tobytes()))
    assert sorted(found) == list(range(6))
    for at, geometry in enumerate(geometries):
        alone = reduced(content, geometry)
        assert found[at] == (alone.size, alone.tobytes())
    assert {size for size, _ in found.values()} == {(150, 113), (300, 225), (1200, 900)}


def test_damaged_files_stay_unreadable() -> None:
    content = jpeg(drawn(640, 480))
    for damaged in (content[: len(content) // 2], content[:200], b"\xff\xd8\xff"):
        with pytest.raises(UnreadableImageError):
            reduced(damaged, SMALL)


# --- in a store -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Digits as JPEG images of 600 x 400 pixels."""
    root = tmp_path_factory.mktemp("photos")
    for path in draw_digits(root, 3).rglob("*.png"):
        with Image.open(path) as image:
            large = image.convert("RGB").resize((600, 400), Image.Resampling.LANCZOS)
        large.save(path.with_suffix(".jpg"), quality=92)
        path.unlink()
    return root


def features(store: FeatureStore) -> dict[tuple[str, str], Any]:
    return {(m, d): store.features(m, d) for m in store.models for d in store.domains}


def test_recorded_with_the_features(photos: Path, zoo: Zoo, tmp_path: Path) -> None:
    whole = oodzoo.extract(photos, zoo(), tmp_path / "full", device="cpu", decode="full")
    store = oodzoo.extract(photos, zoo(), tmp_path / "reduced", device="cpu")
    for name in store.models:
        assert (store[name].decode, whole[name].decode) == ("reduced", "full")
        assert store[name].identity != whole[name].identity
    # features are those of images that were reduced by hand
    by_hand = tmp_path / "by hand"
    for path in photos.rglob("*.jpg"):
        to = by_hand / path.relative_to(photos).with_suffix(".png")
        to.parent.mkdir(parents=True, exist_ok=True)
        with Image.open(path) as image:
            image.draft(None, (150, 100))
            image.save(to)
    expected = features(oodzoo.extract(by_hand, zoo(), tmp_path / "s", device="cpu"))
    exact = features(whole)
    for key, found in features(store).items():
        np.testing.assert_array_equal(found, expected[key])
        assert not np.array_equal(found, exact[key])
        lengths = np.linalg.norm(found, axis=1) * np.linalg.norm(exact[key], axis=1)
        assert ((found * exact[key]).sum(axis=1) / lengths).min() > 0.99


def test_never_mixed_within_a_model(
    photos: Path, extract: Extract, zoo: Zoo, tmp_path: Path
) -> None:
    store, (first, second) = tmp_path / "store", zoo()
    extract(photos, [first], store, device="cpu", decode="full")
    before = features(FeatureStore(store))
    line = (
        rf"first error: model '{first.name}': the store has its features of images decoded at "
        r"full size, now a reduced scale; give --decode full \(decode='full'\), use another store, "
        "or remove the model with `oodzoo store rm"
    )
    with pytest.raises(InputError, match=line):
        extract(photos, [first], store, device="cpu")
    assert features(FeatureStore(store)).keys() == before.keys()
    done = extract(photos, [first, second], store, device="cpu")  # each model by itself
    assert list(done.failed) == [first.name]
    opened = FeatureStore(store)
    assert [opened[spec.name].decode for spec in (first, second)] == ["full", "reduced"]
    for key, kept in before.items():
        np.testing.assert_array_equal(features(opened)[key], kept)


def test_resumed_with_the_other_setting(photos: Path, zoo: Zoo, tmp_path: Path) -> None:
    """After half of the work, as after a killed process: a clear line, and nothing is lost."""
    path, data = tmp_path / "store", ImageDomains(photos)
    config = ExtractionConfig("cpu", decode="full")
    opened, _ = extract_part(data, zoo(), path, config, WorkPart(1, 2))
    assert opened is None
    with pytest.raises(InputError, match="the store has its features of images decoded at full"):
        oodzoo.extract(data, zoo(), path, device="cpu")
    found = oodzoo.extract(data, zoo(), path, device="cpu", decode="full")
    expected = oodzoo.extract(data, zoo(), tmp_path / "once", device="cpu", decode="full")
    assert found.fingerprint == expected.fingerprint


def test_unlabelled_images_are_decoded_as_the_others(
    photos: Path, zoo: Zoo, tmp_path: Path
) -> None:
    first, second = zoo()
    oodzoo.extract(photos, [first], tmp_path / "s", device="cpu", decode="full")
    oodzoo.extract(photos, [first, second], tmp_path / "t", device="cpu", decode="full")
    with pytest.warns(UserWarning, match="is left out: the store has its features of images"):
        store = oodzoo.extract(photos, [first, second], tmp_path / "s", device="cpu")
    images = UnlabelledImages(photos / "chalk" / "0")
    with pytest.raises(InputError, match="also in the"):
        add_unlabelled(store, images, device="cpu")
    other = tmp_path / "unseen"
    other.mkdir()
    for path in (photos / "chalk" / "0").iterdir():
        with Image.open(path) as image:
            image.save(other / path.name, quality=80)
    full = FeatureStore(tmp_path / "t")
    added, exact = (
        add_unlabelled(s, UnlabelledImages(other), device="cpu")[0] for s in (store, full)
    )
    pairs = {
        name: (added.features(name, "unseen"), exact.features(name, "unseen"))
        for name in (first.name, second.name)
    }
    np.testing.assert_array_equal(*pairs[first.name])
    assert not np.array_equal(*pairs[second.name])


def test_predictors_decode_as_their_features_were(photos: Path, zoo: Zoo, tmp_path: Path) -> None:
    found: dict[Any, Any] = {}
    for how in ("reduced", "full"):
        store = oodzoo.extract(photos, zoo(), tmp_path / how, device="cpu", decode=how)
        predictor = oodzoo.fit(store, choose="ensemble", top_k=2)
        predictor.save(tmp_path / f"{how} model")
        given = {
            model: np.concatenate([store.features(model, d) for d in store.domains])
            for model in store.models
        }
        expected = np.concatenate([given[m.name] for m in predictor.models], axis=1)
        files = [photos / path for domain in store.domains for path in store.paths(domain)]
        for each in (predictor, oodzoo.load(tmp_path / f"{how} model", device="cpu")):
            chunks = iter_features(files, each.loaded(), each.columns, 64)
            found[how] = np.concatenate([chunk.features for chunk in chunks])
            np.testing.assert_allclose(found[how], expected, rtol=1e-5, atol=1e-5)
    assert abs(found["reduced"] - found["full"]).max() > 1e-3
