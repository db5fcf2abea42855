"""What commands print, compared as a whole with what they printed before.

Times, sizes that differ between machines, and the folder are replaced. What changes on purpose is
written again with `OODZOO_GOLDEN=write pytest tests/cli/test_golden.py`. `tests/golden` compares
the JSON documents of some of these commands.
"""

from __future__ import annotations

import csv
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.conftest import Run, WriteImage
from tests.evaluation.data import task_zoo, zoo
from tests.fixtures import draw_digits
from tests.leaks.data import extract_copies
from tests.report.example import example_run
from tests.testbed.data import store as bed_store

from oodzoo.extraction.importing import import_features
from oodzoo.store.format import sealed
from oodzoo.store.writer import update_local

WRITTEN = Path(__file__).parent / "golden"
Commands = Mapping[str, str | Callable[[Path], object]]
"""By their names, commands, where {} is a folder, and changes of files between them."""

COMMANDS = {
    "rank": "rank {}/store",
    "rank by another score": "rank {}/store --score zood --plot {}/rank.svg",
    "select": "select {}/store",
    "select, paper": "select {}/store --method paper --top-k 2",
    "evaluate": "evaluate {}/store --top-k 1,3",
    "evaluate, options": "evaluate {}/store --trials 2 --peers knn --with-target --published PACS",
    "fit": "fit {}/store --out {}/model",
    "predict": "predict {}/model {}/new.npz",
    "predict, csv": "predict {}/model {}/new.npz --format csv",
    "test": "test {}/model {}/features.npz --out {}/test.html",
    "testbed": "testbed {}/store --out {}/one.json",
    "testbed compare": "testbed compare {}/one.json {}/two.json",
    "store ls": "store ls {}/store",
    "store rm": "store rm {}/store poor",
    "store prune": "store prune {}/store --cache",
    "store check": "store check {}/store",
}
OTHER_TASKS = ("rank", "select", "evaluate", "fit", "predict", "test")
PHOTOS = {
    "data": "data {}/photos",
    "data, counts": "data {}/photos --quick --counts",
    "data, table": "data {}/table.csv --root {}/photos",
    "data, no such folder": "data {}/fotos",
    "models": "models demo --licence apache-2.0 --max-parameters 30K",
    "extract, dry": "extract {}/photos --zoo demo/cnn_photos --store {}/store --dry-run",
    "extract": "extract {}/photos --zoo demo/cnn_photos --store {}/store --unlabelled {}/new",
    "extract again": "extract {}/photos --zoo demo/cnn_photos --store {}/store",
    "domains": "domains {}/store --no-rank",
    "report": "report {}/job --figures",
    "testbed paper": "testbed paper",
}
DOMAINBED = (
    "--protocol domainbed --draws 3 --trials 1 --steps 40 --top-k 1 --no-baselines "
    "--search-space DomainNet --selection training-domain"
)
OPTIONS: Commands = {
    "store ls": "store ls {}/store",
    "rank, time": "rank {}/store --max-ms 20",
    "rank, less time": "rank {}/store --max-ms 1.5",
    "rank, Pareto": "rank {}/store --pareto",
    "rank, weights": "rank {}/store --score accuracy --domain-weight d0=0 --domain-weight d1=3",
    "select, two": "select {}/store --top-k 2",
    "select, all": "select {}/store --top-k all",
    "select, too many": "select {}/store --top-k 9",
    "select, one or two": "select {}/store --top-k 1,2 --out {}/selection.json",
    "select, threshold": "select {}/store --method paper --top-k 2 --threshold 0",
    "select, paper": "select {}/store --method paper",
    "evaluate, DomainBed": f"evaluate {{}}/store {DOMAINBED}",
    "evaluate, limits": (
        "evaluate {}/store --no-baselines --max-models 2 --max-ms 40 --score logme "
        "--out {}/evaluation.json"
    ),
    "fit, selection": "fit {}/store --from {}/selection.json --out {}/selected",
    "fit, limits": "fit {}/store --from {}/evaluation.json --out {}/model",
    "fit, limits of time": "fit {}/store --top-k 2,3 --max-ms 20 --out {}/fast",
    "fit, not allowed": "fit {}/store --models good --max-ms 20 --out {}/none",
    "predict, top": "predict {}/model {}/new.npz --top 2",
    "predict, sure": "predict {}/model {}/new.npz --min-confidence 0.8",
    "predict, sets": "predict {}/model {}/new.npz --coverage 0.9",
    "predict, csv": "predict {}/model {}/new.npz --coverage 0.9 --format csv",
    "testbed": "testbed {}/store --out {}/one.json",
    "testbed, all": "testbed {}/store --protocol all",
    "testbed, values": "testbed {}/store --values {}/values.csv",
    "testbed, two": "testbed {}/store {}/other --plot {}/two.svg",
    "testbed, one result of two": "testbed {}/store {}/other --out {}/r.json",
    "testbed compare, twice": "testbed compare {}/one.json {}/one.json",
}


OTHER_OPTIONS: dict[str, dict[str, str]] = {
    task: {
        "import": f"import {{}}/features.npz --store {{}}/store --task {task}",
        "fit": "fit {}/store --choose single --out {}/model",
        **{
            f"predict {options}": f"predict {{}}/model {{}}/new.npz {options}"
            for options in (
                *("--coverage 0.9", "--coverage 0.9 --format csv", "--format csv"),
                *("--min-confidence 0.5", "--top 1", "--top 2 --format csv"),
            )
        },
    }
    for task in ("regression", "multilabel")
}


def normalised(text: str, folder: Path) -> str:
    """Without the folder, times, and what depends on them."""
    text = text.replace(str(folder), "FOLDER")
    text = re.sub(r"\d+(\.\d+)? s\b", "0 s", text)
    text = re.sub(r"\d+(\.\d+)? (kB|MB)\b", "0 MB", text)
    return re.sub(r"bottleneck: \w+", "bottleneck: …", text)


def without_hashes(text: str, folder: Path) -> str:
    """Features differ between processors in their last digits, and so do their hashes."""
    text = re.sub(r"\b(?=[a-f]*\d)[0-9a-f]{7,}\b", "HASH", normalised(text, folder))
    return re.sub(r" +", " ", re.sub(r"\b\d+ B\b", "0 B", text))


def without_numbers(text: str, folder: Path) -> str:
    """Numbers of forward passes differ between processors: only the words are compared."""
    text = re.sub(r"passes \(.*?\)| \*$", "", without_hashes(text, folder), flags=re.MULTILINE)
    words = re.sub(r"[\d.,]+|[─━]+", "0", text)
    return re.sub(r" +", " ", words)


def compare(
    name: str,
    run: Run,
    folder: Path,
    commands: Commands,
    shown: Callable[[str, Path], str] = normalised,
) -> None:
    parts = []
    for title, line in commands.items():
        if callable(line):
            line(folder)
            continue
        outcome = run(*line.replace("{}", str(folder)).split())
        streams = (f"{outcome.out}--- stderr, {outcome.code}\n{outcome.err}").rstrip("\n")
        parts.append(f"=== {title}: oodzoo {line}\n{shown(streams, folder)}\n")
    file, found = WRITTEN / f"{name.replace(' ', '_')}.txt", "\n".join(parts)
    if os.environ.get("OODZOO_GOLDEN") == "write":
        file.parent.mkdir(exist_ok=True)
        file.write_text(found, encoding="utf-8")
    assert found == file.read_text(encoding="utf-8")


def write_features(folder: Path, task: Any) -> None:
    several = zoo(n_domains=3, n=40) if task == "classification" else task_zoo(task, n_domains=3)
    features, y, domains = several
    if task == "multilabel":
        y = np.array([";".join(np.array(["a", "b"])[row > 0]) for row in y])
    data: dict[str, Any] = {"labels": y, "domains": domains} | features
    np.savez(folder / "features.npz", **data)
    new: dict[str, Any] = {name: array[::17] for name, array in features.items()}
    np.savez(folder / "new.npz", **new)


@pytest.mark.parametrize("task", ["classification", "regression", "multilabel"])
def test_commands_of_a_store(run: Run, tmp_path: Path, task: Any) -> None:
    write_features(tmp_path, task)
    commands = {"import": f"import {{}}/features.npz --store {{}}/store --task {task}"}
    if task == "classification":
        (tmp_path / "two").mkdir()
        bed = bed_store(tmp_path / "two").path
        assert run("testbed", bed, "--out", tmp_path / "two.json").code == 0
        commands |= COMMANDS
    else:
        commands |= {name: COMMANDS[name] for name in OTHER_TASKS}
    compare(task, run, tmp_path, commands)


def store_with_times(folder: Path) -> None:
    """A store of models with known times per image, but for one of them, and a test bed."""
    write_features(folder, "classification")
    import_features([folder / "features.npz"], folder / "store")
    for name, milliseconds in {"good": 30.0, "fair": 0.00412, "poor": 12.3}.items():
        update_local(folder / "store", name, {"milliseconds_per_image": milliseconds})
    (folder / "bed").mkdir()
    bed_store(folder / "bed", 4).path.rename(folder / "other")
    table = "model,source_accuracy,size\nbest,80,1\ngood,70,2\n\nfair,60,\n"
    (folder / "values.csv").write_text(table)


def test_options_of_a_store(run: Run, tmp_path: Path) -> None:
    store_with_times(tmp_path)
    compare("options", run, tmp_path, OPTIONS)


@pytest.mark.parametrize("task", OTHER_OPTIONS)
def test_options_of_other_tasks(run: Run, tmp_path: Path, task: str) -> None:
    write_features(tmp_path, task)
    compare(f"options of {task}", run, tmp_path, OTHER_OPTIONS[task])


def test_commands_of_images(run: Run, photos: Path, tmp_path: Path) -> None:
    rows = [
        f"{p.relative_to(photos)},{p.parts[-3]},{p.parts[-2]}"
        for p in sorted(photos.rglob("*.png"))
    ]
    (tmp_path / "table.csv").write_text("\n".join(["path,domain,label", *rows]))
    shutil.copy(photos / "day/cat/1.png", photos / "night/cat/copy.png")
    (photos / "day/dog/empty.png").touch()
    (tmp_path / "new").mkdir()
    shutil.copy(photos / "night/dog/2.png", tmp_path / "new/1.png")
    (tmp_path / "job").mkdir()
    record = replace(example_run(4), testbed=None, selection=None)
    (tmp_path / "job" / "run.json").write_bytes(sealed(record.to_dict()))
    compare("images", run, tmp_path, PHOTOS)


# --- data ----------------------------------------------------------------------------------------

SEVERAL = ["cat|dog", "dog", "", "cat", "dog", "", "dog", ""]
DATA: Commands = {
    "oddities": "data {}/odd",
    "groups": "data {}/groups.csv --root {}/photos",
    "other columns": "data {}/site.csv --root {}/photos --columns path=file,domain=site,label=y",
    "many classes": "data {}/many --quick",
    "many classes, counts": "data {}/many --quick --counts",
    "numbers": "data {}/numbers.csv --root {}/photos --columns label=age+height",
    "numbers, no such column": "data {}/numbers.csv --root {}/photos --columns label=age+hight",
    "several labels, not said": "data {}/several.csv --root {}/photos",
    "several labels": "data {}/several.csv --root {}/photos --task multilabel",
    "several labels as numbers": "data {}/several.csv --root {}/photos --task regression",
    "no domains": "data {}/cameras.csv --root {}/photos",
    "names": "data {}/names",
    "a large image": "data {}/large",
    "the demo in another folder": "demo --out {}/other",
    "models of patterns": "models demo/*random,demo/cnn_photos,demo/cnn_ph*",
    "models by name": "models demo --name cnn_photos",
}


def write_data(folder: Path, photos: Path, write_image: WriteImage) -> None:
    for name in ("odd", "many", "large", "names"):
        shutil.copytree(photos, folder / name)
    paths = [path.relative_to(photos) for path in sorted(photos.rglob("*.png"))]
    domains, labels = ([path.parts[at] for path in paths] for at in (0, 1))
    numbers = range(len(paths))
    tables: dict[str, tuple[str, list[tuple[object, ...]]]] = {
        "groups": ("path,domain,label,group", [*zip(paths, domains, labels, labels, strict=True)]),
        "site": ("file,site,y", [*zip(paths, domains, labels, strict=True)]),
        "numbers": (
            "path,domain,age,height",
            [(paths[n], domains[n], 20.5 + n, n / 8) for n in numbers],
        ),
        "several": ("path,domain,label", [*zip(paths, domains, SEVERAL, strict=True)]),
        "cameras": (
            "path,label,camera,serial",
            [(paths[n], labels[n], f"camera {n % 2}", n) for n in numbers],
        ),
    }
    for name, (header, rows) in tables.items():
        with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([header.split(","), *rows])
    write_image(folder / "odd/day/bird/1.png")
    write_image(folder / "odd/dusk/cat/1.png")
    (folder / "odd/day/cat/broken.JPG").write_text("this is no picture")
    shutil.copy(folder / "odd/day/dog/1.png", folder / "odd/night/dog/copy.png")
    (folder / "odd/night/loop").symlink_to(folder / "odd")
    for n in range(28):
        write_image(folder / "many/day" / f"class_{n:02d}/1.png")
    write_image(folder / "many/day/class_27/2.png")
    Image.new("1", (20_000, 20_000)).save(folder / "large/day/cat/large.png")
    for name in ("[red] :dog:  straße 猫", "a\x1b[31mb", "x\u202ey", "two\nlines"):
        write_image(folder / "names" / name / "cat/1.png")
        (folder / "names" / name / "cat/:dog:.png").touch()
    (folder / "other/data/holiday").mkdir(parents=True)
    (folder / "other/data/holiday/a.png").write_text("precious")


@pytest.mark.skipif(os.name == "nt", reason="such names are not allowed")
def test_data(run: Run, photos: Path, write_image: WriteImage, tmp_path: Path) -> None:
    write_data(tmp_path, photos, write_image)
    compare("data", run, tmp_path, DATA)
    assert (tmp_path / "other/data/holiday/a.png").read_text() == "precious"
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["data"]


# --- stores of images ----------------------------------------------------------------------------

TWO = "demo/mlp_glyphs_augmented,demo/separable_shapes"
RUN = f"run {{}}/cameras.csv --zoo {TWO} --out {{}}/job --no-baselines --device cpu --top-k 1"


def digit(folder: Path, cell: str, at: int = 1) -> Path:
    return sorted((folder / "data" / cell).glob("*.png"))[at]


def change(folder: Path) -> None:
    """Remove an image, move one, add one, rename a domain."""
    digit(folder, "chalk/0").unlink()
    digit(folder, "chalk/1").rename(folder / "data/chalk/1/moved.png")
    with Image.open(digit(folder, "paper/2")) as image:
        image.rotate(180).save(folder / "data/paper/2/new.png")
    (folder / "data/marker").rename(folder / "data/felt pen")


def remove(folder: Path) -> None:
    """Most images."""
    shutil.rmtree(folder / "data/paper")
    shutil.rmtree(folder / "data/chalk/2")
    shutil.rmtree(folder / "data/felt pen/2")


def same_in_two_domains(folder: Path) -> None:
    shutil.copy(digit(folder, "chalk/0"), folder / "data/paper/0/copy.png")


def damage(folder: Path) -> None:
    file, *_ = sorted((folder / "store/models/separable_shapes").glob("*.features.*.npy"))
    file.unlink()
    file.touch()


def damage_table(folder: Path) -> None:
    for file in (folder / "store/samples").iterdir():
        file.unlink()
        file.touch()


STORES: Commands = {
    "extract": f"extract {{}}/data --zoo {TWO} --store {{}}/store --device cpu",
    "du": "store du {}/store",
    "nothing to sync": "store sync {}/store {}/data",
    "nothing to prune": "store prune {}/store",
    "checked": "store check {}/store",
    "change": change,
    "sync": "store sync {}/store {}/data",
    "synchronised": "store sync {}/store {}/data",
    "du, what can be freed": "store du {}/store",
    "prune": "store prune {}/store",
    "copy": same_in_two_domains,
    "sync, the same image in two domains": "store sync {}/store {}/data",
    "remove": remove,
    "sync, too much": "store sync {}/store {}/data",
    "sync, confirmed": "store sync {}/store {}/data --yes",
    "sync, unlabelled twice": "store sync {}/store {}/data --unlabelled {}/new --unlabelled {}/new",
    "sync, unlabelled domain": "store sync {}/store {}/data --unlabelled chalk={}/new",
    "damage": damage,
    "damaged": "store check {}/store",
    "repaired": "store check {}/store --repair",
    "damage the table": damage_table,
    "damaged table": "store check {}/store --repair",
    "sync, damaged table": "store sync {}/store {}/data",
    "rm, unknown": "store rm {}/store separable_shape",
    "rm": "store rm {}/store mlp_glyphs_augmented mlp_glyphs_augmented",
    "import a": "import {}/a.npz --store {}/a",
    "import b": "import {}/b.npz --store {}/b",
    "import another": "import {}/c.npz --store {}/a",
    "import other rows": "import {}/d.npz --store {}/d",
    "merge": "store merge {}/a {}/b --out {}/both",
    "merge into one of them": "store merge {}/a {}/b --out {}/a",
    "merge one": "store merge {}/a --out {}/c",
    "merge other rows": "store merge {}/a {}/d --out {}/c",
}


def write_stores(folder: Path) -> None:
    draw_digits(folder / "data", 3)
    draw_digits(folder / "new", 1, skip=3)
    columns: dict[str, Any] = {"labels": ["cat", "dog"] * 6, "domains": ["day"] * 5 + ["night"] * 7}
    for name, model, value in (("a", "m1", 1), ("b", "m2", 1), ("c", "m1", 2)):
        arrays: dict[str, Any] = {model: np.full((12, 4), value)}
        np.savez(folder / f"{name}.npz", **arrays, **columns)
    columns["labels"] = ["dog", "cat"] * 6
    np.savez(folder / "d.npz", m3=np.ones((12, 4)), **columns)


def test_stores(run: Run, tmp_path: Path) -> None:
    write_stores(tmp_path)
    compare("stores", run, tmp_path, STORES, without_hashes)


DOMAINS: Commands = {
    "data": "data {}/cameras.csv",
    "extract, not said": f"extract {{}}/cameras.csv --zoo {TWO} --store {{}}/s --device cpu",
    "extract": f"extract {{}}/cameras.csv --zoo {TWO} --store {{}}/s --domains propose",
    "ls": "store ls {}/s",
    "rank": "rank {}/s",
    "extract, one": f"extract {{}}/cameras.csv --zoo {TWO} --store {{}}/store --domains one",
    "rank, one": "rank {}/store",
    "domains": "domains {}/store",
    "domains, one model": "domains {}/store --models separable_shapes --compare camera",
    "use": "domains {}/store --use camera",
    "used": "domains {}/store --no-rank",
    "rank, used": "rank {}/store",
    "use those given": "domains {}/store --use given",
    "use clusters": "domains {}/store --use clusters",
    "sync": "store sync {}/store {}/cameras.csv --domains one",
    "sync, a column": "store sync {}/store {}/cameras.csv --domains column:camera",
    "sync, a word": "store sync {}/store {}/cameras.csv --domains x",
    **{
        f"use {line}": f"domains {{}}/store {line}"
        for line in (
            *("--use camra", "--use clusters:9", "--use clusters --clusters 3"),
            *("--models resnet", "--compare site", "--score logmee"),
        )
    },
    "run": f"{RUN} --domains one",
    "run again": f"{RUN} --domains one",
}


def write_cameras(folder: Path) -> None:
    """Digits of three domains as a table with the column `camera`, but without domains."""
    digits = draw_digits(folder / "digits", 8)
    with (folder / "cameras.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["path", "label", "camera", "serial"])
        for row, image in enumerate(sorted(digits.rglob("*.png"))):
            camera, label, _ = image.relative_to(digits).parts
            writer.writerow([image, label, camera, row])


def test_domains(run: Run, tmp_path: Path) -> None:
    write_cameras(tmp_path)
    compare("domains", run, tmp_path, DOMAINS, without_numbers)


def damage_features(folder: Path) -> None:
    shard = sorted((folder / "store").glob("models/*/*.npy"))[0]
    shard.write_bytes(shard.read_bytes()[:-1] + b"x")


LEAKS: Commands = {
    "data": "data {}/data --store {}/store",
    "check": "store check {}/store",
    "check, none": "store check {}/store --leaks none",
    "check, class": "store check {}/store --leaks class",
    "check, a word": "store check {}/store --leaks some",
    "damage": damage_features,
    "check, damaged": "store check {}/store",
}


def test_leaks(run: Run, tmp_path: Path) -> None:
    extract_copies(tmp_path)
    compare("leaks", run, tmp_path, LEAKS, without_numbers)


def empty(folder: Path) -> None:
    (folder / "empty").mkdir()
    shutil.copytree(folder / "data/chalk", folder / "copy")


def another(folder: Path) -> None:
    sorted((folder / "new").rglob("*.png"))[0].unlink()


TARGETS: Commands = {
    "extract": f"extract {{}}/data --zoo {TWO} --store {{}}/store --device cpu",
    "empty": empty,
    **{
        f"rank {line}": f"rank {{}}/store -q {line}"
        for line in (
            *("--target nev", "--target chalk", "--target chalk={}/new", "--target x={}/nowhere"),
            *("--target {}/empty", "--target {}/copy", "--target {}/new --score lda"),
            *("--target {}/new --stability no", "--target {}/new --max-ms 1e-9"),
            *("--target {}/new --domain-weight no=2", "--zoo demo"),
            "--target {}/new --zoo {}/nowhere.toml",
        )
    },
    **{
        f"fit {line}": f"fit {{}}/store --target {{}}/new --out {{}}/none {line}"
        for line in (
            *("--models separable_shapes", "--models separable --choose pool", "--choose best"),
            "--engine no",
        )
    },
    "rank": "rank {}/store --target {}/new",
    "rank again": "rank {}/store --target new",
    "fit": "fit {}/store --target new --out {}/model",
    "fit, one": "fit {}/store --target new --top-k 1 --out {}/one",
    "change": another,
    "rank, changed": "rank {}/store --target {}/new",
    "store": "store ls {}/store",
}


def test_targets(run: Run, tmp_path: Path) -> None:
    draw_digits(tmp_path / "data", 5)
    draw_digits(tmp_path / "new", 3, skip=5)
    compare("targets", run, tmp_path, TARGETS, without_numbers)


def test_a_run(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers of forward passes differ between processors: only the words are compared."""
    monkeypatch.chdir(draw_digits(tmp_path / "digits", 8).parent)
    line = "run digits --zoo demo/cnn_photos,demo/mlp_glyphs_augmented --out job --device cpu"
    outcome = run(*line.split(), "--no-baselines", "--top-k", "1")
    words = re.sub(r"[\d.,]+|[─━]+", "0", f"{outcome.out}--- stderr\n{outcome.err}")
    file = WRITTEN / "run.txt"
    words = re.sub(r" +", " ", words)
    if os.environ.get("OODZOO_GOLDEN") == "write":
        file.write_text(words, encoding="utf-8")
    assert words == file.read_text(encoding="utf-8")
