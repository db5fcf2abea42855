"""A captured step does what a plain step does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.heads.domainbed.data import GROUPS, problem

from oodzoo.heads.domainbed.training import Block, captured, sampled_batches

torch: Any = pytest.importorskip("torch")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_replayed_steps_equal_plain_steps() -> None:
    given = problem("cuda")
    batches = sampled_batches(given, GROUPS)(0, 10)
    rows = given.backend.asarray(batches.reshape(10, -1))
    plain, replayed = Block(given, GROUPS, 10), Block(given, GROUPS, 10)
    advance = captured(replayed)
    for step in range(10):
        plain.advance(rows[step], step)
        advance(rows[step], step)
    np.testing.assert_allclose(replayed.on_host(), plain.on_host(), atol=1e-6)


class Refusing:
    """A device on which no graph can be recorded: the first update fails after a change."""

    def __init__(self) -> None:
        self.parameters = torch.ones(2)
        self.first, self.second = torch.zeros(2), torch.zeros(2)
        self.sizes = self.floors = torch.zeros((1, 1))
        self.noise = None
        self.rows = 3

    def advance(self, rows: Any, step: int) -> None: ...

    def update(self, rows: Any, size: Any, floor: Any, noise: Any) -> None:
        self.parameters += 1
        raise RuntimeError("not permitted when stream is capturing")


class FakeCuda:
    """torch.cuda on a machine without one."""

    def __getattr__(self, name: str) -> Any:
        import contextlib
        from unittest.mock import MagicMock

        return contextlib.nullcontext if name in ("device", "stream", "graph") else MagicMock()


def test_falls_back_to_plain_steps_and_restores_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "cuda", FakeCuda())
    block = Refusing()
    assert captured(block) == block.advance
    assert block.parameters.tolist() == [1, 1]
