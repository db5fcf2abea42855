"""The page as text: what is on it, what is not, and that its figures are those of the record."""

from __future__ import annotations

import base64
import copy
import csv
import io
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tests.report.example import CLASSES, DOMAINS, example_run

from oodzoo._io import write_json
from oodzoo.errors import InputError
from oodzoo.report import page, write_report

SECTIONS = {
    "ranking": ["ranking", "domains"],
    "evaluation": ["combination"],
    "selection": ["features"],
    "testbed": ["testbed"],
    "data": ["data"],
}


class Reader(HTMLParser):
    """What a browser would make of the page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    handle_startendtag = handle_starttag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def sections(self) -> list[str | None]:
        return [a["id"] for tag, a in self.tags if tag == "section" and "id" in a]

    def table(self, ident: str) -> list[dict[str, str]]:
        """A CSV of the page, parsed."""
        (href,) = (a["href"] for _, a in self.tags if a.get("download") == f"{ident}.csv")
        assert href is not None
        content = base64.b64decode(href.removeprefix("data:text/csv;charset=utf-8;base64,"))
        return list(csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline="")))


@pytest.fixture(scope="module")
def run() -> dict[str, Any]:
    return example_run()


@pytest.fixture(scope="module")
def read(run: dict[str, Any]) -> Reader:
    return Reader(page(run))


def test_all_sections(read: Reader) -> None:
    expected = ["ranking", "combination", "features", "domains", "testbed", "data", "made"]
    assert read.sections == expected


@pytest.mark.parametrize("part", SECTIONS)
@pytest.mark.parametrize("missing", [None, "absent"])
def test_a_part_that_is_absent_is_left_out(
    run: dict[str, Any], part: str, missing: str | None
) -> None:
    less = {key: value for key, value in run.items() if key != part}
    if missing is None:
        less[part] = None
    read = Reader(page(less))
    assert not set(SECTIONS[part]) & set(read.sections)
    assert len(read.sections) == 7 - len(SECTIONS[part])
    assert f"#{SECTIONS[part][0]}" not in [a.get("href") for _, a in read.tags]


def test_a_run_that_has_hardly_begun() -> None:
    text = page({"schema": 1})
    assert Reader(text).sections == []
    assert "has no ranking" in text
    assert "Take" not in "".join(Reader(text).words)


def test_rank_only(run: dict[str, Any]) -> None:
    text = page({"schema": 1, "ranking": run["ranking"]})
    assert Reader(text).sections == ["ranking", "domains"]
    assert "Measured" not in text


def test_the_finding(run: dict[str, Any]) -> None:
    words = " ".join("".join(Reader(page(run)).words).split())
    best = run["ranking"]["ranking"][0]
    expected = f"{best['expected_accuracy']:.0f} % on an unseen domain"
    assert f"Take {best['model']}: expect about {expected}" in words


def test_no_model_is_advised_that_may_as_well_be_the_last(run: dict[str, Any]) -> None:
    unsure = copy.deepcopy(run["ranking"])
    first = unsure["ranking"][0]
    first |= {"rank_interval": [1, 27], "expected_accuracy": 53.2}
    words = " ".join("".join(Reader(page(run | {"ranking": unsure})).words).split())
    expected = f"No model is clearly first; {first['model']} leads with about 53 % on an unseen"
    assert expected in words
    assert "Take model" not in words
    first["rank_interval"] = [1, 26]
    assert "No model is clearly first" not in page(run | {"ranking": unsure})


def test_the_only_model_is_first() -> None:
    words = "".join(Reader(page(example_run(1))).words)
    assert "Take model_000_imagenet" in words
    assert "1st of 1" in words


def test_both_ends_of_a_range_stay_together(run: dict[str, Any]) -> None:
    low, high = run["ranking"]["ranking"][0]["accuracy_interval"]
    together = f'<span class="together">{low:.0f}–{high:.0f}\N{NO-BREAK SPACE}%</span>'
    assert f"interval of the mean {together}" in page(run)


def test_findings_of_the_evaluation_are_told(run: dict[str, Any]) -> None:
    told = run["evaluation"] | {"findings": ["Selection is no better than chance.", "So it is."]}
    text = page(run | {"evaluation": told})
    assert text.count("Selection is no better than chance.") > 1
    assert "So it is." in text
    assert "Measured with linear heads" not in text
    assert "Measured with linear heads" in page(run)


def test_a_clear_winner_is_called_one(run: dict[str, Any]) -> None:
    clear = copy.deepcopy(run["ranking"])
    clear["ranking"][0] |= {"rank_interval": [1, 1], "tied": []}
    assert "clearly ahead of the other 26" in page({"schema": 1, "ranking": clear})
    assert "clearly ahead" not in page(run)


def test_csv_of_the_ranking_equals_the_record(run: dict[str, Any], read: Reader) -> None:
    rows = read.table("ranking")
    for row, given in zip(rows, run["ranking"]["ranking"], strict=True):
        assert row["model"] == given["model"]
        for key in ("rank", "score", "discriminability", "stability", "milliseconds"):
            assert float(row[key]) == given[key]
        assert [float(row["accuracy_low"]), float(row["accuracy_high"])] == given[
            "accuracy_interval"
        ]
        assert row["tied"].split(";") == given["tied"]


def test_csv_of_terms_equals_the_record(run: dict[str, Any], read: Reader) -> None:
    for term in ("discriminability", "stability"):
        for row, given in zip(
            read.table(f"{term}-by-domain"), run["ranking"]["ranking"], strict=True
        ):
            assert row.pop("model") == given["model"]
            assert {domain: float(value) for domain, value in row.items()} == {
                fold["domain"]: fold[term] for fold in given["folds"]
            }


def test_csv_of_left_out_domains(run: dict[str, Any], read: Reader) -> None:
    rows = read.table("left-out-domains")
    assert {row["domain"] for row in rows} == set(DOMAINS)
    assert sum(float(row["cost"]) for row in rows) == pytest.approx(0, abs=1e-9)
    for row in rows:
        values = [
            fold["accuracy"]
            for line in run["ranking"]["ranking"]
            for fold in line["folds"]
            if fold["domain"] == row["domain"]
        ]
        assert float(row["mean_accuracy"]) == pytest.approx(sum(values) / len(values))
        assert float(row["highest"]) == max(values)


def test_csv_of_accuracy_equals_the_record(run: dict[str, Any], read: Reader) -> None:
    evaluation = run["evaluation"]
    ways = {"Single": "single", "Ensemble": "ensemble", "Selection": "selection"}
    rows = read.table("accuracy")
    assert {row["way"] for row in rows} == {*ways, "Random features", "Oracle", "Best by logme"}
    for row in rows:
        if row["way"] not in ways:
            continue
        given = evaluation[ways[row["way"]]]
        if row["domain"] == "average":
            assert float(row["accuracy"]) == given["average"]
        else:
            assert float(row["accuracy"]) == given["domains"][row["domain"]]
            assert row["models"].split(";") == given["models"][row["domain"]]
            assert int(row["n_features"]) == given["n_features"][row["domain"]]
    for row, entry in zip(read.table("accuracy-over-k"), evaluation["ablation"], strict=True):
        assert int(row["top_k"]) == entry["top_k"]
        assert float(row["selection"]) == entry["selection"]["average"]


def test_baselines_keep_one_order(run: dict[str, Any]) -> None:
    row = run["evaluation"]["baselines"]["oracle"]
    names = ["best_by_zzz", "oracle", "best_by_lda", "random_features", "best_by_h_score"]
    for order in (names, names[::-1]):
        baselines = {key: row | {"average": 50.0 + at} for at, key in enumerate(order)}
        text = page(run | {"evaluation": run["evaluation"] | {"baselines": baselines}})
        ways = list(dict.fromkeys(line["way"] for line in Reader(text).table("accuracy")))
        assert ways[3:] == [
            "Random features", "Oracle", "Best by h_score", "Best by lda", "Best by zzz"
        ]  # fmt: skip


def test_names_of_columns_are_unique(read: Reader) -> None:
    for _, attributes in read.tags:
        if "download" in attributes:
            href = attributes["href"] or ""
            header = base64.b64decode(href.split(",")[1]).decode("utf-8-sig").split("\r\n")[0]
            columns = next(csv.reader([header]))
            assert len(columns) == len(set(columns)), columns


def test_csv_of_selection_equals_the_record(run: dict[str, Any], read: Reader) -> None:
    rows = read.table("inclusion-probabilities")
    counts = [
        count for row in run["selection"]["per_model"] for count in row["inclusion_histogram"]
    ]
    assert [int(row["features"]) for row in rows] == counts
    kept = [int(row["n_selected"]) for row in read.table("features-kept")]
    assert kept == [row["n_selected"] for row in run["selection"]["per_model"]]
    assert [row["class"] for row in read.table("features-by-class")] == list(CLASSES)


def test_csv_of_scores_equals_the_record(run: dict[str, Any], read: Reader) -> None:
    scores = run["testbed"]["scores"]
    rows = read.table("scores")
    assert [float(row["weighted_tau"]) for row in rows] == sorted(
        (score["weighted_tau"] for score in scores.values()), reverse=True
    )
    for row in read.table("score-values"):
        for name, score in scores.items():
            given = score["values"][row["model"]]
            assert row[name] == ("" if given is None else repr(given))
        assert float(row["probe_accuracy"]) == run["testbed"]["accuracy"][row["model"]]


def test_csv_of_data_and_times(run: dict[str, Any], read: Reader) -> None:
    counts = read.table("counts")
    assert [row["class"] for row in counts] == [*CLASSES, "all classes"]
    assert int(counts[-1]["all"]) == run["data"]["images"]
    assert [float(row["seconds"]) for row in read.table("times")] == [421.4, 2.31, 15.2]


def test_every_table_and_picture_has_its_figures_beside_it(read: Reader) -> None:
    figures = [a for tag, a in read.tags if tag == "figure"]
    downloads = [a["download"] for _, a in read.tags if "download" in a]
    tables = [a["id"] for tag, a in read.tags if tag == "table"]
    assert len(figures) == len(downloads) == len(tables) == len(set(downloads))


def test_pictures_say_what_they_show(run: dict[str, Any], read: Reader) -> None:
    labels = [a["aria-label"] for tag, a in read.tags if tag == "svg"]
    assert len(labels) == 2 * 7 + 3 + len(run["testbed"]["scores"])
    for label in labels:
        assert label
        assert re.search(r"\d", label)  # a finding has figures
    assert all(a["role"] == "img" for tag, a in read.tags if tag == "svg")


def test_tables_have_headers_with_scope(read: Reader) -> None:
    scopes = [a.get("scope") for tag, a in read.tags if tag == "th"]
    assert set(scopes) == {"col", "row"}


def test_nothing_is_loaded_from_elsewhere(read: Reader) -> None:
    for tag, attributes in read.tags:
        for name in ("src", "href", "srcset", "action", "data", "poster"):
            value = attributes.get(name)
            assert value is None or value.startswith(("data:", "#")), (tag, value)
    assert not {"link", "iframe", "object", "embed", "base"} & {tag for tag, _ in read.tags}
    text = page(example_run())
    assert not re.search(r"https?://|url\(|@import", text)


def test_scores_that_cannot_be_told_apart_are_named(run: dict[str, Any]) -> None:
    assert "It cannot be told apart from accuracy and lda." in page(run)
    sure = run | {"testbed": run["testbed"] | {"indistinguishable": []}}
    assert "It cannot be told apart" not in page(sure)
    names = list(run["testbed"]["scores"])
    pairs = [[one, other] for at, one in enumerate(names) for other in names[at + 1 :]]
    none = run["testbed"] | {"indistinguishable": pairs}
    assert "No score can be told apart from another here." in page(run | {"testbed": none})
    none["indistinguishable"] = [pair for pair in pairs if "zood" in pair]
    assert "No score can be told apart from the best here." in page(run | {"testbed": none})


def test_settings_are_told_in_words() -> None:
    settings = {"batch_size": None, "baselines": True, "deep": {"top_k": [1, 3], "fast": False}}
    versions = {"numpy": None}
    words = Reader(page({"schema": 1, "settings": settings, "versions": versions})).words
    told = [word for word in words if word.strip()]
    at = told.index("batch_size")
    assert told[at : at + 8] == [
        "batch_size", "chosen", "baselines", "yes", "deep.top_k", "1, 3", "deep.fast", "no"
    ]  # fmt: skip
    assert told[told.index("numpy") + 1] == "–"


def test_a_score_of_few_models_is_not_called_the_best(run: dict[str, Any]) -> None:
    scores = run["testbed"]["scores"]
    few = scores | {"leep": scores["leep"] | {"weighted_tau": 0.99}}
    assert "oodzoo orders these 27 models best" in page(
        run | {"testbed": run["testbed"] | {"scores": few}}
    )


def test_size_of_27_models(run: dict[str, Any]) -> None:
    assert len(page(run).encode()) < 1_500_000


def test_many_models_domains_and_classes() -> None:
    text = page(example_run(200, [f"d{at}" for at in range(20)], [f"c{at}" for at in range(345)]))
    read = Reader(text)
    assert len(read.table("ranking")) == 200
    assert len(read.table("counts")) == 346
    assert "the table holds all 200" in text
    assert len(text) < 6_000_000


ODD = ["<script>alert(1)</script>", '"q\'" & <b>', "</style>-->", "{{ 7 * 7 }}", "网络", "x" * 300]


def test_names_are_never_markup() -> None:
    text = page(example_run(models=ODD, domains=ODD[:4], classes=ODD[:5]))
    read = Reader(text)
    assert [tag for tag, _ in read.tags].count("script") == 1
    assert not {"b", "i"} & {tag for tag, _ in read.tags}
    assert "49" not in [word.strip() for word in read.words]
    assert [row["model"] for row in read.table("ranking")] == ODD
    assert not any(name.startswith("on") for _, a in read.tags for name in a)


def test_figures_that_are_missing(run: dict[str, Any]) -> None:
    odd = copy.deepcopy(run)
    for row in odd["ranking"]["ranking"]:
        row |= {"rank_interval": None, "parameters": None, "milliseconds": None, "tied": []}
    odd["ranking"]["score"] = "logme"
    odd["evaluation"]["top_k"] = dict(zip(DOMAINS, (1, 2, 3, 3), strict=True))
    odd["evaluation"]["selection"]["error"] = None
    del odd["evaluation"]["baselines"], odd["evaluation"]["ablation"]
    odd["testbed"]["scores"]["leep"] |= {"weighted_tau": None, "interval": None, "tau": None}
    read = Reader(page(odd))
    assert len(read.sections) == 7
    assert "nan" not in " ".join(read.words).lower().split()
    assert read.table("ranking")[0]["parameters_million"] == ""


def test_one_model_one_of_everything() -> None:
    read = Reader(page(example_run(1, ["only"], ["one"])))
    assert len(read.table("ranking")) == 1


def test_constant_figures(run: dict[str, Any]) -> None:
    flat = copy.deepcopy(run["ranking"])
    for row in flat["ranking"]:
        row |= {"score": 0.0, "discriminability": 0.0, "stability": 0.0, "expected_accuracy": 0.0}
        row["accuracy_interval"] = [0.0, 0.0]
        for fold in row["folds"]:
            fold |= {"discriminability": 0.0, "stability": 0.0, "accuracy": 100.0}
    read = Reader(page({"schema": 1, "ranking": flat}))
    places = ("x", "y", "width", "height", "cx", "cy", "x1", "x2", "y1", "y2", "fill-opacity")
    values = [float(a[name] or 0) for _, a in read.tags for name in places if name in a]
    assert len(values) > 1000
    assert all(math.isfinite(value) for value in values)


def test_thumbnails_come_from_the_data_while_they_are_there(
    run: dict[str, Any], photos: Path
) -> None:
    data = {
        "path": str(photos),
        "images": 8,
        "classes": ["cat", "dog"],
        "domains": {
            name: {"images": 4, "classes": {"cat": 2, "dog": 2}} for name in ("day", "night")
        },
    }
    read = Reader(page(run | {"data": data}))
    images = [a for tag, a in read.tags if tag == "img"]
    assert len(images) == 8
    assert {a["alt"] for a in images} == {
        "cat, day", "dog, day", "cat, night", "dog, night"
    }  # fmt: skip
    source = images[0]["src"]
    assert source is not None
    content = base64.b64decode(source.removeprefix("data:image/jpeg;base64,"))
    with Image.open(io.BytesIO(content)) as image:
        assert image.size == (72, 72)
    gone = Reader(page(run | {"data": data | {"path": str(photos / "gone")}}))
    assert not [a for tag, a in gone.tags if tag == "img"]


def test_the_same_record_gives_the_same_page(run: dict[str, Any]) -> None:
    assert page(run) == page(copy.deepcopy(run))


def test_writing(run: dict[str, Any], tmp_path: Path) -> None:
    write_json(tmp_path / "run.json", run)
    assert write_report(tmp_path) == tmp_path / "report.html"
    # the record was sorted by key when it was written, so columns of domains may change places
    assert (tmp_path / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    other = write_report(tmp_path, tmp_path / "elsewhere" / "page.html")
    assert other.read_bytes() == (tmp_path / "report.html").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "elsewhere",
        "report.html",
        "run.json",
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "has no run.json; give the folder"),
        ("{", "is damaged"),
        ("[]", "holds no JSON object"),
        ("{}", "has schema None, and this oodzoo reads 1"),
        ('{"schema": 99}', "has schema 99"),
        ('{"schema": 1, "ranking": []}', "its 'ranking' is list"),
        ('{"schema": 1, "ranking": {"ranking": [{}]}}', "the part 'ranking' of run.json"),
        ('{"schema": 1, "evaluation": {"single": {"x": 1}}}', "the part 'evaluation' of run.json"),
        ('{"schema": 1, "testbed": {"scores": {"a": {}}}}', "the part 'testbed' of run.json"),
        ('{"schema": 1, "stages": [{}]}', "the part 'stages' of run.json"),
    ],
)
def test_a_record_that_cannot_be_read(tmp_path: Path, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / "run.json").write_text(content, encoding="utf-8")
    with pytest.raises(InputError) as refused:
        write_report(tmp_path)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "report.html").exists()
