"""Tables of `oodzoo rank` and `oodzoo evaluate` at several widths, and their documents."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.conftest import Run
from tests.evaluation.data import task_zoo, zoo
from tests.report.example import example_run
from tests.striped import tiny_network, write_stripes

import oodzoo
from oodzoo.cli.evaluate import show_evaluation, show_main_rows
from oodzoo.cli.rank import show_top
from oodzoo.cli.terminal import Terminal
from oodzoo.extraction.importing import import_features


def stored(folder: Path, features: Any, y: Any, domains: Any, task: Any = None) -> Path:
    np.savez(folder / "f.npz", labels=y, domains=domains, allow_pickle=False, **features)
    return import_features([folder / "f.npz"], folder / "store", task=task).path


@pytest.mark.parametrize("target", [False, True])
def test_the_first_models_of_a_run(capsys: pytest.CaptureFixture[str], target: bool) -> None:
    ranking = example_run(target=target).ranking
    assert ranking is not None
    show_top(Terminal(), ranking, Path("job/store"))
    top = " ".join(capsys.readouterr().out.split())
    assert ("to expect on the target, with the 90 % interval" in top) == target
    assert ("to expect on an unseen domain" in top) == (not target)
    assert top.endswith("oodzoo rank job/store" + (" --target NAME" if target else ""))


# --- oodzoo evaluate -----------------------------------------------------------------------------


def test_tables_fit_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    features, y, domains = zoo(n_domains=6, n=12)
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


def test_the_worst_of_many_labels(run: Run, tmp_path: Path) -> None:
    features, y, domains = task_zoo("multilabel", n=15, n_domains=3)
    rng = np.random.default_rng(0)
    many = np.concatenate([y[:, :1], rng.random((len(y), 20)) < 0.5], axis=1)
    store = stored(tmp_path, features, many, domains, "multilabel")
    out = run("evaluate", store, "--no-baselines", "--top-k", "1").out
    assert "The 20 of 21 labels that are predicted worst" in out
    document = run("evaluate", store, "--no-baselines", "--top-k", "1", "--json").document
    outputs = document["pool"]["outputs"]
    best = max(outputs, key=lambda name: outputs[name]["average_precision"]["average"])
    shown = out.split("predicted worst")[1].split("cost")[0].splitlines()
    assert best not in {line.split()[0] for line in shown if line.strip()}


def test_fine_tuning(run: Run, tmp_path: Path) -> None:
    if not all(map(find_spec, ("torch", "torchvision", "onnx", "onnx2torch"))):
        pytest.skip("fine-tuning needs the extra tune")
    data = write_stripes(tmp_path / "data", per_cell=6)
    specs = [tiny_network(tmp_path / "zoo", "tiny"), tiny_network(tmp_path / "zoo", "b", seed=1)]
    store = oodzoo.extract(data, specs, tmp_path / "store", device="cpu").path
    options = ("--no-baselines", "--top-k", "1", "--tune", "--tune-steps", "3", "--device", "cpu")
    given = ("evaluate", store, *options, "--data", data, "--learning-rate", "0.01")
    code, out, _ = run(*given)
    assert code == 0
    assert "Fine-tuned" in [line.split()[0] for line in out.splitlines() if line]
    assert "of training for a held-out domain, on cpu." in out
    assert "points compared with Single, which is recommended otherwise" in out
    document = run(*given, "--json").document
    tuned = document["fine_tuned"]
    assert set(tuned) > {"average", "domains", "models", "trials", "seconds", "tuning"}
    assert document["recommended"]["choice"] in ("single", "fine_tuned")
    other = write_stripes(tmp_path / "other", ("green", "blue", "red"), per_cell=6)
    complaint = run("evaluate", store, *options, "--data", other).complaint
    assert "is not the data of the store" in complaint
