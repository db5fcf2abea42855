"""Compare weights of the stability term by how well they order models.

    python benchmarks/stability.py STORE [STORE ...]

Prints, for each store, the weighted tau between a score and the accuracy of linear probes on
held-out domains (features standardised on the training domains, LogisticRegression(C=0.01,
max_iter=300), mean over domains). The ranking does not use the probes.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path

import numpy as np
from scipy.stats import weightedtau
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

import oodzoo
from oodzoo.ranking.terms import STABILITY_SHARE

SHARES = (0, 1 / 10, 1 / 5, 1 / 3, 1 / 2, 1)
PEERS = ("logme", "knn", "h_score", "lda", "transrate", "leep", "nce")


def probe(store: oodzoo.FeatureStore, model: str) -> float:
    """Return the mean accuracy of linear probes over held-out domains, in percent."""
    X = {d: store.features(model, d).astype(np.float64) for d in store.domains}
    y = {d: store.labels(d) for d in store.domains}
    accuracies = []
    for left_out in store.domains:
        kept = [d for d in store.domains if d != left_out]
        train = np.concatenate([X[d] for d in kept])
        mean, spread = train.mean(axis=0), train.std(axis=0)
        spread[spread == 0] = 1
        head = LogisticRegression(C=0.01, max_iter=300)
        head.fit((train - mean) / spread, np.concatenate([y[d] for d in kept]))
        accuracies.append(head.score((X[left_out] - mean) / spread, y[left_out]))
    return 100 * float(np.mean(accuracies))


def probes(store: oodzoo.FeatureStore) -> dict[str, float]:
    """Return the accuracy of each model; cached beside the store, since probes take minutes."""
    path = store.path.with_name(f"{store.path.name}.probes.json")
    if path.is_file():
        found: dict[str, float] = json.loads(path.read_text())
        return found
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = {model: probe(store, model) for model in store.models}
    path.write_text(json.dumps(found))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stores", type=Path, nargs="*")
    stores = parser.parse_args().stores
    if not stores:
        print("no store given: nothing measured")
    for path in stores:
        store = oodzoo.FeatureStore(path)
        truth = probes(store)
        n_classes = len(store.classes)

        def tau(scores: dict[str, float], truth: dict[str, float] = truth) -> float:
            models = sorted(scores)
            return float(weightedtau([scores[m] for m in models], [truth[m] for m in models])[0])

        ranking = oodzoo.rank(store)
        print(f"{path.name}: {len(store.models)} models, {store.n_images} images")
        for share in SHARES:
            scores = {
                r.model: r.discriminability + share / n_classes * r.stability for r in ranking.rows
            }
            mark = "  (the default)" if share == STABILITY_SHARE else ""
            print(f"  discriminability + {share:.2f}/C stability: {tau(scores):6.3f}{mark}")
        print(
            f"  expected accuracy: {tau({r.model: r.expected_accuracy for r in ranking.rows}):6.3f}"
        )
        printed = oodzoo.rank(store, stability="paper")
        as_printed = tau({r.model: r.score for r in printed.rows})
        print(f"  formula as printed in the paper: {as_printed:6.3f}")
        for peer in PEERS:
            rows = oodzoo.rank(store, score=peer).rows
            print(f"  {peer} ({len(rows)}): {tau({r.model: r.score for r in rows}):6.3f}")


if __name__ == "__main__":
    main()
