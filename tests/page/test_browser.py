"""The pages of runs and tests in a real browser, opened from a file and offline."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tests.chromium import faults
from tests.report.assessment_example import example_test
from tests.report.example import DOMAINS, example_run

from oodzoo.predictor.assessment import TestResult
from oodzoo.report import page as make_page
from oodzoo.report.assessment_page import assessment_page
from oodzoo.report.record import PredictorSummary, Run

playwright = pytest.importorskip(
    "playwright.sync_api", reason="Playwright is not installed: make page"
)

ODD = [
    "<script>alert(1)</script>",
    '"quo\'te" & <b>',
    "网络" * 30,
    "x" * 300,
    "</style></script>-->",
    "$a_b^c$",
]
ALIKE = [
    "mobilenet_v2_torchvision_imagenet",
    "mobilenet_v2_tonylin_imagenet",
    "mobilenet_v2_google_imagenet",
    "mobilenet_v1_100_224_imagenet",
    "mobilenet_v1_075_192_imagenet",
    "mobilenet_edgetpu_075_imagenet",
]


def _alike_run() -> Run:
    run = example_run(models=ALIKE)
    assert run.evaluation is not None
    baselines = run.evaluation.baselines
    more = dict.fromkeys(["best_by_h_score", "best_by_regularized_h_score"], baselines["oracle"])
    return replace(run, evaluation=replace(run.evaluation, baselines=baselines | more))


def _run(n_models: int = 27, n_domains: int = 4) -> Run:
    made = PredictorSummary("model", ("model_000_imagenet",), "digest")
    return replace(example_run(n_models, DOMAINS[:n_domains]), predictor=made)


def _image() -> bytes:
    content = io.BytesIO()
    Image.new("RGB", (16, 16), (200, 30, 30)).save(content, "PNG")
    return content.getvalue()


TESTS: dict[str, Callable[[], TestResult]] = {
    "test of classes": lambda: example_test(image=_image()),
    "test of odd": lambda: example_test(
        names=["<i>alert</i>", "x" * 90, "网络", "=1+1"],
        domains=["<img src=x onerror=alert(1)>", "z" * 80],
    ),
    "test of many": lambda: example_test(
        names=[f"class_{at}" for at in range(60)], domains=[f"domain {at}" for at in range(40)]
    ),
    "test of numbers": lambda: example_test("regression", ["age", "height"], image=_image()),
    "test of labels": lambda: example_test("multilabel", image=_image()),
}
RUNS: dict[str, Callable[[], Run]] = {
    "27": _run,
    "few": lambda: _run(3, 3),
    "odd": lambda: example_run(
        models=[*ODD, *(f"m{at}" for at in range(5))],
        domains=["<img src=x onerror=alert(1)>", 'a "b"', "ünïcode 域", "z" * 80, "e", "f", "g"],
        classes=["<i>", '"', "'", "a,b", "=1+1"],
    ),
    "alike": _alike_run,
    "target": lambda: example_run(target=True),
    "regression": lambda: example_run(classes=["age", "height"], task="regression"),
    "labels": lambda: example_run(task="multilabel"),
    "many": lambda: example_run(
        80,
        [f"domain number {at} of many" for at in range(16)],
        [f"class_{at}" for at in range(100)],
    ),
}
OVERLAPS = (Path(__file__).parent / "overlaps.js").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("pages")

    def written(name: str) -> Path:
        path = folder / f"{name}.html"
        if not path.exists():
            text = make_page(RUNS[name]()) if name in RUNS else assessment_page(TESTS[name](), "m")
            path.write_text(text, encoding="utf-8")
        return path

    return written


@pytest.fixture
def view(browser: Any, pages: Callable[[str], Path]) -> Iterator[Callable[..., Any]]:
    """Open a page; any message of the browser fails the test."""
    complaints: list[str] = []
    contexts = []

    def refuse(dialog: Any) -> None:
        complaints.append(dialog.message)
        dialog.dismiss()

    def view(name: str = "27", width: int = 1280, scheme: str = "light") -> Any:
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme=scheme,
            offline=True,
            accept_downloads=True,
        )
        contexts.append(context)
        shown = context.new_page()
        shown.on("console", lambda message: complaints.append(message.text))
        shown.on("pageerror", lambda error: complaints.append(str(error)))
        shown.on("requestfailed", lambda request: complaints.append(request.url))
        shown.on("dialog", refuse)
        shown.goto(pages(name).as_uri())
        return shown

    yield view
    for context in contexts:
        context.close()
    assert complaints == []


def column(shown: Any, table: str, at: int) -> list[str]:
    cells = shown.locator(f"#table-{table} tbody tr > :nth-child({at})")
    return [str(text) for text in cells.all_inner_texts()]


def unfold(shown: Any) -> None:
    """Show all tables, and all options of choosers."""
    shown.evaluate(
        """() => {
          for (const fold of document.querySelectorAll('details')) fold.open = true;
          for (const option of document.querySelectorAll('.option')) option.hidden = false;
        }"""
    )


def test_the_answer_is_on_the_first_screen_and_commands_can_be_copied(
    view: Callable[..., Any],
) -> None:
    for width, parts in ((390, ()), (1280, (".next",))):
        shown = view(width=width)
        assert shown.locator("h1").inner_text() == "Use a pool of heads of 4 models."
        for part in (".number", ".measured .note", ".meaning", *parts):
            box = shown.locator(part).bounding_box()
            assert box["y"] + box["height"] < 900
    shown.context.grant_permissions(["clipboard-read", "clipboard-write"])
    button = shown.locator(".next li", has_text="Check it").locator(".copy")
    button.focus()
    shown.keyboard.press("Enter")
    playwright.expect(button).to_have_text("Copied")
    copied = shown.evaluate("navigator.clipboard.readText()")
    assert copied == "oodzoo test model/ LABELLED/ --out test.html"


def test_a_domain_is_chosen_by_keyboard(view: Callable[..., Any]) -> None:
    shown = view()
    options = shown.locator("#mistakes .option")
    assert [options.nth(at).is_visible() for at in range(5)] == [True, *[False] * 4]
    select = shown.get_by_label("Held-out domain", exact=True)
    assert select.input_value().startswith("cartoon (")  # the hardest
    select.press("ArrowDown")
    assert [options.nth(at).is_visible() for at in range(5)] == [False, True, *[False] * 3]
    select.select_option("All domains")
    assert shown.locator("#mistakes .option:visible h3").inner_text().endswith("all domains?")


@pytest.mark.parametrize(
    ("name", "width"),
    [
        *itertools.product(["27", "odd", "target", "regression", "labels", "many"], [1280]),
        *itertools.product(["odd", "alike", "many", *TESTS], [390]),
        *(("regression", 800), ("27", 320), ("test of classes", 1280)),
    ],
)
def test_nothing_overlaps_and_the_page_does_not_scroll_sideways(
    view: Callable[..., Any], name: str, width: int
) -> None:
    shown = view(name, width)
    unfold(shown)
    assert shown.evaluate(OVERLAPS) == []
    assert shown.evaluate("document.documentElement.scrollWidth") <= width
    box = shown.locator(".number").bounding_box()
    assert box["y"] + box["height"] < 900  # on the first screen


@pytest.mark.parametrize(
    ("name", "width", "scheme"),
    [("few", 390, "dark"), ("test of numbers", 1280, "light")],
)
def test_axe_finds_nothing(view: Callable[..., Any], name: str, width: int, scheme: str) -> None:
    shown = view(name, width, scheme)
    shown.keyboard.press("Tab")
    assert shown.evaluate("document.activeElement.className") == "skip"
    shown.keyboard.press("Enter")
    assert shown.evaluate("document.activeElement.id") == "main"
    unfold(shown)
    assert faults(shown) == []


@pytest.mark.parametrize("width", [1280, 390])
def test_labels_of_charts_distinguish_rows(view: Callable[..., Any], width: int) -> None:
    shown = view("alike", width)
    size = "narrow" if width < 760 else "wide"
    for at in (1, 2):
        heat = shown.locator(f"#domains .{size} svg").nth(at)
        names = heat.locator(".name").all_text_contents()
        assert names == ALIKE
    lanes = shown.locator(f"#combination .{size} svg").first.locator(".lane").all_text_contents()
    best = "" if size == "narrow" else "Best by "
    assert {f"{best}{score}" for score in ("h_score", "regularized_h_score")} <= set(lanes)


def test_commands_and_names_are_whole_on_a_phone(view: Callable[..., Any]) -> None:
    shown = view(width=390)
    cut = "all => all.filter(pre => pre.scrollWidth > pre.clientWidth).map(pre => pre.textContent)"
    assert shown.locator("pre").count() > 3
    assert shown.locator("pre").evaluate_all(cut) == []
    crossed = shown.evaluate(
        """() => [...document.querySelectorAll('.narrow svg')].flatMap((svg) => {
          const lines = [...svg.querySelectorAll('line.zero, line.grid')]
            .map((line) => line.getBoundingClientRect());
          return [...svg.querySelectorAll('.name')].filter((name) => {
            const box = name.getBoundingClientRect();
            return lines.some((line) => line.left > box.left && line.left < box.right
              && line.top < box.bottom - 2 && line.bottom > box.top + 2);
          }).map((name) => name.textContent);
        })"""
    )
    assert crossed == []


def test_sorting_by_mouse_and_by_keyboard(view: Callable[..., Any]) -> None:
    shown = view()
    header = shown.locator("#table-ranking thead th").nth(6)  # expected accuracy
    header.get_by_role("button").click()
    assert header.get_attribute("aria-sort") == "descending"
    values = [float(text) for text in column(shown, "ranking", 7)]
    assert values == sorted(values, reverse=True)
    header.get_by_role("button").press("Enter")
    assert header.get_attribute("aria-sort") == "ascending"
    values = [float(text) for text in column(shown, "ranking", 7)]
    assert values == sorted(values)

    name = shown.locator("#table-ranking thead th").nth(1)
    name.get_by_role("button").click()
    assert header.get_attribute("aria-sort") is None
    assert column(shown, "ranking", 2) == sorted(column(shown, "ranking", 2))

    header = shown.locator("#table-ranking thead th", has_text="Rank 90 %")  # by both ends
    for reverse in (True, False):
        header.get_by_role("button").click()
        intervals = [tuple(map(int, text.split("–"))) for text in column(shown, "ranking", 3)]
        assert len({low for low, _ in intervals}) < len(intervals)
        assert intervals == sorted(intervals, reverse=reverse)

    shown.locator("summary").last.click()  # missing values are last
    header = shown.locator("#table-score-values thead th", has_text="leep")
    at = 1 + header.evaluate("cell => cell.cellIndex")
    for _ in range(2):
        header.get_by_role("button").click()
        assert column(shown, "score-values", at)[-1] == "–"


def test_csv_files_can_be_downloaded(view: Callable[..., Any], tmp_path: Path) -> None:
    shown = view()
    assert shown.locator("a.csv").count() >= 10
    with shown.expect_download() as download:
        shown.locator("a.csv[download='ranking.csv']").click()
    assert download.value.suggested_filename == "ranking.csv"
    download.value.save_as(tmp_path / "ranking.csv")
    with (tmp_path / "ranking.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["model"] for row in rows] == column(shown, "ranking", 2)


def test_dark_mode_follows_the_system_and_the_button(view: Callable[..., Any]) -> None:
    shown = view(scheme="dark")
    background = "getComputedStyle(document.body).backgroundColor"
    dark = shown.evaluate(background)
    assert shown.locator("#theme").inner_text() == "Light"
    shown.locator("#theme").click()
    light = shown.evaluate(background)
    assert (light, dark) == ("rgb(255, 255, 255)", "rgb(18, 23, 29)")
    assert shown.locator("#theme").inner_text() == "Dark"


def test_marks_have_tooltips_and_long_tables_start_collapsed(view: Callable[..., Any]) -> None:
    shown = view()
    mark = shown.locator("#ranking .wide .bar.evidence").last
    mark.scroll_into_view_if_needed()
    # a scroll hides the tip, so let it end first
    shown.evaluate("new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go)))")
    mark.hover()
    tip = shown.locator("#tip")
    assert tip.is_visible()
    assert tip.inner_text().startswith("model_026_imagenet\nevidence \N{MINUS SIGN}0.")
    shown.keyboard.press("Escape")
    assert tip.is_hidden()

    shown = view("many")
    rows = shown.locator("#table-ranking tbody tr:visible")
    assert rows.count() == 30
    shown.locator("button[aria-controls='table-ranking']").click()
    assert rows.count() == 80


def test_on_paper(view: Callable[..., Any], tmp_path: Path) -> None:
    shown = view(scheme="dark")
    shown.emulate_media(media="print", color_scheme="dark")
    assert shown.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert shown.locator(".csv").first.is_hidden()
    folded = shown.locator("figure", has_text="Every score of every model")
    assert folded.is_hidden()
    folded.evaluate("figure => { figure.querySelector('details').open = true; }")
    assert folded.is_visible()
    options = shown.locator(".option")
    assert options.count() >= len(DOMAINS)
    assert all(option.is_visible() for option in options.all())
    assert shown.locator(".choose").is_hidden()
    shown.set_viewport_size({"width": 718, "height": 1000})  # a page without its margins
    assert shown.evaluate("document.documentElement.scrollWidth") == 718
    shown.pdf(path=tmp_path / "page.pdf", format="A4")
    assert (tmp_path / "page.pdf").stat().st_size > 20_000
