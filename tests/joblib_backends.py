"""Extraction, fit, prediction and sweep in a new process, under a backend of joblib."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

PROGRAM = """
import contextlib, hashlib, json, os, sys
import joblib, numpy as np
import oodzoo
from oodzoo.extraction.columns import Samples
from oodzoo.linear.heads.domainbed import sweep

backend, data, store, model = sys.argv[1:]
running = contextlib.ExitStack()
if backend == "dask":
    import distributed
    cluster = distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    running.enter_context(cluster)
    running.enter_context(distributed.Client(cluster))
if backend == "ray":
    import ray, ray.util.joblib
    ray.util.joblib.register_ray()
    running.enter_context(ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False))
if backend != "default":
    running.enter_context(joblib.parallel_config(backend=backend, n_jobs=2))

names = ("separable_shapes", "mlp_glyphs_augmented")
zoo = [spec for spec in oodzoo.load_zoo("demo") if spec.name in names]
with running:
    if backend not in ("default", "threading"):  # the backend is in use
        processes = joblib.Parallel()(joblib.delayed(os.getpid)() for _ in range(4))
        assert os.getpid() not in processes
    dataset = oodzoo.ImageDomains(data)
    made = oodzoo.extract(dataset, zoo, store, device="cpu")
    digest = hashlib.sha256()
    for name in made.models:
        for domain in made.domains:
            digest.update(made.features(name, domain).tobytes())
    predictor = oodzoo.fit(made, top_k=2)
    predictor.save(model)
    files = [dataset.root / sample.path for sample in dataset]
    probabilities = oodzoo.load(model, device="cpu").predict_proba(files)
    rng = np.random.default_rng(0)
    labels, domains = np.tile([0, 1], 30), np.repeat([0, 1, 2], 20)
    samples = Samples(rng.normal(size=(60, 4)).astype(np.float32), labels, domains)
    records = sweep(samples, 2, draws=2, trials=1, steps=20).records
    problems = [issue.message for issue in dataset.check()]
print(json.dumps({
    "fingerprint": dataset.fingerprint,
    "problems": problems,
    "features": digest.hexdigest(),
    "probabilities": hashlib.sha256(probabilities.tobytes()).hexdigest(),
    "sweep": hashlib.sha256(repr(records).encode()).hexdigest(),
}))
"""


def results_under(backend: str, photos: Path, folder: Path) -> dict[str, Any]:
    """Extract, fit, predict and sweep in a new process; return digests of the results."""
    paths = map(str, (photos, folder / "store", folder / "model"))
    command = [sys.executable, "-c", PROGRAM, backend, *paths]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return document
