"""Moments: what they are, in any parts, storage and offset, and what cannot be added up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from oodzoo.core.backend import Backend, backend, to_numpy
from oodzoo.core.errors import InputError
from oodzoo.linear import moments as module
from oodzoo.linear.moments import Moments, merge

FIELDS = ("feature_sum", "gram", "products", "label_sum", "label_squares", "label_scatter")
Sample = tuple[NDArray[np.float64], NDArray[np.int64]]


@pytest.fixture
def sample() -> Sample:
    rng = np.random.default_rng(0)
    return rng.normal(1, 2, size=(50, 7)), rng.integers(0, 3, size=50)


def assert_same(one: Moments, other: Moments, rtol: float = 1e-12) -> None:
    assert one.n == other.n
    for name in FIELDS:
        np.testing.assert_allclose(
            to_numpy(getattr(one, name)), to_numpy(getattr(other, name)), rtol=rtol, atol=1e-11
        )


def test_are_what_their_names_say(sample: Sample, device: str | None) -> None:
    Phi, y = sample
    Y = np.eye(4)[y]
    moments = Moments.of(Phi, y, n_classes=4, device=device)
    assert device is None or moments.gram.device.type == device
    here = moments.to(None)
    assert_same(here, moments)
    assert (here.n, here.n_features, here.n_classes) == (50, 7, 4)
    for found, expected in (
        (here.feature_sum, Phi.sum(0)),
        (here.gram, Phi.T @ Phi),
        (here.products, Phi.T @ Y),
        (here.label_sum, Y.sum(0)),
        (here.label_squares, (Y**2).sum(0)),
        (here.label_scatter, ((Y - Y.mean(0)) ** 2).sum(0)),
        (here.mean, Phi.mean(0)),
        (here.covariance, np.cov(Phi.T, ddof=0)),
    ):
        np.testing.assert_allclose(found, expected, atol=1e-12)


def test_blocks_and_storage(
    sample: Sample, tmp_path: Path, device: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shard is never converted whole, whatever its type, and sums are in float64."""
    Phi, y = sample
    for dtype in ("float16", "float32", ">f4", "uint8", "int32"):
        # in float32 the sum of 1/3 over many samples goes wrong in the fifth digit
        third, zeros = np.full((3000, 2), 1 / 3).astype(dtype), np.zeros(3000, np.uint8)
        moments = Moments.of(third, zeros, 1, device=device)
        assert_same(moments, Moments.of(third.astype(np.float64), zeros, 1))
    np.save(tmp_path / "f.npy", Phi.astype(np.float32))
    mapped = np.load(tmp_path / "f.npy", mmap_mode="r")
    whole = Moments.of(Phi.astype(np.float32), y, 3)
    assert_same(Moments.of(mapped, y, 3, device=device), whole)
    if device is not None:
        torch = pytest.importorskip("torch")
        for kind in (torch.float64, torch.bfloat16):
            tensor = torch.asarray(Phi).to(kind)
            expected = Moments.of(tensor.double().numpy(), y, 3)
            assert_same(Moments.of(tensor, torch.asarray(y), 3, device=device), expected)
            assert_same(Moments.of(tensor, y, 3), expected)
    monkeypatch.setattr(module, "_MIN_ROWS", 10)
    monkeypatch.setattr(Backend, "block_bytes", 0)
    ones, on = np.ones((25, 2), np.float32), backend(device)
    pieces = [f for f, _ in module.blocks([(ones, np.zeros(25, int))], 1, on, context="")]
    assert [p.shape[0] for p in pieces] == [10, 10, 5]
    assert all(to_numpy(p).dtype == np.float64 for p in pieces)
    assert_same(Moments.of(mapped, y, 3, device=device), whole)


def offset(ratio: float, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    spread = rng.normal(size=(60, 5))
    return spread + ratio * np.array([1.0, -2.0, 0.5, 3.0, 0.0]), rng.integers(0, 3, 60), spread


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("ratio", [1.0, 1e4, 1e6, 1e8])
def test_moments_about_a_mean_survive_a_large_offset(
    ratio: float, parts: int, device: str | None, tmp_path: Path
) -> None:
    """About their own mean, and about that of other samples that have the same offset."""
    Phi, y, spread = offset(ratio)
    pieces, Y = np.array_split(np.arange(60), parts), np.eye(3)[y]
    moments = merge(Moments.of(Phi[p], y[p], 3, device=device) for p in pieces)
    tolerance = 60 * 1e-14 * max(ratio, 1e3)
    np.testing.assert_allclose(to_numpy(moments.gram), Phi.T @ Phi, rtol=1e-12, atol=1e-10)
    np.testing.assert_allclose(
        to_numpy(moments.covariance), np.cov(spread.T, ddof=0), atol=tolerance / 60
    )
    centred = moments.centred
    assert (centred is None) == (ratio == 1)
    if centred is not None:
        exact = spread - spread.mean(axis=0)
        np.testing.assert_allclose(to_numpy(centred.gram), exact.T @ exact, atol=tolerance)
        np.testing.assert_allclose(to_numpy(centred.products), exact.T @ Y, atol=tolerance)
    float64 = backend(device).float64
    other, _, other_spread = offset(ratio, seed=1)
    mean, Psi = float64(other.mean(axis=0)), spread - other_spread.mean(axis=0)
    moved, expected = moments.about(mean), Moments.of(Psi, y, 3)
    for name in FIELDS:
        found = to_numpy(getattr(moved, name))
        np.testing.assert_allclose(found, getattr(expected, name), atol=1e-11 + 3e-12 * ratio)
    weights = np.random.default_rng(2).normal(size=(5, 4))
    products = moments.products_about(mean, float64(weights))
    literal = (Psi.T @ (Psi @ weights), Psi.sum(axis=0), Psi.T @ Y)
    for one, two in zip(products, literal, strict=True):
        np.testing.assert_allclose(to_numpy(one), two, atol=1e-11 + 3e-12 * ratio)
    np.savez(tmp_path / "m.npz", **moments.to_dict())  # type: ignore[arg-type]
    with np.load(tmp_path / "m.npz") as arrays:
        restored = Moments.from_dict(arrays)
    assert_same(restored, moments, rtol=0)
    if centred is not None:
        assert restored.centred is not None
        assert np.array_equal(restored.centred.gram, to_numpy(centred.gram))


ONES, ZEROS = np.ones((3, 2)), np.zeros(3, int)


@pytest.mark.parametrize(
    ("Phi", "y", "said"),
    [
        (ONES, np.zeros(3), "labels must be integers, got float64"),
        (ONES.astype(complex), ZEROS, "real numbers, got complex128"),
        (ONES, np.zeros(4, int), r"got \(3, 2\) and \(4,\)"),
        (np.ones(3), ZEROS, r"got \(3,\) and \(3,\)"),
        (np.ones((0, 2)), np.zeros(0, int), "no samples"),
        (np.ones((3, 0)), ZEROS, "samples have no features"),
        (ONES, np.array([0, 0, -1]), "label -1 of sample 2 is not in the range 0 to 0 of 1"),
        (ONES, np.array([0, 1, 0]), "label 1 of sample 1 is not in the range 0 to 0 of 1"),
        (ONES, np.array([[0.0], [np.nan], [1.0]]), "the label of sample 1 is missing"),
        (1e300 * ONES, ZEROS, "^model 'a', shard 0: the largest value is 1e[+]300; rescale"),
        (1e90 * ONES, ZEROS, "^model 'a', shard 0: the largest value is 1e[+]90; rescale"),
        (1e-160 * ONES, ZEROS, "^model 'a', shard 0: the largest value is 1e-160; rescale"),
    ],
)
def test_what_has_no_moments(Phi: Any, y: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        Moments.of(Phi, y, 1, context="model 'a'")


def test_shards_that_cannot_be_added(sample: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    Phi, y = sample
    for size in (1e38, 1e-38):  # float32 is within the limits
        Moments.of(np.full((4, 2), size, np.float32), np.zeros(4, np.int64), 1)
    with pytest.raises(InputError, match="shard 1: 6 features, but earlier shards have 7"):
        Moments.stream([(Phi, y), (Phi[:, :6], y)], 3)
    with pytest.raises(InputError, match="7 features and 3 classes cannot be added"):
        Moments.of(Phi, y, 3) + Moments.of(Phi, y, 4)
    monkeypatch.setattr(module, "_MIN_ROWS", 8)  # in blocks of eight rows
    monkeypatch.setattr(Backend, "block_bytes", 0)
    for value, said in ((np.nan, "NaN"), (np.inf, "infinite")):
        Phi[17, 3] = value
        words = f"domain 'art', shard 1: feature 3 of sample 17 is {said}"
        with pytest.raises(InputError, match=words):
            Moments.stream([(Phi[:5], y[:5]), (Phi, y)], 3, context="domain 'art'")
