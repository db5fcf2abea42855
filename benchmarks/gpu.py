"""Ranking at the size of DomainNet, extraction and selection on a CUDA device.

    python benchmarks/gpu.py [--skip-rank] [--skip-peers] [--skip-extract] [--skip-select]

Ranking: 586,575 × 2,048 features in float64 on the GPU, 345 classes, 6 domains; the floor is one
Gram matrix, one projection, the class variances and 7 eigendecompositions, measured in the same
run. Other scores: the same size in float32, against one pass that computes the moments. Extraction:
a timm ResNet-50 and a ViT-B/16 with random weights in bfloat16, from decoded images in memory,
against the same forward passes on a batch that is already on the GPU. Selection: three models of
2,048 features each, 345 classes, from moments.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import oodzoo
from oodzoo.extraction.features import ArraySource
from oodzoo.extraction.forward import ForwardJob, run_forward
from oodzoo.linear.moments import Moments, domain_moments
from oodzoo.ranking.scores.catalogue import compute_score
from oodzoo.ranking.transfer import ModelMoments, Transfer
from oodzoo.ranking.zood import HeldOutDomains
from oodzoo.store.table import SHARD_ROWS
from oodzoo.zoo.model import Model
from oodzoo.zoo.spec import ModelSpec

try:
    import torch
except ImportError:
    print("PyTorch is not installed: nothing measured")
    sys.exit(0)

DOMAINS = {"clipart": 48_129, "infograph": 51_605, "painting": 72_266, "quickdraw": 172_500,
           "real": 172_947, "sketch": 69_128}  # fmt: skip
N_CLASSES, DIM = 345, 2_048
PEERS = ("logme", "h_score", "regularized_h_score", "lda", "gbc", "sfda", "transrate", "knn")


def seconds(work: Callable[[], object], repeats: int = 3) -> float:
    """Return the shortest time of several repeats, synchronising the device around each."""
    best = float("inf")
    for _ in range(repeats):
        torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        torch.cuda.synchronize()
        best = min(best, time.perf_counter() - start)
    return best


def agreement() -> None:
    """Compare NumPy and CUDA on the same data, with n > d and n < d."""
    rng = np.random.default_rng(0)
    for n, d in ((2_000, 64), (200, 300)):
        y, domains = rng.integers(0, 5, n), rng.integers(0, 4, n)
        X = rng.normal(size=(n, d)) + np.eye(5, d)[y]
        one, other = (
            oodzoo.rank({"net": X}, y, domains, device=at).rows[0] for at in (None, "cuda")
        )
        worst = max(
            abs(getattr(one, term) / getattr(other, term) - 1)
            for term in (
                "evidence",
                "transfer",
                "discriminability",
                "stability",
                "expected_accuracy",
            )
        )
        print(f"NumPy and CUDA at {n} x {d} agree to {worst:.1e} relative (target 1e-9)")


def rank_at_full_size() -> None:
    generator = torch.Generator("cuda").manual_seed(0)
    data = {}
    for name, n in DOMAINS.items():
        labels = torch.randint(0, N_CLASSES, (n,), device="cuda", generator=generator)
        X = torch.randn(n, DIM, device="cuda", generator=generator, dtype=torch.float64)
        X[torch.arange(n, device="cuda"), labels] += 3.0
        data[name] = (X, labels)

    def floor() -> None:
        gram = sum(X.T @ X for X, _ in data.values())
        for _ in range(len(data) + 1):
            _, vectors = torch.linalg.eigh(gram)
        for X, _ in data.values():
            projected = X @ vectors
            projected.square_() @ vectors[:, :N_CLASSES]

    def shards(name: str) -> Iterator[Any]:
        yield data[name]

    def rank() -> None:
        moments = {d: Moments.stream(shards(d), N_CLASSES, device="cuda") for d in data}
        read = ModelMoments(moments, shards, device="cuda")
        Transfer.of(read)
        HeldOutDomains(read).folds()

    rank()
    base, ours = seconds(floor), seconds(rank)
    total = sum(DOMAINS.values())
    print(
        f"rank {total} x {DIM}, {N_CLASSES} classes, {len(data)} domains, float64: "
        f"{ours:.2f} s, floor {base:.2f} s, ratio {ours / base:.2f} (target 0.6 s)",
        flush=True,
    )


def peers_at_full_size(names: tuple[str, ...] = PEERS) -> None:
    """Compute other scores on the GPU, with the time and the memory that each takes."""
    generator = torch.Generator("cuda").manual_seed(0)
    n = sum(DOMAINS.values())
    labels = torch.randint(0, N_CLASSES, (n,), device="cuda", generator=generator)
    X = torch.randn(n, DIM, device="cuda", generator=generator)
    X[torch.arange(n, device="cuda"), labels] += 3.0
    domains = np.repeat(list(DOMAINS), list(DOMAINS.values()))
    source = ArraySource({"net": X}, labels.cpu().numpy(), domains)
    base = seconds(lambda: domain_moments(source, "net", "cuda"), repeats=2)
    print(f"moments of {n} x {DIM}, float32: {base:.2f} s", flush=True)
    for name in names:
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated()
        score = oodzoo.scores.get(name)
        took = seconds(lambda score=score: compute_score(source, score, "net", None, "cuda"), 1)  # type: ignore[misc]
        peak = (torch.cuda.max_memory_allocated() - held) / 2**30
        print(f"{name}: {took:.2f} s, {took / base:.2f} times, {peak:.1f} GiB more", flush=True)


def selection() -> None:
    """Select from the concatenated features of three models, from moments on the GPU."""
    generator = torch.Generator("cuda").manual_seed(0)
    n, d = 100_000, 3 * DIM
    labels = torch.randint(0, N_CLASSES, (n,), device="cuda", generator=generator)
    centres = torch.randn(N_CLASSES, d, device="cuda", generator=generator, dtype=torch.float64)
    informative = torch.rand(d, device="cuda", generator=generator) < 0.3
    X = torch.randn(n, d, device="cuda", generator=generator, dtype=torch.float64)
    X += 0.5 * centres[labels] * informative
    moments = Moments.of(X, labels, N_CLASSES, device="cuda")
    del X
    selector = oodzoo.SpikeSlabSelector(device="cuda")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        took = seconds(lambda: selector.fit_moments(moments), repeats=1)
    print(
        f"select from {d} features, {N_CLASSES} classes: {took:.1f} s, {selector.n_iter_} "
        f"iterations, converged {selector.converged_}, kept {selector.get_support().sum()} "
        "(target 10 s)",
        flush=True,
    )


def extraction(name: str, batch_size: int = 256, batches: int = 24) -> None:
    from oodzoo.zoo.model import only_one
    from oodzoo.zoo.sources.timm import TimmSource
    from oodzoo.zoo.torch_model import assemble_layers

    spec = ModelSpec(name, f"timm/{name}")
    built = TimmSource().build(spec, pretrained=False)
    model: Model = only_one(assemble_layers(built, [spec], device="cuda", precision="bfloat16"))
    height, width = model.info.preprocessing.geometry.crop
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (batch_size * batches, height, width, 3), dtype=np.uint8)
    ready = model.prepare(pixels[:batch_size])

    def bare() -> None:
        for _ in range(batches):
            model.launch(ready)

    def extract() -> None:
        """Compute shard by shard, as an extraction does."""
        starts = range(0, len(pixels), SHARD_ROWS)
        jobs = (ForwardJob(at, [model], pixels[at : at + SHARD_ROWS], batch_size) for at in starts)
        for done in run_forward(jobs):
            assert done.error is None

    bare()
    base, ours = seconds(bare), seconds(extract)
    n = len(pixels)
    print(
        f"extract {name}, bfloat16, batch {batch_size}: {n / ours:,.0f} images/s, forward only "
        f"{n / base:,.0f}, ratio {base / ours:.2f} (target 0.9)",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--skip-rank", action="store_true")
    parser.add_argument("--skip-peers", action="store_true")
    parser.add_argument("--skip-extract", action="store_true")
    parser.add_argument("--skip-select", action="store_true")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("no CUDA device here: nothing measured")
        return
    print(torch.cuda.get_device_name())
    if not arguments.skip_extract:
        for name in ("resnet50", "vit_base_patch16_224"):
            for batch_size in (128, 256):
                extraction(name, batch_size)
    if not arguments.skip_rank:
        agreement()
        rank_at_full_size()
    if not arguments.skip_peers:
        peers_at_full_size()
    if not arguments.skip_select:
        selection()


if __name__ == "__main__":
    main()
