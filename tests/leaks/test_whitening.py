from __future__ import annotations

import numpy as np
import pytest
from tests.oracles import leaks as oracle

from oodzoo.leaks import whitening
from oodzoo.leaks.whitening import Whitening


@pytest.mark.parametrize(("n", "d"), [(40, 6), (12, 30), (2, 3)])
@pytest.mark.parametrize("scale", [1e-3, 1, 1e4])
def test_inner_products_are_cosines_in_the_metric_of_the_data(n: int, d: int, scale: float) -> None:
    rng = np.random.default_rng(n)
    features = scale * (rng.normal(size=(n, d)) * rng.uniform(0.1, 5, d) + 3)
    rows = Whitening.fit(features).unit_rows(features)
    found = rows @ rows.T
    for (i, j), expected in oracle.similarities([features]).items():
        assert found[i, j] == pytest.approx(expected, abs=2e-4)


def test_shift_scale_and_rotation_do_not_matter() -> None:
    rng = np.random.default_rng(1)
    features = rng.normal(size=(50, 8))
    turned = 3 * features @ np.linalg.qr(rng.normal(size=(8, 8)))[0] + rng.normal(size=8)
    one, other = (Whitening.fit(x).unit_rows(x) for x in (features, turned))
    np.testing.assert_allclose(one @ one.T, other @ other.T, atol=1e-4)


def test_what_all_images_share_does_not_make_them_similar() -> None:
    rng = np.random.default_rng(2)
    features = rng.normal(size=(60, 8))
    features[:, 0] = 100
    features[:30, 1] += 30  # a class
    cosines = features @ features.T / np.outer(*[np.linalg.norm(features, axis=1)] * 2)
    rows = Whitening.fit(features).unit_rows(features)
    off = ~np.eye(60, dtype=bool)
    assert np.median(cosines[off]) > 0.9
    assert abs(np.median((rows @ rows.T)[off])) < 0.1


def test_constant_features_are_similar_to_nothing() -> None:
    features = np.full((5, 3), 7.0)
    assert not Whitening.fit(features).unit_rows(features).any()


def test_of_many_features_some_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whitening, "WIDEST", 4)
    features = np.random.default_rng(3).normal(size=(20, 10))
    fitted = Whitening.fit(features)
    assert fitted.columns.tolist() == [0, 3, 6, 9]
    np.testing.assert_allclose(
        fitted.unit_rows(features), Whitening.fit(features[:, ::3]).unit_rows(features[:, ::3])
    )
