"""Bad input on the command line -> the message: one line on stderr, exit code 2, nothing written.

In a command, S is a store of features that were imported (4 domains, no times), N one of numbers, T
one of images, M a predictor of images, P a folder of photos, L a table.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.conftest import Run
from tests.evaluation.data import task_zoo, zoo

import oodzoo
from oodzoo.extraction.importing import import_features

MESSAGES = {
    "rank": [
        ("S --device tpu", "'tpu'"),
        ("S --licence ,", "licence must be names or wildcards"),
        ("S --pareto", "--pareto needs the time per image or the number of parameters"),
        ("S --domain-weight d0", "--domain-weight must be NAME=W, got 'd0'"),
        ("S --domain-weight d0=x", "--domain-weight 'd0=x': 'x' is not a number"),
        ("S --domain-weight d0=-1", "domain 'd0' must be a finite number of at least 0"),
        ("S --domain-weight d0=1 --domain-weight d0=2", "names the domain 'd0' twice"),
        ("S --plot x.gif", "'x.gif' must end in .svg, the only format"),
        ("S --target P", "were imported, so it cannot be run on other images"),
        ("N --target P", "--target needs classes, but the task is 'regression'; leave it out"),
        ("S --zoo demo", "--zoo is only used with --target FOLDER"),
        ("S --score", "requires an argument (see oodzoo rank --help)"),
        ("S --out result.csv", "result.csv"),
        ("S --out L/new/result.json", "is a file"),
        ("S --out P/folder.json", "is a folder"),
        ("S --out s3://bucket/r.json", "is a URL; give a local file or folder here"),
        ("S --out S/result.json", "is inside a feature store"),
    ],
    "select": [
        ("S --top-k 1,", "or auto; got '1,'"),
        ("S --method lasso", "--method must be one of consistent, paper, got 'lasso'"),
        ("S --threshold 0.9", "--threshold 0.9 only applies to --method paper"),
        ("S --score zood", "--score zood orders the models for --top-k, --max-models and --max-ms"),
    ],
    "evaluate": [
        ("S --top-k three", "--top-k must be 1 or more, several such as 1,3,5,7, or auto; got"),
        ("S --max-models 0", "max_models must be 1 or more, got 0"),
        ("S --max-ms 0", "max_ms must be a positive number of milliseconds, got 0.0"),
        ("S --with-target", "domain 'd0' has 12 samples; with_target needs at least 20"),
        ("N --with-target", "needs classes, but the task is 'regression'"),
        ("S --published Pacs", "did you mean PACS?"),
        ("S --protocol domainbed --search-space PACS", "unknown search space 'PACS'; expected one"),
        ("S --selection oracle", "--selection is only used with --protocol domainbed; leave it"),
        ("S --tune", "give them with data= (--data DATA)"),
        ("S --tune --root x", "--root 'x' is only used with --data; leave it out"),
        ("S --max-hours 1", "max_hours is only used with tune (--tune); leave it out"),
        ("S --tune-steps 4", "--tune-steps is only used with --tune; leave it out"),
        ("S --tune --learning-rate high", "must be one or more numbers"),
    ],
    "fit": [
        ("T --out new --max-models 0", "max_models must be 1 or more, got 0"),
        ("T --out new --max-ms 1e-9", "no model meets --max-ms 1e-09: the fastest"),
        ("T --out new --threshold 0.3", "only applies to the method 'paper'"),
        ("T --out P", "is not a predictor"),
        ("T --out new --top-k 0", "--top-k must be"),
        ("T --out new --from zoo.toml", "zoo.toml' is no result of oodzoo; --from takes what oodz"),
        ("missing --out s4://bucket/model", "unknown protocol 's4'; did you mean s3"),
        ("missing --out s3://", "names no bucket"),
        ("T --out new --log-file no/log.txt", "cannot write"),
    ],
    "predict": [
        ("M nowhere.png", "no such file or folder: 'nowhere.png'"),
        ("nowhere P", "no such predictor: 'nowhere'"),
        ("M P --format xml", "unknown format 'xml'"),
        ("M P --json --format csv", "--json prints one JSON document"),
        ("M P --batch-size 0", "batch size"),
        ("M P --out P", "is a folder"),
        ("M P --out x.xls", "the suffix '.xls' sets no format; use .csv or .jsonl or .json"),
        ("M P --top 0", "--top must be 1 or more, got 0"),
        ("M P --min-confidence 90", "must be from 0 to 1, got 90.0"),
        ("M P --coverage 0.5", "the coverage must be one of 0.8, 0.9, 0.95, got 0.5"),
        ("M P --link soft", "--link soft is for --sort-into"),
        ("M P -0", "--null is for lists"),
        ("M", "nothing to predict; give images"),
        ("M --list none.txt", "no such file: 'none.txt'"),
        ("M --list P", "give it without --list"),
        ("M L", "does not read tables of images; give images or folders of them"),
    ],
    "test": [
        ("M P --out page.pdf", "the page is HTML; name a file *.html"),
        ("M P --domains camera", "--domains must be propose, one or column"),
        ("M P", "none of the classes of"),
    ],
    "testbed": [
        ("paper x.json", "testbed paper does not take other arguments, got x.json"),
        ("compare a --timm-results b", "compare does not take --timm-results, got b"),
        ("compare", "testbed compare needs results"),
        ("compare absent.json", "cannot read the result 'absent.json'"),
        ("compare a --values b", "testbed compare does not take --values"),
        ("S --protocol x", "expected one of unseen, all"),
    ],
    "models": [
        ("demo --source keras", "unknown source 'keras'"),
        ("demo --max-parameters -1", "max_parameters must be a positive number such as"),
        ("demo --licence apache", "no model meets --licence apache: licences are Apache"),
        ("demo/cnm*", "the zoo demo has no model that matches 'cnm*'; did you mean con* or cnn*?"),
    ],
    "extract": [
        (f"P --zoo demo/cnn_photos --store s {given}", words)
        for given, words in (
            ("--batch-size many", "--batch-size must be a number or auto, got 'many'"),
            ("--limit 3", "a sample of 3 images is too small"),
            ("--budget soon", "a budget is a duration above 0, such as 30m, 2h, 1h30m or 90s"),
            ("--root .", "root= is not used with"),
            ("--shard 9/8", "the shard '9/8' does not exist: I/N counts from 1/8 to 8/8"),
            ("--shard x", "the shard must be I/N, such as 3/8, got 'x'"),
            ("--shard 1/2 --device cpu,cpu", "shard 1/2 and the devices cpu,cpu both"),
            ("--shard 1/2 --budget 1h", "does a part of the work, but a race compares all models"),
            ("--address host:6379", "'host:6379' is of a Ray cluster; add the engine ray"),
            ("--log-file nowhere/log", "cannot write '"),
            ("--store L", "a file where a folder is needed"),
            ("--store P", "is neither empty nor a feature store (it contains 'day')"),
            ("--zoo nowhere.toml", "no such zoo file: 'nowhere.toml'; did you mean zoo.toml"),
            ("--class-names cat=a", "lack 1 class of the data: 'dog'"),
            ("--class-names zero.txt", "there is no file 'zero.txt'"),
            ("--prompt photo", "the prompt 'photo' has no place"),
            ("--prompts none.txt", "cannot read 'none.txt'"),
            ("--prompt {} --prompts x", "--prompt '{}' and --prompts 'x' both give"),
            ("--unlabelled P --unlabelled P", "two folders of unlabelled images are named"),
        )
    ],
    "data": [
        ("P/day/cat/1.png", "is a file"),
        ("empty", "no image found"),
        ("P --task regression", "its labels are names of folders"),
        ("P --store S --quick", "--store compares the images, --quick does not open them"),
        ("L --domains site", "--domains must be propose, one or column:NAME, got 'site'"),
        ("P --jsn", "no such option '--jsn'; did you mean --json"),
    ],
    "run": [
        ("P --zoo demo --out new --top-k three", "got 'three'"),
        ("P --zoo demo --out new --tensorboard new/log", "is inside the folder of the run"),
        ("--config none.toml", "cannot read"),
    ],
    "": [
        ("rnk", "no such command 'rnk'; did you mean rank"),
        ("-v rank", "no such option '-v'; write it after the command"),
        ("report gone", "'gone' has no run.json; give the folder that"),
        ("import x.npz --store new", "no such file"),
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def inputs(
    store: oodzoo.FeatureStore, saved: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """What commands read. Tests must not change it."""
    folder = tmp_path_factory.mktemp("inputs")
    for name, (features, y, domains) in (
        ("imported", zoo(n=12)),
        ("numbers", task_zoo("regression", n=12, n_domains=3)),
    ):
        np.savez(folder / f"{name}.npz", labels=y, domains=domains, allow_pickle=False, **features)
        task = "regression" if name == "numbers" else None
        import_features([folder / f"{name}.npz"], folder / name, task=task)
    shutil.copytree(store.path, folder / "store")
    shutil.copytree(saved, folder / "model")
    (folder / "table.csv").write_text("path,domain,label\na.png,north,cat\n")
    return folder


@pytest.mark.parametrize(
    ("command", "line", "words"),
    [(command, line, words) for command, some in MESSAGES.items() for line, words in some],
)
def test_message(
    run: Run,
    inputs: Path,
    photos: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    line: str,
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "zoo.toml").write_text("[[model]]\n")
    (photos / "folder.json").mkdir()
    places = {
        "S": inputs / "imported", "N": inputs / "numbers", "T": inputs / "store",
        "M": inputs / "model", "L": inputs / "table.csv", "P": photos,
    }  # fmt: skip
    arguments = []
    for word in line.split():
        first, slash, rest = word.partition("/")
        name, equals, value = first.rpartition("=")
        place = f"{name}{equals}{places.get(value, value)}"
        arguments.append(f"{place}{slash}{rest}")
    before = sorted(tmp_path.rglob("*"))
    given = [command, "--quiet", *arguments] if command else arguments
    assert words in run(*given).complaint
    assert sorted(tmp_path.rglob("*")) == before
