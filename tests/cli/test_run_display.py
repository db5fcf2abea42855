"""What `oodzoo run` prints, and the command line in its record."""

from __future__ import annotations

from pathlib import Path

from oodzoo.cli.run import _typed_command
from oodzoo.zoo import load_zoo


def test_the_record_does_not_have_uris() -> None:
    given = ["--mlflow", "postgresql://me:secret@host/db", "--mlflow=sqlite:////home/me/x.db?a=b"]
    typed = _typed_command(["run", *given], Path("job"), load_zoo("demo"))
    assert typed == "oodzoo run --mlflow 'postgresql://…' '--mlflow=sqlite://…'"


def test_the_record_has_patterns_without_folders(tmp_path: Path) -> None:
    given = ["--zoo", f"onnx/{tmp_path}/*.onnx,timm/vit*,hf/{tmp_path}/v?t"]
    assert _typed_command(["run", *given], Path("job"), []) == (
        "oodzoo run --zoo 'onnx/*.onnx,timm/vit*,hf/v?t'"
    )
    given = [f"--zoo=onnx/{tmp_path}/[ab].onnx"]
    assert _typed_command(["run", *given], Path("job"), []) == "oodzoo run '--zoo=onnx/[ab].onnx'"
