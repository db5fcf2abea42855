"""`oodzoo evaluate`."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.evaluation.data import task_zoo, zoo
from tests.striped import tiny_network, write_stripes

import oodzoo
from oodzoo.cli.evaluate import show_evaluation, show_main_rows, tune_device
from oodzoo.cli.terminal import Terminal
from oodzoo.extraction.importing import import_features

Run = Callable[..., Any]


def stored(folder: Path, *data: Any) -> Path:
    features, y, domains = data
    np.savez(folder / "f.npz", labels=y.astype(str), domains=domains, **features)
    return import_features([folder / "f.npz"], folder / "store").path


def test_json(run: Run, tmp_path: Path) -> None:
    store = stored(tmp_path, *zoo())
    document = run("evaluate", store, "--top-k", "1,3", "--json").document
    assert document["domains"] == ["d0", "d1", "d2", "d3"]
    assert (document["protocol"], document["score"], document["top_k"]) == ("fast", "unseen", 3)
    for name in ("single", "pool", "ensemble", "selection", *document["baselines"]):
        row = document[name]
        assert set(row) == {
            "average", "domains", "balanced", "calibration_error", "error", "models", "n_features",
            "trials", "milliseconds", "parameters",
        }  # fmt: skip
        for part in (row, row["balanced"], row["calibration_error"]):
            assert part["average"] == pytest.approx(np.mean(list(part["domains"].values())))
            assert 0 <= part["average"] <= 100
    assert 0 < document["feature_ratio"]["average"] <= 1
    names = {"random_features", "oracle", "paper_selection", "best_by_logme"}
    assert names <= set(document["baselines"])
    recommended = document["recommended"]
    measured = [document[recommended["choices"][d]]["domains"][d] for d in document["domains"]]
    assert list(recommended["domains"].values()) == measured
    assert recommended["average"] == pytest.approx(np.mean(measured))
    oracle_row = document["oracle"]["domains"]
    assert all(oracle_row[d] >= document["single"]["domains"][d] for d in oracle_row)
    assert len(document["ablation"]) == 2


def test_tables_fit_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    features, y, domains = zoo(n_domains=6)
    named = np.char.add(domains, "_of_a_hospital")
    evaluation = oodzoo.evaluate(features, y, named, baselines=False)
    terminal = Terminal()
    terminal._results.width = 60
    show_evaluation(terminal, evaluation)
    tables = capsys.readouterr().out.partition("Recommended:")[0]
    assert max(map(len, tables.splitlines())) <= 60
    assert all(tables.count(domain) == 1 for domain in evaluation.domains)
    show_main_rows(terminal, evaluation)
    out = capsys.readouterr().out
    hardest = min(evaluation.recommended.domains, key=evaluation.recommended.domains.__getitem__)
    assert hardest in out.splitlines()[0]
    missing = [domain for domain in evaluation.domains if domain not in out.splitlines()[0]]
    assert missing
    shown = " ".join(out.split()).partition("Not shown at this width: ")[2]
    assert all(domain in shown for domain in missing)


def test_search_space(run: Run, tmp_path: Path) -> None:
    store = stored(tmp_path, *zoo())
    options = [
        "--protocol", "domainbed", "--draws", "3", "--trials", "1", "--steps", "40", "--top-k", "1",
        "--no-baselines", "--json",
    ]  # fmt: skip
    domainnet, other = (
        run("evaluate", store, *options, "--search-space", name).document["single"]
        for name in ("DomainNet", "default")
    )
    assert domainnet["calibration_error"] != other["calibration_error"]
    outcome = run("evaluate", store, *options[:-1], "--selection", "training-domain")
    for rule in ("training-domain (above)", "leave-one-domain-out ", "oracle "):
        assert f"\n{rule}" in outcome.out
    code, _, err = run("evaluate", store, "--protocol", "domainbed", "--search-space", "PACS")
    assert code == 2
    assert "unknown search space 'PACS'; expected one of default, DomainNet" in err


def test_the_worst_of_many_labels(run: Run, tmp_path: Path) -> None:
    features, y, domains = task_zoo("multilabel", n=15, n_domains=3)
    rng = np.random.default_rng(0)
    many = np.concatenate([y[:, :1], rng.random((len(y), 20)) < 0.5], axis=1)
    arrays: Any = {"labels": many, "domains": domains} | features
    np.savez(tmp_path / "f.npz", **arrays)
    store = import_features([tmp_path / "f.npz"], tmp_path / "store", task="multilabel").path
    out = run("evaluate", store, "--no-baselines", "--top-k", "1").out
    assert "The 20 of 21 labels that are predicted worst" in out
    document = run("evaluate", store, "--no-baselines", "--top-k", "1", "--json").document
    best = max(
        document["pool"]["outputs"].items(),
        key=lambda each: each[1]["average_precision"]["average"],
    )[0]
    shown = out.split("predicted worst")[1].split("cost")[0].splitlines()
    assert best not in {line.split()[0] for line in shown if line.strip()}


def test_fine_tuning(run: Run, tmp_path: Path) -> None:
    if not all(map(find_spec, ("torch", "torchvision", "onnx", "onnx2torch"))):
        pytest.skip("fine-tuning needs the extra tune")
    data = write_stripes(tmp_path / "data", per_cell=6)
    specs = [tiny_network(tmp_path / "zoo", "tiny"), tiny_network(tmp_path / "zoo", "b", seed=1)]
    store = oodzoo.extract(data, specs, tmp_path / "store", device="cpu").path
    options = ("--no-baselines", "--top-k", "1", "--tune", "--tune-steps", "3", "--device", "cpu")
    code, out, _ = run("evaluate", store, *options, "--data", data, "--learning-rate", "0.01")
    assert code == 0
    assert "Fine-tuned" in [line.split()[0] for line in out.splitlines() if line]
    assert "of training for a test domain, on cpu." in out
    assert "points compared with Single, which is recommended otherwise" in out
    document = run(
        "evaluate", store, *options, "--data", data, "--learning-rate", "0.01", "--json"
    ).document
    tuned = document["fine_tuned"]
    assert set(tuned) > {"average", "domains", "models", "trials", "seconds", "tuning"}
    assert document["recommended"]["choice"] in ("single", "fine_tuned")
    other = write_stripes(tmp_path / "other", ("green", "blue", "red"), per_cell=6)
    assert (
        "is not the data of the store"
        in run("evaluate", store, *options, "--data", other).complaint
    )


def test_the_device_to_fine_tune_on_is_the_one_that_was_given() -> None:
    """NumPy, which `cpu` is for everything else, says nothing about the device of a network."""
    given = {"cpu": "cpu", "cpu,cpu": "cpu", "cuda": None, "cuda:1,cuda:0": None, None: None}
    assert {device: tune_device(device) for device in given} == given
