"""Pre-train the embedded zoo: ``python -m tools.demo_zoo.pretrain --fonts DIR --out DIR``.

Run it from the project's root. Each model is trained from its own seed, independently of the
others. The same machine reproduces the same model; rounding differs between machines and random
numbers differ between CPU and GPU, which gives models of similar behaviour.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tools.demo_zoo.card import write_card
from tools.demo_zoo.catalogue import RECIPES, Recipe
from tools.demo_zoo.export import export, write_listing
from tools.demo_zoo.models import ARCHITECTURES, Model, keep_scale
from tools.demo_zoo.objectives import OBJECTIVES, Objective
from tools.demo_zoo.sources import Inked, open_source
from torch import Tensor

WARM_UP = 100
WEIGHT_DECAY = 0.02


def pretrain(
    recipe: Recipe, fonts: Path, device: torch.device, steps: int | None = None
) -> tuple[Model, dict[str, Any]]:
    """Train one model; return it with the history that its file records."""
    torch.manual_seed(recipe.seed)
    model = ARCHITECTURES[recipe.architecture]()
    if recipe.source == "none":
        keep_scale(model)
    model = model.to(device)
    steps = recipe.steps if steps is None else min(steps, recipe.steps)
    accuracy = None
    if recipe.source != "none":
        source, held_out = open_source(recipe.source, recipe.appearance, fonts, device)
        normalise = _normaliser(recipe, device)
        objective = OBJECTIVES[recipe.objective](model, source, normalise).to(device)
        _train(objective, recipe, steps, device)
        if held_out is not None and recipe.objective in ("supervised", "adversarial"):
            accuracy = _accuracy(objective, held_out, device)
    return model, _history(recipe, model, steps, accuracy)


def _normaliser(recipe: Recipe, device: torch.device) -> Callable[[Tensor], Tensor]:
    mean = torch.tensor(recipe.scaling.mean, device=device)[:, None, None]
    std = torch.tensor(recipe.scaling.std, device=device)[:, None, None]
    return lambda images: (images - mean) / std


def _train(objective: Objective, recipe: Recipe, steps: int, device: torch.device) -> None:
    """Train by AdamW with a short warm-up and a cosine schedule."""
    generator = torch.Generator(device).manual_seed(recipe.seed)
    optimiser = torch.optim.AdamW(
        objective.parameters(), lr=recipe.learning_rate, weight_decay=WEIGHT_DECAY
    )

    def rate(step: int) -> float:
        return min(1.0, (step + 1) / WARM_UP) * 0.5 * (1 + math.cos(math.pi * step / steps))

    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, rate)
    objective.train()
    for step in range(steps):
        loss = objective.loss(recipe.batch, generator)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(objective.parameters(), 2.0)
        optimiser.step()
        schedule.step()
        if step % 500 == 0 or step == steps - 1:
            print(f"{recipe.name}: step {step}, loss {loss.item():.3f}", flush=True)
    objective.eval()


def _accuracy(objective: Objective, held_out: Inked, device: torch.device) -> float:
    """Accuracy on held-out originals, each rendered four times with its augmentation."""
    generator = torch.Generator(device).manual_seed(0)
    hits = []
    with torch.no_grad():
        for _ in range(4):
            images = held_out.view(held_out.ink, generator)
            hits.append(objective.logits(images).argmax(dim=1) == held_out.labels)
    return float(torch.cat(hits).float().mean())


def _history(recipe: Recipe, model: Model, steps: int, accuracy: float | None) -> dict[str, Any]:
    return {
        "architecture": recipe.architecture,
        "pretraining": recipe.pretraining,
        "source": recipe.source,
        "objective": recipe.objective,
        "appearance": recipe.look,
        "seed": recipe.seed,
        "steps": steps,
        "batch": recipe.batch,
        "learning_rate": recipe.learning_rate,
        "mean": list(recipe.scaling.mean),
        "std": list(recipe.scaling.std),
        "feature_dim": model.feature_dim,
        "parameters": sum(weights.numel() for weights in model.parameters()),
        "source_accuracy": None if accuracy is None else round(accuracy, 4),
    }


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line, train the models, and write ``zoo.toml`` and the card."""
    parser = argparse.ArgumentParser(description="Pre-train the embedded zoo.")
    parser.add_argument("--fonts", type=Path, required=True, help="folder of unpacked fonts")
    parser.add_argument("--out", type=Path, required=True, help="folder to write the zoo to")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="train only these models")
    parser.add_argument("--steps", type=int, help="maximum number of steps, for a trial run")
    options = parser.parse_args(arguments)

    names = [recipe.name for recipe in RECIPES]
    unknown = sorted(set(options.only or []) - set(names))
    if unknown:
        parser.error(f"unknown model {', '.join(unknown)}; expected {', '.join(names)}")
    device = torch.device(options.device)
    torch.backends.cudnn.deterministic = True
    for recipe in RECIPES:
        if options.only and recipe.name not in options.only:
            continue
        started = time.perf_counter()
        model, history = pretrain(recipe, options.fonts, device, options.steps)
        export(model, options.out / f"{recipe.name}.onnx", history)
        print(f"{recipe.name}: {time.perf_counter() - started:.0f} s, {history}", flush=True)
    if len(write_listing(options.out)) == len(RECIPES):
        write_card(options.out)


if __name__ == "__main__":
    main()
