"""What a store delivers and how large it is, for comparisons; folders of images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from oodzoo.store.feature_store import FeatureStore


def contents(store: Path) -> dict[str, Any]:
    """Return all that a reader delivers; equal stores have equal contents, bit for bit."""
    opened = FeatureStore(store)
    found: dict[str, Any] = {"models": opened.models, "classes": opened.classes}
    for domain in (*opened.domains, *opened.unlabelled):
        found[domain] = [opened.paths(domain), opened.groups(domain), opened.images(domain)]
        if domain in opened.domains:
            found[domain].append(opened.labels(domain).tolist())
        for model in opened.models:
            if opened.has_features(model, domain):
                for output in opened.model(model).widths:
                    rows = opened.gather(model, opened.images(domain), output)
                    found[f"{model} {domain} {output}"] = (rows.shape, rows.tobytes())
    return found


def rows_by_image(store: Path, model: str) -> dict[str, bytes]:
    """Return the features of a model by image."""
    opened = FeatureStore(store)
    images = sorted(opened.coverage(model).rows)
    rows = opened.gather(model, images, "features")
    return {image: row.tobytes() for image, row in zip(images, rows, strict=True)}


def size(folder: Path) -> int:
    """Add up the sizes of all files below a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def moments(folder: Path) -> dict[Path, int]:
    """Return when each file and folder was changed."""
    return {path: path.stat().st_mtime_ns for path in (folder, *folder.rglob("*"))}
