from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.scores.data import problem

from oodzoo.features.source import ArraySource
from oodzoo.moments import domain_moments
from oodzoo.scores.stream import LARGEST_OFFSET, Stream


def stream_of(X: Any, y: Any, domains: Any) -> tuple[Stream, list[str]]:
    """A stream, and the domains of which shards were read to make it."""
    source = ArraySource({"net": X}, y, domains)
    read: list[str] = []

    def shards(domain: str) -> Any:
        read.append(domain)
        return source.shards("net", domain)

    stream = Stream.of(domain_moments(source, "net"), shards)
    return stream, list(read)


@pytest.mark.parametrize(("offset", "reads"), [(0.0, 0), (20.0, 0), (1e3, 4), (1e7, 4)])
def test_moments_about_the_mean(offset: float, reads: int) -> None:
    p = problem(80, 5, 3)
    X = (p.X - p.X.mean(axis=0)) / p.X.std(axis=0) + offset
    stream, read = stream_of(X, p.y, p.domains)
    assert len(read) == reads  # the first block, for constant features, and all domains
    Z = X.astype(np.longdouble) - X.astype(np.longdouble).mean(axis=0)
    one_hot = np.eye(3)[p.y]
    np.testing.assert_allclose(stream.centred.gram, (Z.T @ Z).astype(float), rtol=0, atol=1e-10)
    np.testing.assert_allclose(
        stream.centred.products, (Z.T @ one_hot).astype(float), rtol=0, atol=1e-10
    )
    blocks = np.concatenate([block for block, _ in stream.centred_blocks()])
    order = np.argsort(p.domains, kind="stable")
    np.testing.assert_allclose(blocks, Z[order].astype(float), atol=1e-8)
    labels = np.concatenate([labels for _, labels in stream.centred_blocks()])
    np.testing.assert_array_equal(labels, p.y[order])


@pytest.mark.parametrize("constant", [0.1, 1e6, -1e40])
def test_a_constant_feature_is_exactly_zero(constant: float) -> None:
    p = problem(77, 3, 3)
    stream, _ = stream_of(np.insert(p.X, 1, constant, axis=1), p.y, p.domains)
    assert (stream.centred.gram[1] == 0).all()
    assert all((X[:, 1] == 0).all() for domain in "012" for X, _ in stream.blocks(domain))


@pytest.mark.parametrize("offset", [0.0, 0.9 * LARGEST_OFFSET])
def test_rounding_of_the_gram_matrix(offset: float) -> None:
    p = problem(200, 6, 3)
    X = (p.X - p.X.mean(axis=0)) / p.X.std(axis=0) + offset
    stream, read = stream_of(X, p.y, p.domains)
    assert read == []
    Z = X.astype(np.longdouble) - X.astype(np.longdouble).mean(axis=0)
    error = np.abs(stream.centred.gram - (Z.T @ Z)).max() / len(X)
    assert error < stream.rounding < (1 + offset**2) * 1e-13
