"""Tar archives and Parquet files with the images of a folder `root/domain/class/image`."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def images_of(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.png"))


def webdataset_members(folder: Path) -> dict[str, bytes]:
    """Members `day/cat/1.png`, `.cls` and `.json`, which has the domain, of each image."""
    members = {}
    for path in images_of(folder):
        key = path.relative_to(folder).with_suffix("").as_posix()
        members[f"{key}.png"] = path.read_bytes()
        members[f"{key}.cls"] = path.parts[-2].encode()
        members[f"{key}.json"] = json.dumps({"domain": path.parts[-3]}).encode()
    return members


def write_tar(
    path: Path, members: Mapping[str, bytes], kind: int = tarfile.PAX_FORMAT, **options: Any
) -> Path:
    with tarfile.open(path, "w", format=kind, **options) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def parquet_columns(folder: Path) -> dict[str, list[Any]]:
    """The columns image, path, domain and label of each image."""
    images = images_of(folder)
    return {
        "image": [path.read_bytes() for path in images],
        "path": [path.relative_to(folder).as_posix() for path in images],
        "domain": [path.parts[-3] for path in images],
        "label": [path.parts[-2] for path in images],
    }
