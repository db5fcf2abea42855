"""Links of the built documentation lead somewhere; those to other sites are not fetched."""

from __future__ import annotations

from urllib.parse import unquote, urldefrag, urlsplit

import pytest
from tests.site.built import BUILT, GENERATED, Page
from tests.site.built import pages as read_pages


@pytest.fixture(scope="module")
def pages() -> dict[str, Page]:
    found = read_pages()
    assert {"index", "faq", "api", "concepts/scores", "tutorials/own_photos"} <= set(found)
    return found


def test_links_and_anchors(pages: dict[str, Page]) -> None:
    identifiers = {page.path.resolve(): page.identifiers for page in pages.values()}
    broken, checked = [], 0
    for name, page in pages.items():
        for link in page.links:
            address, anchor = urldefrag(link)
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            target = (page.path.parent / unquote(parts.path)) if parts.path else page.path
            checked += 1
            if not target.resolve().is_file():
                broken.append(f"{name}: {link}: no such file")
            elif anchor and target.suffix == ".html" and name not in GENERATED:
                known = identifiers.get(target.resolve(), set())
                if unquote(anchor) not in known:
                    broken.append(f"{name}: {link}: no such anchor")
    assert checked > 1000
    assert broken == []


def test_every_page_is_in_the_contents(pages: dict[str, Page]) -> None:
    listed = {
        (BUILT / urldefrag(link)[0]).resolve()
        for link in pages["index"].links
        if urlsplit(link).scheme == ""
    }
    missing = [
        name
        for name, page in pages.items()
        if name not in GENERATED | {"index", "404"} and page.path.resolve() not in listed
    ]
    assert missing == []


def test_language_models_find_every_page_of_the_contents(pages: dict[str, Page]) -> None:
    lines = (BUILT / "llms.txt").read_text(encoding="utf-8").splitlines()
    listed = [line.partition("](")[2].partition(".html): ") for line in lines if line[:2] == "- "]
    api = {name for name in pages if name.startswith("api/")}  # listed by the page api
    assert {name for name, _, _ in listed} == set(pages) - GENERATED - api - {"index", "404"}
    assert all(start.strip() for _, _, start in listed)


def test_the_api_has_tables_of_names(pages: dict[str, Page]) -> None:
    for name, page in pages.items():
        if name.startswith("api/"):
            text = page.path.read_text(encoding="utf-8")
            table = text.partition('class="names')[2].partition("</table>")[0]
            assert table.count("<tr") > 3, name
    assert "#oodzoo.rank" in pages["api/ranking"].links


def test_nothing_is_loaded_from_another_site(pages: dict[str, Page]) -> None:
    for page in pages.values():
        text = page.path.read_text(encoding="utf-8")
        assert '<script src="http' not in text
        assert "cdn" not in "".join(link for link in page.links if link.endswith((".js", ".css")))
