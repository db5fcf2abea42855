"""What a page shows, as lines of text: headings, facts, links, tables, and what is drawn."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from statistics import fmean
from typing import NamedTuple

ROWS = 4
"""Rows of a table that are listed; the others are counted."""

LINES = {
    "title", "h1", "h2", "h3", "p", "li", "dt", "dd", "figcaption", "summary", "option", "caption",
    "th", "td", "text", "pre", "button", "tr", "svg", "label", "footer", "a",
}  # fmt: skip
EMPTY = {"meta", "wbr", "img", "rect", "line", "circle", "path", "br"}
SILENT = {"style", "script", "caption"}


class Node(NamedTuple):
    tag: str
    attributes: dict[str, str]
    children: list[Node | str]

    def find(self, *tags: str) -> Iterator[Node]:
        for child in self.children:
            if isinstance(child, Node):
                if child.tag in tags:
                    yield child
                else:
                    yield from child.find(*tags)

    @property
    def text(self) -> str:
        return " ".join("".join(self._texts()).split())

    def _texts(self) -> Iterator[str]:
        for child in self.children:
            if isinstance(child, str):
                yield child
            elif child.tag not in SILENT and child.attributes.get("class") not in ("copy", "more"):
                yield from child._texts()


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open = [Node("", {}, [])]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        node = Node(tag, {name: value or "" for name, value in attrs}, [])
        self.open[-1].children.append(node)
        if tag not in EMPTY:
            self.open.append(node)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open[-1].children.append(Node(tag, {k: v or "" for k, v in attrs}, []))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop().tag == tag

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


def outline(page: str) -> str:
    """The outline of a page; every element must be closed."""
    parser = _Parser()
    parser.feed(page)
    (root,) = parser.open
    return "\n".join(_lines(root)) + "\n"


def _lines(node: Node) -> Iterator[str]:
    for child in node.children:
        if isinstance(child, str) or child.tag in (*SILENT, "button"):
            continue
        if child.tag == "svg":
            yield from _drawing(child)
        elif child.tag == "table":
            yield from _table(child)
        elif child.tag == "img":
            yield f"img {child.attributes['alt']!r}"
        elif "download" in child.attributes:
            content = base64.b64decode(child.attributes["href"].partition("base64,")[2])
            lines = content.decode("utf-8-sig").split("\r\n")
            yield f"file {child.attributes['download']}: {lines[0]}"
            yield f"  {_rounded(lines[1]) if len(lines) > 1 else ''}"
        elif child.tag in LINES and not any(
            True for _ in child.find("svg", "table", "li", "p", "h3")
        ):
            link = f" -> {child.attributes['href']}" if "href" in child.attributes else ""
            links = "".join(f" -> {each.attributes['href']}" for each in child.find("a"))
            key = "".join(
                f" [{each.attributes['class']}]"
                for each in child.find("span")
                if each.attributes.get("class", "").startswith("key ")
            )
            yield f"{child.tag} {child.text}{key}{link}{links}"
        else:
            if ident := child.attributes.get("id"):
                yield f"{child.tag} #{ident}"
            yield from _lines(child)


def _table(node: Node) -> Iterator[str]:
    rows = [[cell.text for cell in row.find("th", "td")] for row in node.find("tr")]
    yield f"table {node.attributes['id']}, {len(rows) - 1} rows"
    for row in rows[: ROWS + 1]:
        yield "  " + " | ".join(row)


def _drawing(node: Node) -> Iterator[str]:
    """The words of a drawing, and how many marks of each class are where."""
    yield f"svg {node.attributes['viewbox']} {node.attributes['aria-label']}"
    texts = list(node.find("text"))
    yield "  " + " | ".join(each.text for each in texts)
    places = [[float(each.attributes[name]) for each in texts] for name in ("x", "y")]
    yield f"  texts on average at {' '.join(f'{fmean(each):.0f}' for each in places)}"
    marks: dict[str, list[Box]] = {}
    tips: dict[str, str] = {}
    for each in node.find("rect", "line", "circle", "path"):
        name = f"{each.tag} {each.attributes['class']}"
        marks.setdefault(name, []).append(_box(each))
        if tip := each.attributes.get("data-tip"):
            tips[name] = " / ".join(tip.split("\n"))
    for name, boxes in marks.items():
        left, top, right, bottom = zip(*boxes, strict=True)
        at = f"x {min(left):.0f} to {max(right):.0f}, y {min(top):.0f} to {max(bottom):.0f}"
        ink = fmean([*right, *bottom]) - fmean([*left, *top])
        size = f", mean size {ink:.0f}" if ink else ""
        yield f"  {len(boxes)} {name}, {at}{size}{': ' if name in tips else ''}{tips.get(name, '')}"


Box = tuple[float, float, float, float]


def _box(node: Node) -> Box:
    """The left, upper, right and lower end of a mark; of a path only where it starts."""
    found = {name: value for name, value in node.attributes.items() if name in PLACES}
    a = {name: float(value) for name, value in found.items()}
    if node.tag == "rect":
        return a["x"], a["y"], a["x"] + a["width"], a["y"] + a["height"]
    if node.tag == "line":
        return a["x1"], a["y1"], a["x2"], a["y2"]
    if node.tag == "circle":
        return a["cx"], a["cy"], a["cx"], a["cy"]
    x, y, *_ = map(float, re.findall(r"-?[\d.]+", node.attributes["d"]))
    return x, y, x, y


PLACES = ("x", "y", "width", "height", "x1", "y1", "x2", "y2", "cx", "cy")


def _rounded(line: str) -> str:
    """A line of a CSV file with six digits of each number."""
    return re.sub(r"-?\d+\.\d{6,}", lambda found: f"{float(found[0]):.6g}", line)
