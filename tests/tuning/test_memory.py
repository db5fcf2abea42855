"""The number of images per pass that fits into memory."""

from __future__ import annotations

from typing import Any

import pytest

from oodzoo.errors import InputError
from oodzoo.tuning import memory
from oodzoo.tuning.memory import find_batch_size

torch = pytest.importorskip("torch")
nn = torch.nn

WIDTH = 1000
BYTES = 4 * WIDTH
"""Of one activation of one image."""


class Network:
    """Three layers that each save an activation for the backward pass, and the input."""

    def __init__(self) -> None:
        layers = [nn.Linear(WIDTH, 8), nn.Tanh(), nn.Linear(8, WIDTH), nn.Tanh()]
        self.module = nn.Sequential(*layers)
        self.sizes: list[int] = []

    def step(self, n: int) -> None:
        self.sizes.append(n)
        self.module(torch.randn(n, WIDTH)).sum().backward()


def with_free(monkeypatch: pytest.MonkeyPatch, n_bytes: float) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: int(n_bytes))


@pytest.fixture
def base() -> int:
    """Bytes that do not depend on the number of images: the second weight."""
    return 4 * 8 * WIDTH


@pytest.mark.parametrize(("images", "expected"), [(96, 96), (95, 48), (24, 24), (1, 1)])
def test_images_that_fit(
    monkeypatch: pytest.MonkeyPatch, base: int, images: int, expected: int
) -> None:
    """Each image saves its input and its output, 2 x 1000 numbers, and 2 x 8 in between."""
    each = 2 * BYTES + 4 * 8
    with_free(monkeypatch, (base + images * each + each / 2) / (1 - memory.RESERVE))
    assert find_batch_size(Network().step, 96, "cpu") == expected


def test_large_passes_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network()
    with_free(monkeypatch, 2**40)
    find_batch_size(network.step, 64, "cpu")
    assert max(network.sizes) == 2


def test_not_even_one_image(monkeypatch: pytest.MonkeyPatch) -> None:
    with_free(monkeypatch, 50_000)
    with pytest.raises(InputError, match=r"needs about 80\.\d kB, 50\.0 kB are free") as caught:
        find_batch_size(Network().step, 16, "cpu")
    assert "\n" not in str(caught.value)


def test_random_state_is_kept() -> None:
    network = Network()
    torch.manual_seed(0)
    expected: Any = torch.rand(3)
    torch.manual_seed(0)
    find_batch_size(network.step, 4, "cpu")
    torch.testing.assert_close(torch.rand(3), expected, rtol=0, atol=0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda() -> None:
    free, _ = torch.cuda.mem_get_info()
    taken: list[Any] = []

    def step(n: int) -> None:
        taken[:] = [torch.empty(n * (free // 10), dtype=torch.uint8, device="cuda")]
        taken.clear()

    assert find_batch_size(step, 64, "cuda") == 8
    with pytest.raises(InputError, match="even with one image at a time"):
        find_batch_size(lambda n: step(100 * n), 64, "cuda")
