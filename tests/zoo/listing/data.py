"""Files in a cache of Hugging Face."""

from __future__ import annotations

from pathlib import Path


def cache_file(cache: Path, repository: str, name: str, content: bytes) -> None:
    """Write a file as huggingface_hub does when it has downloaded it."""
    folder = cache / f"models--{repository.replace('/', '--')}"
    commit = "0" * 40
    (folder / "refs").mkdir(parents=True, exist_ok=True)
    (folder / "refs" / "main").write_text(commit)
    (folder / "snapshots" / commit).mkdir(parents=True, exist_ok=True)
    (folder / "snapshots" / commit / name).write_bytes(content)
