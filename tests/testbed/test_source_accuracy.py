"""Published accuracies of models on ImageNet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.testbed.data import store

from oodzoo.errors import InputError
from oodzoo.store.feature_store import FeatureStore
from oodzoo.testbed import run
from oodzoo.testbed.external import published_accuracies, read_timm_results
from oodzoo.zoo.torchvision_import import import_torchvision, torchvision_installed

HEADER = "model,top1,top1_err,top5,top5_err,param_count,img_size,crop_pct,interpolation\n"
ROWS = (
    'eva.large,90.052,9.948,99.0,1.0,"1,014.45",448,1.000,bicubic\n'
    "resnet50.a1_in1k,80.2,19.8,95,5,25,224,0.95,bicubic\n"
    "resnet50.ram_in1k,79.9,20.1,95,5,25,224,0.95,bicubic\n"
)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    path = tmp_path / "results-imagenet.csv"
    path.write_text(HEADER + ROWS)
    return path


def sources(opened: FeatureStore, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> FeatureStore:
    """The store as if its models came from elsewhere: (source, pretraining)."""
    for name, (origin, pretraining) in changes.items():
        record = msgspec.structs.replace(opened.model(name), source=origin, pretraining=pretraining)
        monkeypatch.setitem(opened.manifest.models, name, record)
    return opened


def test_timm_results(results: Path) -> None:
    assert read_timm_results(results) == {
        "eva.large": 90.052, "resnet50.a1_in1k": 80.2, "resnet50.ram_in1k": 79.9,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "must have the columns model and top1, got ''"),
        ("model,top5\na,1\n", "must have the columns model and top1, got 'model,top5'"),
        ("model,top1\na,high\n", "row 2: top1 must be a percentage, got 'high'"),
        ("model,top1\na,1\nb,101\n", "row 3: top1 must be a percentage, got '101'"),
        ("model,top1\na\n", "row 2: top1 must be a percentage, got None"),
    ],
)
def test_other_tables_are_rejected(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "r.csv"
    path.write_text(content)
    with pytest.raises(InputError, match=message) as rejected:
        read_timm_results(path)
    assert str(rejected.value).startswith(f"timm's results {str(path)!r}")


def test_a_missing_or_binary_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read timm's results"):
        read_timm_results(tmp_path / "no.csv")
    (tmp_path / "b.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="is not a CSV file"):
        read_timm_results(tmp_path / "b.csv")


def test_models_of_timm(tmp_path: Path, results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = sources(
        store(tmp_path),
        monkeypatch,
        best=("timm/resnet50.a1_in1k", None),
        good=("timm/hf-hub:timm/resnet50.ram_in1k", None),
        fair=("timm/eva", None),  # the only weights of this architecture
        poor=("timm/resnet50", None),
        none=("timm/resnet50.new", None),
    )
    names = ["best", "good", "fair", "poor", "none"]
    values, reasons = published_accuracies(opened, names, read_timm_results(results))
    assert values == {"best": 80.2, "good": 79.9, "fair": 90.052, "poor": None, "none": None}
    assert "several weights of 'resnet50'" in reasons["poor"]
    assert "do not contain 'resnet50.new'" in reasons["none"]
    values, reasons = published_accuracies(opened, names, None)
    assert not any(values.values())
    assert "pass timm's results-imagenet.csv" in reasons["best"]
    untrained = msgspec.structs.replace(opened.model("best"), spec={"pretrained": False})
    monkeypatch.setitem(opened.manifest.models, "best", untrained)
    values, reasons = published_accuracies(opened, names, read_timm_results(results))
    assert (values["best"], reasons["best"]) == (None, "its weights are random")


@pytest.mark.skipif(not torchvision_installed(), reason="torchvision is not installed")
def test_models_of_torchvision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = sources(
        store(tmp_path),
        monkeypatch,
        best=("torchvision/resnet50.IMAGENET1K_V1", None),
        good=("torchvision/resnet50", "IMAGENET1K_V1"),
        fair=("torchvision/resnet50", None),
        poor=("torchvision/no_such_model", None),
        none=("torchvision/resnet50.NO_SUCH_WEIGHTS", None),
    )
    names = ["best", "good", "fair", "poor", "none"]
    values, reasons = published_accuracies(opened, names, None)
    torchvision = import_torchvision(extra="torchvision", purpose="this test")
    weights = torchvision.models.ResNet50_Weights
    first = weights.IMAGENET1K_V1.meta["_metrics"]["ImageNet-1K"]["acc@1"]
    newest = weights.DEFAULT.meta["_metrics"]["ImageNet-1K"]["acc@1"]
    assert values == {"best": first, "good": first, "fair": newest, "poor": None, "none": None}
    assert set(reasons) == {"poor", "none"}
    assert "publishes no accuracy on ImageNet for 'no_such_model'" in reasons["poor"]


def test_it_is_a_row_where_it_is_known(
    tmp_path: Path, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = sources(
        store(tmp_path),
        monkeypatch,
        best=("timm/eva.large", None),
        good=("timm/resnet50.a1_in1k", None),
        fair=("timm/resnet50.ram_in1k", None),
    )
    bed = run(opened, timm_results=results, resamples=50)
    assert bed.scores["source_accuracy"].models == 3
    assert bed.scores["source_accuracy"].values["best"] == 90.052
    assert bed.scores["source_accuracy"].title == "Published accuracy on ImageNet"
    assert set(bed.left_out["source_accuracy"]) == {"poor", "none"}
    assert "not published" in bed.left_out["source_accuracy"]["poor"]
    plain = run(opened, resamples=50)
    assert "source_accuracy" not in plain.scores
    assert "source_accuracy" not in plain.left_out
    own = dict.fromkeys(("best", "good", "fair"), 1.0)
    given = run(opened, timm_results=results, values={"source_accuracy": own}, resamples=50)
    assert given.scores["source_accuracy"].values["best"] == 1.0
    assert "source_accuracy" not in given.left_out
