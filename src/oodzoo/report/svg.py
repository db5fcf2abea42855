"""A small writer of SVG. Colours are classes, so that the page's light or dark mode decides."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from markupsafe import Markup, escape

from oodzoo.report.numbers import shortened


class Drawing:
    """A picture in pixels from the upper left, with words for those who do not see it.

    Parameters
    ----------
    width, height : float
    title : str
        What the picture is.
    finding : str
        What it shows, in words.
    """

    def __init__(self, width: float, height: float, title: str, finding: str) -> None:
        self.width = width
        self.height = height
        self.title = title
        self.finding = finding
        self._parts: list[Markup] = []

    @property
    def words(self) -> str:
        return f"{self.title}. {self.finding}"

    def _add(self, tag: str, /, **attributes: object) -> None:
        self._parts.append(_element(tag, "", attributes))

    def rect(
        self, x: float, y: float, width: float, height: float, kind: str, **more: object
    ) -> None:
        self._add("rect", x=x, y=y, width=max(width, 0), height=height, class_=kind, **more)

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str, **more: object) -> None:
        self._add("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=kind, **more)

    def circle(self, x: float, y: float, radius: float, kind: str, **more: object) -> None:
        self._add("circle", cx=x, cy=y, r=radius, class_=kind, **more)

    def path(self, data: str, kind: str, **more: object) -> None:
        self._add("path", d=data, class_=kind, **more)

    def text(
        self, x: float, y: float, text: str, kind: str = "", *, end: str = "start", **more: object
    ) -> None:
        place = {
            "x": x,
            "y": y,
            "class": kind or None,
            "text_anchor": None if end == "start" else end,
        }
        self._parts.append(_element("text", text, place | more))

    def name(
        self, x: float, y: float, name: str, room: float, *, size: float = 12, kind: str = "name"
    ) -> None:
        """A name that is cut to fit; the whole name is told when it is pointed at."""
        short = shortened(name, room, size)
        tip = None if short == name else name
        self.text(
            x, y, short, kind, data_tip=tip, style=None if size == 12 else f"font-size:{size}px"
        )

    @contextmanager
    def group(self, kind: str, **more: object) -> Iterator[None]:
        outer, self._parts = self._parts, []
        try:
            yield
        finally:
            inner, self._parts = self._parts, outer
            self._parts.append(_element("g", Markup("").join(inner), {"class": kind} | more))

    def render(self) -> Markup:
        """The picture as an element for a page; it may shrink, and hardly grow."""
        described = Markup("").join([_element("title", self.words, {}), *self._parts])
        return _element(
            "svg",
            described,
            {
                "viewBox": f"0 0 {_short(self.width)} {_short(self.height)}",
                "role": "img",
                "aria_label": self.words,
                "style": f"max-width:{1.15 * self.width:.0f}px",
            },
        )


def _element(tag: str, content: str | Markup, attributes: dict[str, object]) -> Markup:
    written = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(_short(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    if not content:
        return Markup(f"<{tag}{written}/>")
    return Markup(f"<{tag}{written}>{escape(content)}</{tag}>")


def _short(value: object) -> object:
    """Numbers with a tenth of a pixel; that keeps pages small."""
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else value
