"""Any headline with any sections makes a page."""

from __future__ import annotations

import re

from tests.report.reader import Reader

from oodzoo.report.blocks import Facts, Headline, Section, Tile
from oodzoo.report.rendering import render


def test_a_headline_and_a_section() -> None:
    headline = Headline("93 % are right.", remarks=["Of 1–2 % < all."], tiles=[Tile("7", "images")])
    section = Section("facts", "Facts", "", [Facts([("a_b", "<c>")])])
    text = render(headline, [section], "1.2.3")
    read = Reader(text)
    assert text.startswith("<!doctype html>\n")
    assert text.endswith("</html>\n")
    assert read.sections == ["facts"]
    for words in ("93 % are right.", "Of 1–2 % < all.", "7", "<c>", "Made with oodzoo 1.2.3."):
        assert words in read.text


def test_options_are_not_broken() -> None:
    text = render(Headline("Try (--max-ms 3) and --tune, not a--b."), [])
    assert re.findall('<span class="together">(.*?)</span>', text) == ["(--max-ms", "--tune"]


def test_without_a_version() -> None:
    assert "Made with oodzoo. This page" in Reader(render(Headline("Nothing."), [])).text
