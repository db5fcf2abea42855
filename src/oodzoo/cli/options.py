"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ZOO_HELP = (
    "A named zoo (demo, paper, modern), a zoo file (.toml), or model specs such as "
    "timm/resnet50.a1_in1k, separated by commas."
)

DataArgument = Annotated[
    Path, typer.Argument(metavar="DATA", help="Folder root/domain/class/image, or a CSV table.")
]
StoreArgument = Annotated[Path, typer.Argument(metavar="STORE", help="Folder of a feature store.")]
PredictorArgument = Annotated[
    Path, typer.Argument(metavar="MODEL", help="Folder of a predictor, written by oodzoo fit.")
]
RootOption = Annotated[
    Path | None, typer.Option(help="Folder that the paths of a CSV table are relative to.")
]
UnlabelledOption = Annotated[
    list[str] | None,
    typer.Option(
        "--unlabelled",
        metavar="FOLDER",
        help="Images without labels, as a domain of their own; FOLDER or NAME=FOLDER, repeatable.",
    ),
]
ZooOption = Annotated[str, typer.Option("--zoo", help=ZOO_HELP)]
NewStoreOption = Annotated[
    Path, typer.Option("--store", help="Folder of the feature store; created if missing.")
]
DeviceOption = Annotated[
    str, typer.Option(help="Device for the models: auto, cpu, cuda, cuda:1 or mps.")
]
ComputeOption = Annotated[
    str,
    typer.Option("--device", help="Compute device: cpu (NumPy) or cuda (PyTorch)."),
]
PrecisionOption = Annotated[
    str,
    typer.Option(help="Compute precision (PyTorch models): float32, bfloat16 or float16."),
]
DtypeOption = Annotated[str, typer.Option(help="Stored feature type: float32 or float16.")]
ScoreOption = Annotated[str, typer.Option(help="Score to rank by; oodzoo rank --help lists them.")]
ProtocolOption = Annotated[
    str,
    typer.Option(
        help="How heads are trained: fast (logistic regression) or domainbed (DomainBed's random "
        "search)."
    ),
]
LimitOption = Annotated[
    int | None, typer.Option(help="Use only this many images, stratified by domain and class.")
]
ThresholdOption = Annotated[
    float, typer.Option(help="Keep features whose inclusion probability is above this.")
]


def compute_device(device: str) -> str | None:
    """The device of :func:`oodzoo.backend.backend`: None, which is NumPy, for cpu."""
    return None if device == "cpu" else device
