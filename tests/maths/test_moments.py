from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.covariance import oas
from tests.oracles import scores as oracle

from oodzoo import moments as module
from oodzoo.backend import Backend, backend, to_numpy
from oodzoo.errors import InputError
from oodzoo.moments import Moments, merge, oas_shrinkage

FIELDS = ("feature_sum", "gram", "products", "label_sum")


def torch_or_skip() -> Any:
    return pytest.importorskip("torch", reason="PyTorch is not installed")


@pytest.fixture
def sample() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    rng = np.random.default_rng(0)
    return rng.normal(1, 2, size=(50, 7)), rng.integers(0, 3, size=50)


def assert_same(one: Moments, other: Moments, rtol: float = 1e-12) -> None:
    assert one.n == other.n
    for name in FIELDS:
        np.testing.assert_allclose(
            to_numpy(getattr(one, name)), to_numpy(getattr(other, name)), rtol=rtol, atol=1e-11
        )


def test_are_what_their_names_say(sample: Any) -> None:
    Phi, y = sample
    Y = np.eye(4)[y]
    moments = Moments.of(Phi, y, n_classes=4)
    assert (moments.n, moments.n_features, moments.n_classes) == (50, 7, 4)
    np.testing.assert_allclose(moments.feature_sum, Phi.sum(0))
    np.testing.assert_allclose(moments.gram, Phi.T @ Phi)
    np.testing.assert_allclose(moments.products, Phi.T @ Y)
    np.testing.assert_array_equal(moments.label_sum, Y.sum(0))
    np.testing.assert_allclose(moments.mean, Phi.mean(0))
    np.testing.assert_allclose(moments.covariance, np.cov(Phi.T, ddof=0), atol=1e-12)


def test_do_not_depend_on_the_block_size(sample: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Moments.of(sample[0], sample[1], 3)
    monkeypatch.setattr(module, "_MIN_ROWS", 4)
    monkeypatch.setattr(Backend, "block_bytes", 0)
    assert_same(Moments.of(sample[0], sample[1], 3), whole)


def test_a_shard_is_never_converted_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MIN_ROWS", 10)
    monkeypatch.setattr(Backend, "block_bytes", 0)
    Phi, y = np.ones((25, 2), np.float32), np.zeros(25, int)
    pieces = [f for f, _ in module.blocks([(Phi, y)], 1, backend(), context="")]
    assert [p.shape[0] for p in pieces] == [10, 10, 5]
    assert all(p.dtype == np.float64 for p in pieces)


@pytest.mark.parametrize("dtype", ["float16", "float32", ">f4", "uint8", "int32"])
def test_accumulate_in_float64_whatever_the_storage(dtype: str) -> None:
    # In float32 the sum of 1/3 over many samples goes wrong in the fifth digit.
    Phi = np.full((3000, 2), 1 / 3).astype(dtype)
    y = np.zeros(3000, dtype=np.uint8)
    expected = Moments.of(Phi.astype(np.float64), y, 1)
    moments = Moments.of(Phi, y, 1)
    assert moments.gram.dtype == np.float64
    assert_same(moments, expected)


def test_read_only_memory_maps(sample: Any, tmp_path: Path) -> None:
    Phi, y = sample
    np.save(tmp_path / "f.npy", Phi.astype(np.float32))
    mapped = np.load(tmp_path / "f.npy", mmap_mode="r")
    expected = Moments.of(Phi.astype(np.float32), y, 3)
    assert_same(Moments.of(mapped, y, 3), expected)
    torch_or_skip()
    assert_same(Moments.of(mapped, y, 3, device="cpu"), expected)


@pytest.mark.parametrize("storage", ["numpy", "torch", "bfloat16"])
def test_pytorch_agrees(sample: Any, storage: str) -> None:
    torch = torch_or_skip()
    Phi, y = sample
    features: Any = Phi
    expected = Phi
    if storage != "numpy":
        features = torch.asarray(Phi).to(torch.bfloat16 if storage == "bfloat16" else torch.float64)
        expected = features.double().numpy()
    moments = Moments.of(features, y, 3, device="cpu")
    assert str(moments.gram.device) == "cpu"
    assert_same(moments, Moments.of(expected, y, 3))
    assert_same(moments.to(None), moments)
    assert_same(Moments.of(features, torch.asarray(y), 3), moments)


@pytest.mark.parametrize(("n", "d"), [(40, 5), (20, 60)])
def test_shrinkage_agrees_with_scikit_learn_and_with_the_publication(n: int, d: int) -> None:
    X = np.random.default_rng(0).normal(size=(n, d)) * np.linspace(0.1, 2, d)
    covariance = np.cov(X.T, ddof=0)
    assert oas_shrinkage(covariance, n) == pytest.approx(oas(X)[1])
    assert oas_shrinkage(covariance, n, c=2 / d) == pytest.approx(
        oracle.oas_shrinkage(covariance, n)
    )
    assert oas_shrinkage(np.eye(d), n) == 1


# --- invalid input ----------------------------------------------------------------------------


@pytest.mark.parametrize(("value", "said"), [(np.nan, "NaN"), (np.inf, "infinite")])
def test_features_that_are_not_finite(
    sample: Any, value: float, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MIN_ROWS", 8)
    monkeypatch.setattr(Backend, "block_bytes", 0)
    Phi, y = sample
    Phi[17, 3] = value
    with pytest.raises(
        InputError, match=f"domain 'art', shard 1: feature 3 of sample 17 is {said}"
    ):
        Moments.stream([(Phi[:5], y[:5]), (Phi, y)], 3, context="domain 'art'")


@pytest.mark.parametrize("label", [-1, 3])
def test_labels_outside_the_classes(sample: Any, label: int) -> None:
    Phi, y = sample
    y[9] = label
    with pytest.raises(
        InputError, match=f"label {label} of sample 9 is not in the range 0 to 2 of 3"
    ):
        Moments.of(Phi, y, 3)


@pytest.mark.parametrize(
    ("Phi", "y", "said"),
    [
        (np.ones((3, 2)), np.zeros(3), "labels must be integers, got float64"),
        (np.ones((3, 2), complex), np.zeros(3, int), "real numbers, got complex128"),
        (np.ones((3, 2)), np.zeros(4, int), r"got \(3, 2\) and \(4,\)"),
        (np.ones(3), np.zeros(3, int), r"got \(3,\) and \(3,\)"),
        (np.ones((0, 2)), np.zeros(0, int), "no samples"),
        (np.ones((3, 0)), np.zeros(3, int), "samples have no features"),
    ],
)
def test_shapes_and_types(Phi: Any, y: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        Moments.of(Phi, y, 1)


def test_shards_that_differ(sample: Any) -> None:
    Phi, y = sample
    with pytest.raises(InputError, match="shard 1: 6 features, but earlier shards have 7"):
        Moments.stream([(Phi, y), (Phi[:, :6], y)], 3)
    with pytest.raises(InputError, match="7 features and 3 classes cannot be added"):
        Moments.of(Phi, y, 3) + Moments.of(Phi, y, 4)


def offset(ratio: float, n: int = 60, d: int = 5, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    spread = rng.normal(size=(n, d))
    return spread + ratio * np.array([1.0, -2.0, 0.5, 3.0, 0.0])[:d], rng.integers(0, 3, n), spread


@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize("parts", [1, 3])
def test_moments_about_the_mean_survive_a_large_offset(parts: int, device: str | None) -> None:
    if device is not None:
        torch_or_skip()
    for ratio in (1e4, 1e6, 1e8):
        Phi, y, spread = offset(ratio)
        pieces = np.array_split(np.arange(60), parts)
        moments = merge(Moments.of(Phi[p], y[p], 3, device=device) for p in pieces)
        centred = moments.centred
        assert centred is not None
        exact = spread - spread.mean(axis=0)
        tolerance = 1e-14 * ratio
        np.testing.assert_allclose(to_numpy(centred.gram), exact.T @ exact, atol=60 * tolerance)
        np.testing.assert_allclose(
            to_numpy(centred.products), exact.T @ np.eye(3)[y], atol=60 * tolerance
        )
        np.testing.assert_allclose(
            to_numpy(moments.covariance), np.cov(spread.T, ddof=0), atol=tolerance
        )
        np.testing.assert_allclose(to_numpy(moments.gram), Phi.T @ Phi, rtol=1e-12)


@pytest.mark.parametrize("device", [None, "cpu"])
def test_moments_about_a_shift(sample: Any, device: str | None) -> None:
    if device is not None:
        torch_or_skip()
    Phi, y = sample
    shift = np.linspace(-3, 4, 7)
    moments = Moments.of(Phi, y, 3, device=device)
    moved = moments.about(backend(device).float64(shift))
    assert_same(moved, Moments.of(Phi - shift, y, 3))
    assert_same(moments, Moments.of(Phi, y, 3), rtol=0)  # not changed
    back = moved.about(backend(device).float64(-shift))
    assert_same(back, moments)
    zero = moments.about(moments.mean)
    np.testing.assert_allclose(to_numpy(zero.feature_sum), 0, atol=1e-12)
    np.testing.assert_allclose(to_numpy(zero.gram) / 50, to_numpy(moments.covariance), atol=1e-12)


@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize("ratio", [1.0, 1e4, 1e8])
def test_products_about_a_shift(ratio: float, device: str | None) -> None:
    """The same as from all moments about the shift, without the loss at a large offset."""
    if device is not None:
        torch_or_skip()
    Phi, y, spread = offset(ratio)
    other, _, other_spread = offset(ratio, seed=1)
    moments, mean = Moments.of(Phi, y, 3, device=device), other.mean(axis=0)
    Psi = spread - other_spread.mean(axis=0)
    weights = np.random.default_rng(2).normal(size=(5, 4))
    float64 = backend(device).float64
    found = moments.products_about(float64(mean), float64(weights))
    expected = (Psi.T @ (Psi @ weights), Psi.sum(axis=0), Psi.T @ np.eye(3)[y])
    for one, other_one in zip(found, expected, strict=True):
        np.testing.assert_allclose(to_numpy(one), other_one, atol=1e-11 + 3e-12 * ratio)


def test_ordinary_features_are_not_centred() -> None:
    """Not even if each block is a single sample, which has no spread."""
    Phi, y, _ = offset(3.0)
    blocks = [Moments.of(Phi[[row]], y[[row]], 3) for row in range(60)]
    assert blocks[0].shifted is not None
    assert blocks[0].centred is None
    assert merge(blocks).centred is None
    whole = Moments.of(Phi, y, 3)
    assert whole.shifted is None
    assert_same(merge(blocks), whole)


def test_shifted_and_plain_moments_add_up() -> None:
    Phi, y, _ = offset(1e5)
    other = Phi[::2] + 1e3 * np.random.default_rng(3).normal(size=(30, 5))
    plain, shifted = Moments.of(other, y[::2], 3), Moments.of(Phi, y, 3)
    assert plain.shifted is None
    assert shifted.shifted is not None
    both = np.concatenate([Phi, other])
    for total in (plain + shifted, shifted + plain):
        assert total.shifted is not None
        expected = np.cov((both - both.mean(axis=0)).T, ddof=0)
        found = total.shifted.covariance
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-3)


def test_shifted_moments_survive_a_file(tmp_path: Path) -> None:
    Phi, y, _ = offset(1e6)
    moments = Moments.of(Phi, y, 3)
    np.savez(tmp_path / "moments.npz", **moments.to_dict())  # type: ignore[arg-type]
    with np.load(tmp_path / "moments.npz") as arrays:
        restored = Moments.from_dict(arrays)
    assert_same(restored, moments)
    assert moments.centred is not None
    assert restored.centred is not None
    np.testing.assert_array_equal(restored.centred.gram, moments.centred.gram)


@pytest.mark.parametrize(
    ("size", "shown"), [(1e300, "1e[+]300"), (-1e90, "1e[+]90"), (1e-160, "1e-160")]
)
def test_features_too_large_or_too_small(size: float, shown: str) -> None:
    Phi = np.zeros((4, 2))
    Phi[2, 1] = size
    message = f"^model 'a', shard 0: the largest value is {shown}; rescale the features"
    with pytest.raises(InputError, match=message):
        Moments.of(Phi, np.zeros(4, np.int64), 1, context="model 'a'")


@pytest.mark.parametrize("size", [1e38, 1e-38])
def test_float32_is_within_the_limits(size: float) -> None:
    Moments.of(np.full((4, 2), size, np.float32), np.zeros(4, np.int64), 1)
