"""Sources of images that are refused: what a person gives, and what the message says."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.sources.kinds import TABLES, columns_of, torchvision, write_parquet, write_tar

from oodzoo import ImageDomains, InputError
from oodzoo.data.listing import Sample

WriteImage = Callable[[Path], Path]
Make = Callable[[], Any]
PIXELS = np.random.default_rng(0).integers(0, 256, (4, 6, 7, 3), np.uint8)
ROLES: dict[str, Any] = {"labels": [0, 1, 0, 1], "domains": ["day", "day", "night", "night"]}
LINUX = os.name != "nt" and os.uname().sysname == "Linux"


@pytest.fixture(autouse=True)
def here(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All paths are relative to a folder with `photos`."""
    monkeypatch.chdir(photos.parent)
    monkeypatch.delitem(os.environ, "OODZOO_FOLLOW_LINKS", raising=False)


def refusal(source: Any, **options: Any) -> str:
    """The message of an InputError: one line that can be printed."""
    with pytest.raises(InputError) as caught:
        ImageDomains(source() if isinstance(source, Made) else source, **options)
    message = str(caught.value)
    assert "\n" not in message
    message.encode()
    return message


class Made:
    """A source that is made in the folder of the test."""

    def __init__(self, make: Make) -> None:
        self.make = make

    def __call__(self) -> Any:
        return self.make()


def cases(*rows: tuple[Any, dict[str, Any], str]) -> pytest.MarkDecorator:
    ids = [f"{at}: {words[:40]}" for at, (_, _, words) in enumerate(rows)]
    return pytest.mark.parametrize(("source", "options", "words"), rows, ids=ids)


def images(*names: str, root: str = "made") -> Made:
    """A folder of images, and of empty folders for names that end with a slash."""

    def make() -> str:
        numbers = count(1)
        for name in names:
            path = Path(root, name)
            (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
            if not name.endswith("/"):
                Image.new("L", (2, 2), next(numbers)).save(path, "PNG")
        return root

    return Made(make)


def link(path: str, target: str, source: str) -> Made:
    def make() -> str:
        Path(path).symlink_to(target)
        return source

    return Made(make)


def csv(text: str | bytes) -> Made:
    def make() -> Path:
        path = Path("photos/table.csv")
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return Made(make)


# --- paths, URLs and options ------------------------------------------------------------------


@cases(
    ("x" * 300, {}, f"'{'x' * 300}'"),
    ("photos-{0..3}.tar", {}, "no such file: 'photos-0.tar', which 'photos-{0..3}.tar' means"),
    ("", {}, "DATA is empty; give a folder, a file or a URL"),
    (3, {}, "cannot read images from an object of type int; give a path, a URL"),
    (Path("s3://bucket/photos"), {}, "s3:/bucket/photos"),
    ("nope://bucket/photos", {}, "nope"),
    ("https://server/photos", {}, "a web server gives no list of files; give the URLs of files"),
    ("hf://ada/photos", {}, "does not name a data set; did you mean hf://datasets/ada/photos?"),
    ("hf://datasets/photos", {}, "does not name a data set; expected hf://datasets/OWNER/NAME"),
    ("hf://datasets/ada/photos?x=1", {}, "; expected hf://datasets/OWNER/NAME[@REVISION]"),
    ("memory://empty/photos", {}, "no files found below 'memory://empty/photos'; check the URL"),
    ("photos", {"columns": {"label": 3}}, "columns= must be a dict"),
    ([b"1", b"2"], {"labels": [0, 1], "domains": "site"},
     ("domains= is one string, 'site'; give one value for each image, or name a column with "
     "columns={'domain': 'site'}")),
)  # fmt: skip
def test_places_and_options(source: Any, options: dict[str, Any], words: str) -> None:
    assert words in refusal(source, **options)


# --- folders ----------------------------------------------------------------------------------


@cases(
    (images("cat/1.png", "cat/2.png", "dog/1.png", "dog/more/1.png"), {},
     "'made' has only 1 image in root/domain/class/image; found 3 one level too high"),
    (images("day/cat/1.png", "day/dog/2.png", "night/dog/"), {}, "has one domain, 'day'; at least"),
    (".", {}, ("'.' has one domain, 'photos', and 8 of its 8 images are one level or more too low, "
     "as 'photos/day/cat/1.png'; expected root/domain/class/image: give 'photos'?")),
    ({"cat": "photos/day/cat", "dog": "photos/day/dog"}, {},
     "domain 'cat': no image found in 'photos/day/cat': expected a folder class/image"),
)  # fmt: skip
def test_folders(source: Any, options: dict[str, Any], words: str) -> None:
    assert words in refusal(source, **options)


@pytest.mark.skipif(not LINUX, reason="names are bytes only on Linux")
@pytest.mark.parametrize(
    "name", [b"day/cat/caf\xe9.png", b"day/caf\xe9/1.png", b"caf\xe9/cat/1.png"]
)
def test_names_that_are_not_utf8(name: bytes, write_image: WriteImage) -> None:
    write_image(Path("photos", os.fsdecode(name)))
    assert r"is not valid UTF-8: b'caf\xe9" in refusal("photos")


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("mode", [0o000, 0o444])  # 444: names can be listed, not looked at
def test_folders_without_permission(mode: int) -> None:
    Path("photos/day/cat").chmod(mode)
    try:
        assert "Permission denied" in refusal("photos")
    finally:
        Path("photos/day/cat").chmod(0o755)


# --- CSV tables -------------------------------------------------------------------------------

HEAD = "path,domain,label\n"
ROWS = "day/cat/1.png,day,cat\nnight/dog/1.png,night,dog\n"
TABLE = "'photos/table.csv'"


@cases(
    (csv(HEAD + ROWS + "x.png, ,cat\n"), {}, "line 4: no domain in 'x.png, ,cat'"),
    (csv(HEAD + "day/cat/1.png,day,cat, black\n"), {},
     "line 2: 4 cells, but the header has 3: 'day/cat/1.png,day,cat, black'; quote cells that con"),
    (csv(HEAD + 'day/cat/1.png,day,"ca\nt"\n\nnone.png,day,"do\ng"\n'), {},
     f"{TABLE}, line 5: no such file in 'photos': 'none.png'; if paths are relative to another fo"),
    (csv(HEAD + ROWS), {"root": "nowhere"}, f"the root of {TABLE} is not a folder: 'nowhere'"),
    (csv(b"path,domain,label\ncaf\xe9.png,day,cat\n"), {}, f"{TABLE} is not UTF-8 text; save it a"),
    (csv(HEAD), {}, f"{TABLE} has no rows"),
    (csv(HEAD + 'day/cat/1.png,day,"cat\n'), {}, f"{TABLE} is not a CSV table: "),
    (csv(HEAD + ROWS), {"columns": {"image": "i"}}, "has no use for a column 'image'; it uses pat"),
    (csv(HEAD + ROWS), {"columns": {"class": "i"}}, f"unknown role 'class' for {TABLE}; expected"),
    ({"day": csv(HEAD + ROWS)}, {}, f"domain 'day': {TABLE} has domains of its own; give it witho"),
    *((csv(HEAD + f"{path},day,cat\n"), {"root": "memory://rows/photos"}, f"the path {path!r} is o")
      for path in ("../x.png", "/x.png", "memory://other/x.png", "day/../../x.png")),
    (csv(HEAD + "9.png,day,cat\n"), {"root": "memory://rows/photos"},
     "line 2: no such file in 'memory://rows/photos': '9.png'"),
    (csv(HEAD + "memory://rows/9.png,day,cat\n"), {}, "line 2: no such file: 'memory://rows/9.png'"),
)  # fmt: skip
def test_csv_tables(source: Any, options: dict[str, Any], words: str) -> None:
    if isinstance(source, dict):
        source = {domain: made() for domain, made in source.items()}
    assert words in refusal(source, **options)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("label=y,,domain=d", "got ''"),
        ("class=y", "unknown role 'class' in 'class=y'; expected one of path, image, text"),
        ("label=y,label=z", "columns name 'label' twice"),
        ("label = y,domain=site", "has no columns 'site', 'y', it has 'path', 'dom"),
    ],
)
def test_columns_of_the_command_line(text: str, words: str, run: Callable[..., Any]) -> None:
    table = csv(HEAD + ROWS)()
    assert words in run("data", table, "--columns", text).complaint


# --- labels of tables -------------------------------------------------------------------------

AGES = [20.5 + 3.25 * n for n in range(8)]


def labelled(labels: list[Any], name: str = "label") -> Made:
    def make() -> Any:
        columns = columns_of(ImageDomains(Path("photos").absolute()))
        del columns["label"]
        return TABLES["CSV"](columns | {name: labels}, Path("photos"))

    return Made(make)


@cases(
    (labelled([1.5] * 8), {}, "is constant: 1.5 in all 8 samples"),
    (labelled([*AGES[:5], "", *AGES[6:]]), {}, "photos.csv', line 7: no label in"),
    (labelled([*AGES[:5], "tall", *AGES[6:]]), {}, "line 7: the label 'tall' is not a number, as"),
    (labelled(AGES), {"columns": {"label": "label+label"}}, "name the column 'label' twice"),
    (labelled(["a|b", "b"] * 4), {}, "such as 'a|b' could be"),
    (labelled(["a|b"] * 8), {"task": "multilabel"}, "has the same labels in all 8 samples"),
    ({"day": (list(PIXELS), AGES[:4]), "night": (list(PIXELS), list("abab"))}, {},
     "the domains of 'dict' have labels of several kinds: classification and regression; say whic"),
)  # fmt: skip
def test_labels(source: Any, options: dict[str, Any], words: str) -> None:
    assert words in refusal(source, **options)


# --- the same mistakes in all tables ----------------------------------------------------------


NO_PATHS = ("CSV", "Parquet", "HF in memory", "HF on disk")  # or lines instead of rows
TYPED = ("polars", "Parquet of paths", *NO_PATHS)
MISTAKES: list[tuple[dict[str, list[Any] | None], str, tuple[str, ...]]] = [
    # columns, words, kinds of tables that cannot have it, or say it in another way
    ({"label": None, "labels": [1] * 8}, "has no column 'label'", ()),
    ({"label": None, "labels": [1] * 8}, "did you mean labels? Name it", ()),
    ({"label": ["a"] * 3 + [None] * 5}, "row 3: the label is missing", ("CSV",)),
    ({"domain": [0.5] * 8}, "row 0: the domain is 0.5; give a string", ("CSV",)),
    ({"label": ["cat"] * 3 + [7] + ["cat"] * 4},
     "labels of mixed kinds: 'cat' (string) in row 0 and 7 (integer) in row 3", TYPED),
    ({"path": ["photos/day/cat/1.png"] * 8}, "twice, in rows 0 and 1", NO_PATHS),
    ({"path": [f"photos/no{n}.png" for n in range(8)]}, "row 0: no such file", NO_PATHS),
]  # fmt: skip


@pytest.mark.parametrize("kind", TABLES)
def test_mistakes_in_tables(kind: str) -> None:
    for at, (changed, words, without) in enumerate(MISTAKES):
        if kind not in without:
            columns = columns_of(ImageDomains("photos")) | changed
            given = {name: values for name, values in columns.items() if values is not None}
            folder = Path(f"made{at}")
            folder.mkdir()
            assert words in refusal(TABLES[kind](given, folder))


# --- Parquet files ----------------------------------------------------------------------------


def parquet(**changed: Any) -> Made:
    def make() -> Path:
        columns = columns_of(ImageDomains("photos"))
        columns["image"] = [Path(path).read_bytes() for path in columns["path"]]
        given = {name: v for name, v in (columns | changed).items() if v is not None}
        return write_parquet(Path("photos/x.parquet"), given)

    return Made(make)


def raw(name: str, content: bytes) -> Made:
    def make() -> Path:
        Path(name).write_bytes(content)
        return Path(name)

    return Made(make)


def two_forms() -> str:
    parquet()()
    Path("photos/x.parquet").rename("photos/1.parquet")
    parquet(group=list("abcdefgh"))().rename("photos/2.parquet")
    return "photos/*.parquet"


@cases(
    (parquet(image=[1] * 8), {}, "has int64; it needs the bytes"),
    (parquet(image=[{"path": "x"}] * 8), {}, "has the fields path; it needs bytes"),
    (parquet(image=[{"bytes": "x"}] * 8), {}, "the column 'image.bytes' of 'photos/x.parquet' has"),
    (parquet(path=[], image=None, label=[], domain=[]), {}, "'photos/x.parquet' has no rows"),
    (parquet(image=None, path=["no.png"] * 8), {}, "'photos/x.parquet' lists 'no.png' twice, in r"),
    (raw("x.parquet", b""), {}, "'x.parquet' is not a Parquet file: "),
    (Made(two_forms), {}, ("'photos/1.parquet' has columns for label, domain, path, image, and "
     "'photos/2.parquet' for label, domain, path, group, image; give files of one form")),
)  # fmt: skip
def test_parquet_files(source: Any, options: dict[str, Any], words: str) -> None:
    pytest.importorskip("pyarrow")
    assert words in refusal(source, **options)


# --- tar archives -----------------------------------------------------------------------------


def key(**parts: bytes) -> Made:
    """An archive with the members of one key."""
    members = {f"a/key.{extension.replace('_', '.')}": value for extension, value in parts.items()}
    return Made(lambda: write_tar(Path("one.tar"), members))


def tar(*names: str, second: tuple[str, ...] = ()) -> Made:
    def make() -> str:
        write_tar(Path("a.tar"), dict.fromkeys(names, b"3"))
        if second:
            write_tar(Path("b.tar"), dict.fromkeys(second, b"3"))
        return "{a,b}.tar" if second else "a.tar"

    return Made(make)


def member(name: str, linkname: str = "") -> Made:
    """An archive with an image, and an empty file or a link."""

    def make() -> Path:
        path = write_tar(Path("a.tar"), {"d/c/1.png": b""})
        with tarfile.open(
            path, "a", format=tarfile.GNU_FORMAT, errors="surrogateescape"
        ) as archive:
            info = tarfile.TarInfo(name)
            if linkname:
                info.type, info.linkname = tarfile.SYMTYPE, linkname
            archive.addfile(info)
        return path

    return Made(make)


DAY = {"domain": b"x"}
KEYED = ("1.png", "1.cls", "1.domain")


@cases(
    (tar("cat/1.png", "dog/1.png"), {}, "found 2 one level too high, as in root/class/image"),
    (tar("readme.md"), {}, "no image found in 'a.tar'"),
    (tar(*KEYED, second=KEYED), {}, "'a.tar' and 'b.tar' both have '1'; give each image a name of"),
    (tar("d/c/1.png", second=("d/c/1.png",)), {}, "'a.tar' and 'b.tar' both have 'd/c/1.png'"),
    (tar(*KEYED, "1.PNG"), {}, "'a.tar' has '1.png' and '1.PNG', which differ in upper case only"),
    (tar(*KEYED), {"columns": {"path": "png"}}, "no use for a column 'path'; it uses image, label"),
    (key(png=b"mask", jpg=b"photo", cls=b"c", **DAY), {},
     "which one is the image, 'png' or 'jpg'? Name it with --columns image=NAME"),
    (key(png=b"", json=b'{"label": null, "domain": "x"}'), {}, "has no label"),
    (key(png=b"", cls=b"c", json=b"[" * 100_000), {}, "'a/key.json' is not JSON: "),
    (key(png=b"", cls=bytes((16 << 20) + 1), **DAY), {}, "'a/key.cls' has 16,777,217 bytes"),
    (key(jpg=b"", cls=b"c", **DAY), {"columns": {"image": "png"}}, "has no png beside"),
    (key(png=b"", json=b'{"label": {"c": 1}, "domain": "x"}'), {}, "the label is {'c': 1}"),
    (member("./d/c/1.png"), {}, "'a.tar' has the member 'd/c/1.png' twice"),
    (member("caf\udce9.png"), {}, "'a.tar' has a member whose name is not UTF-8: "),
    *((member("d/c/2.png", linkname=target), {}, "'a.tar': the member 'd/c/2.png' is a link to a f")
      for target in ("/nowhere/1.png", "2.png")),
    (tar("."), {}, "name leads outside: '.'"),
)  # fmt: skip
def test_tar_archives(source: Any, options: dict[str, Any], words: str) -> None:
    assert words in refusal(source, **options)


# --- sequences, dicts and objects -------------------------------------------------------------


class Objects:
    """An object with samples."""

    def __init__(self, samples: Any) -> None:
        self.samples = samples

    def open(self, i: int) -> bytes:
        return b""


class Items:
    """A sequence that is neither a list nor an array."""

    def __init__(self, *rows: Any) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, i: int) -> Any:
        if isinstance(self.rows[i], Exception):
            raise self.rows[i]
        return self.rows[i]() if callable(self.rows[i]) else self.rows[i]


def of_pixels(*labels: Any) -> list[tuple[Any, Any]]:
    return list(zip(PIXELS, labels, strict=False))


random = np.random.default_rng(0)
RANDOM = Items(*[lambda: (random.integers(0, 256, (6, 7, 3), np.uint8), 0)] * 4)
BARE: Any = type("Bare", (), {"domain": "d", "path": "1"})()


@cases(
    ([*PIXELS[:3], PIXELS[3] / 128.0], ROLES, "'list', image 3: float pixels"),
    (np.zeros((4, 3, 5, 3), np.uint8), ROLES, "has its channels first or last; give a Pillow imag"),
    (np.zeros((4, 5, 3), np.uint8), ROLES, "'ndarray' of shape (4, 5, 3) is one image, or several"),
    (PIXELS, {**ROLES, "labels": 5}, "labels= must be a sequence, one for each image; got int"),
    (PIXELS, {**ROLES, "labels": np.eye(4)}, "have exactly one 1 in each row, which could be clas"),
    (PIXELS, {**ROLES, "columns": {"label": "y"}}, "columns= is not used with 'ndarray'"),
    ([b"1", b"2", b"3", b"4"], {**ROLES, "root": "photos"}, "root= is not used with 'list': its i"),
    ([None, "photos/day/cat/1.png"], ROLES, "'list' mixes paths"),
    ([Path("photos/day/cat/1.png"), " ", "", "x"], ROLES, "'list', row 1: the path is missing; gi"),
    (["photos/day/cat/\udce9.png"] * 2 + ["a"] * 2, ROLES, "the path is not valid UTF-8"),
    ([(b"", 0), (b"", 1), 5, (b"", 1)], ROLES, "'list': sample 2 has other parts than the first s"),
    (Items(*[(p, 0, "day", 1, 2) for p in PIXELS]), {}, "a sample has 5 parts; expected"),
    (Items(*of_pixels(0, 0, 0), ValueError("no\nfile")), ROLES | {"labels": None},
     "'Items': sample 3 cannot be read: ValueError: no file"),
    (Items(*of_pixels(0, 1, 0), (PIXELS[3], "a")), ROLES | {"labels": None}, "labels of mixed kin"),
    (Items(*[("a.png", 0)] * 4), ROLES, "'Items', sample 0: str is not an image"),
    (Items(*of_pixels(0, 1, 0, 1)), {"columns": {"label": "y"}}, "columns= is not used with 'Item"),
    (RANDOM, ROLES, "'Items': sample 0 gives another image each time; leave out random transforms"),
    ({"day": (PIXELS,)}, {}, "domain 'day': expected (images, labels) or (images, labels, groups)"),
    ({"day": (PIXELS, [0, 1, 0, 1])}, {}, "'dict' has one domain, 'day'; at least two are needed"),
    ({"a": (PIXELS, [0, 1] * 2), 2: (PIXELS, [0, 1] * 2)}, {}, "'dict' has domains of mixed kinds"),
    ({"day": (PIXELS, [0, 1] * 2)}, {"domains": ["day"] * 4}, "domains= is not used with 'dict'"),
    ({}, {}, "'dict' has no samples"),
    (Objects([Sample("1", "d", "c"), Sample("2", "e", 3)]), {}, "labels of mixed kinds"),  # type: ignore[arg-type]
    (Objects([Sample("1", "d", "c"), Sample("2", "", "c")]), {}, "row 1: the domain is missing"),
    (Objects([Sample(1, "d", "c")]), {}, "the path of sample 0 of Objects must be text, got 1"),  # type: ignore[arg-type]
    (Objects(3), {}, "the samples of Objects must be a sequence, got int"),
    (Objects([BARE]), {}, "sample 0 of Objects has no label; it needs path, domain and label: "),
    (Objects([Sample("1.png", f"d{n}", f"c{n}") for n in (0, 1)]), {}, "'1.png' twice; give each"),
    (Objects([]), {"columns": {"label": "y"}}, "columns= is not used with 'Objects'; leave it out"),
)  # fmt: skip
def test_sequences_dicts_and_objects(source: Any, options: dict[str, Any], words: str) -> None:
    assert words in refusal(source, **options)


def test_what_is_not_a_data_frame() -> None:
    lazy = pytest.importorskip("polars").LazyFrame({"path": []})
    assert "from a LazyFrame; give a DataFrame; call collect() first" in refusal(lazy)
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(columns_of(ImageDomains("photos")))
    twice = pandas.concat([frame, frame], axis=1)
    assert "has the column 'path' twice" in refusal(twice, root="photos")
    assert "row 0: the path is missing" in refusal(frame.assign(path=None))


# --- data sets of PyTorch and Hugging Face ----------------------------------------------------


def test_data_sets_of_pytorch() -> None:
    torch: Any = pytest.importorskip("torch")
    data = torch.utils.data
    tensors = data.TensorDataset(torch.from_numpy(PIXELS), torch.tensor([0, 1, 0, 1]))
    stream: Any = type("Stream", (data.IterableDataset,), {"__iter__": lambda self: iter([])})
    assert "'Stream' is an iterable data set, which cannot be read at a pos" in refusal(stream())
    assert "'Dataset' has no length; give it __len__" in refusal(data.Dataset())
    images: Any = type("Environments", (data.Dataset,), {"ENVIRONMENTS": ("D", "N")})()
    images.datasets = [tensors] * 3
    assert "has 3 environments, but ENVIRONMENTS names 2: 'D', 'N'" in refusal(images)
    folder = torchvision("datasets").ImageFolder("photos")
    for options, words in (
        ({}, "'ImageFolder' has no domains; give domains="),
        ({"domains": ["a"]}, "domains= has 1 value, but 'ImageFolder' has 8 images"),
        ({"root": "."}, "root= is not used with 'ImageFolder'; it takes columns and labels and"),
    ):
        assert words in refusal(folder, **options)
    twice = data.Subset(folder, [0, 0, 7])
    assert "lists 'day/cat/1.png' twice" in refusal(twice, domains=["day", "night", "night"])


def test_data_sets_of_hugging_face() -> None:
    datasets = pytest.importorskip("datasets")
    rows = TABLES["HF in memory"](columns_of(ImageDomains("photos")), Path())
    for stream in (
        rows.to_iterable_dataset(),
        datasets.IterableDatasetDict(train=rows.to_iterable_dataset()),
    ):
        assert "is streamed and cannot be read at a position; load it without" in refusal(stream)
    parts = {"train": rows.remove_columns("domain"), "test": rows.remove_columns("domain")}
    message = refusal(datasets.DatasetDict(parts))
    assert "has no column 'domain'" in message
    assert "or give dict(…) of it to use the splits 'train', 'test' as domains" in message
    other = rows.map(lambda row: {"label": 1})
    message = refusal(datasets.DatasetDict(day=rows, night=other))
    assert "the splits 'day', 'night' of 'DatasetDict' have different columns; give one" in message
    two = rows.rename_column("image", "a").add_column("b", [b"x"] * 8)
    two = two.cast_column("b", datasets.Image())
    classes = rows.class_encode_column("label").class_encode_column("domain")
    renamed = classes.rename_columns({"domain": "site", "label": "kind"})
    unknown = rows.remove_columns("label").add_column("label", [0, 1, -1, 0, 1, 0, 1, 0])
    unknown = unknown.cast_column("label", datasets.ClassLabel(names=["cat", "dog"]))
    for source, options, words in (
        (rows.remove_columns("image"), {}, "'Dataset' has no column 'image', it has"),
        (two, {}, "has several columns of images, 'a', 'b'; name one with --columns image=NAME"),
        (renamed, {"domains": [0, 1] * 4}, "has no column 'label', it has 'image', 'kind', 'site'"),
        (rows.select([]), {}, "'Dataset' has no images"),
        (unknown, {}, "row 2: the label is missing"),
    ):
        assert words in refusal(source, **options)
    rows.save_to_disk("saved")
    assert "root= is not used with 'saved'" in refusal("saved", root="photos")
    (shard,) = Path("saved").glob("*.arrow")
    shard.write_bytes(shard.read_bytes()[:100])
    assert "cannot load 'saved' with datasets: " in refusal("saved")


# --- texts ------------------------------------------------------------------------------------

REVIEWS = {"columns": {"text": "review", "label": "stars", "domain": "site"}}


@cases(
    (csv("review,stars,site\n,up,a\nx,down,b\n"), REVIEWS,
     f"{TABLE}: row 0 has no text in the column 'review', got ''; leave the row out"),
    (csv("review,stars,site\nx,y,down,b\n"), REVIEWS, "row 0: 4 cells, but the header has 3; quot"),
    (csv("review,stars\nx,down\n"), REVIEWS, "has no column 'site' for the domain, it has 'review"),
    (csv(""), REVIEWS, f"{TABLE} has no rows"),
    (csv(b"\xff\xfe\x00\n"), REVIEWS, f"cannot read {TABLE}: "),
    (raw("x.parquet", b"x"), REVIEWS, "'x.parquet' is not a Parquet file: "),
    (raw("a.txt", b"a"), REVIEWS, "a column of texts needs a table (.csv or .parquet), got 'a.txt"),
    ("photos", REVIEWS, "no such file: 'photos'"),
    ("memory://none/x.csv", REVIEWS, "no such file: 'memory://none/x.csv'"),
    (["a", "b"], REVIEWS, "a column of texts needs a table (.csv, .parquet or a DataFrame), got l"),
    (csv("review,stars,site\nx,y,z\n"), REVIEWS | {"root": "."}, f"root= is not used with {TABLE}"),
)  # fmt: skip
def test_texts(source: Any, options: dict[str, Any], words: str) -> None:
    assert words in refusal(source, **options)
