"""Text and numbers as text, for messages, terminals, CSV files, reports and shared files."""

from __future__ import annotations

import difflib
import math
import re
import shlex
import textwrap
from collections.abc import Iterable, Sequence
from typing import TypeGuard

# control characters, line separators, and characters that change the direction of text
_UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]"
)
_FORMULA = re.compile(r"'*[=+\-@\t\r]")
_FOLDERS = re.compile(
    # in quotes, an absolute path may contain spaces
    r"""(?<=')(?:[A-Za-z]:)?[\\/][^'\n]*[\\/](?=[^'\\/]+')"""
    r"""|(?<![\w:/\\.~])(?:~|[A-Za-z]:)?[\\/](?:[^\s'"\\/]+[\\/]+)+"""
)


def count(n: int, noun: str, plural: str | None = None) -> str:
    """Format a number with a noun in the matching singular or plural form.

    Examples
    --------
    >>> count(1, "model"), count(1400, "image"), count(2, "class", "classes")
    ('1 model', '1,400 images', '2 classes')
    """
    return f"{n:,} {noun if n == 1 else plural or noun + 's'}"


def duration(seconds: float) -> str:
    """A duration in the units that suit it.

    Examples
    --------
    >>> duration(0.034), duration(12.31), duration(75), duration(7300)
    ('0.03 s', '12.3 s', '1 min 15 s', '2 h 1 min')
    """
    if seconds < 1:
        return f"{seconds:.2f} s"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def file_size(n_bytes: int) -> str:
    """A number of bytes in the unit that suits it.

    Examples
    --------
    >>> file_size(512), file_size(19_240_000)
    ('512 B', '19.2 MB')
    """
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= size:
            return f"{n_bytes / size:,.1f} {unit}"
    return f"{n_bytes} B"


def one_line(error: BaseException, limit: int = 200) -> str:
    """Format an error as one line of limited length: its message, or its class if it has none."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= limit else text[: limit - 1] + "…"


def wrapped(text: str, width: int, *, first: str = "", rest: str = "") -> list[str]:
    """Lines of at most this width, if no word is longer; a number stays with its percent sign.

    Parameters
    ----------
    text : str
    width : int
    first, rest : str
        What the first line and the others begin with.

    Examples
    --------
    >>> wrapped("an accuracy of 96 % or more", 17)
    ['an accuracy of', '96 % or more']
    """
    lines = textwrap.wrap(
        re.sub(r"(?<=\d) (?=%)", "\N{NO-BREAK SPACE}", text),
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [re.sub(r"(?<=\d)\N{NO-BREAK SPACE}(?=%)", " ", line) for line in lines]


def typed(path: object) -> str:
    """Quote a path or name for a command that a person copies into a shell.

    Examples
    --------
    >>> print("oodzoo rank", typed("my photos/store"), typed("b/store"))
    oodzoo rank 'my photos/store' b/store
    """
    return shlex.quote(str(path))


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Suggest similar names as a question; an empty string if there are none.

    Examples
    --------
    >>> did_you_mean("logm", ["logme", "lda"])
    'did you mean logme?'
    """
    near = difflib.get_close_matches(name, list(known), n=3, cutoff=0.5)
    return f"did you mean {' or '.join(near)}?" if near else ""


def unknown(owner: str, noun: str, name: object, known: Iterable[str]) -> str:
    """Say that there is nothing of this name, and what there is.

    Examples
    --------
    >>> unknown("the ranking", "model", "resnet5", ["resnet50", "vit"])
    "the ranking has no model 'resnet5'; did you mean resnet50?"
    >>> unknown("the ranking", "model", 1.5, ["resnet50", "vit"])
    'the ranking has no model 1.5; it has resnet50, vit'
    """
    names = list(known)
    meant = did_you_mean(name, names) if isinstance(name, str) else ""
    return f"{owner} has no {noun} {name!r}; {meant or f'it has {some_of(names, 10)}'}"


def short_name(name: str, most: int = 40) -> str:
    """Shorten a name in its middle, on one line: the ends usually distinguish names.

    Examples
    --------
    >>> short_name("vit_small"), short_name("convnext_large_mlp_clip", 15)
    ('vit_small', 'convnex…lp_clip')
    """
    name = printable(name)
    if len(name) <= most:
        return name
    end = (most - 1) // 2
    return f"{name[: most - 1 - end]}…{name[-end:]}"


def some_of(names: Sequence[str], most: int = 3) -> str:
    """List the first few names, and count the others.

    Examples
    --------
    >>> some_of(["a", "b", "c", "d", "e"]), some_of(["a", "b"])
    ('a, b, c, … 2 more', 'a, b')
    """
    shown = [short_name(name) for name in names[:most]]
    more = len(names) - most
    return ", ".join([*shown, *([f"… {more} more"] if more > 0 else [])])


def listed(names: Sequence[str], most: int = 3) -> str:
    """Names in a sentence.

    Examples
    --------
    >>> listed(["a"]), listed(["a", "b"]), listed(list("abcde"))
    ('a', 'a and b', 'a, b, c and 2 more')
    """
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def plain(text: str) -> str:
    """Return a number or an interval with hyphens, which every encoding has.

    Examples
    --------
    >>> plain("\N{MINUS SIGN}0.5"), plain("64\N{EN DASH}100")
    ('-0.5', '64-100')
    """
    return text.replace("\N{MINUS SIGN}", "-").replace("\N{EN DASH}", "-")


def printable(text: str) -> str:
    """Escape characters that could change what a terminal shows, newlines among them.

    Examples
    --------
    >>> print(printable("a\\x1b[31mb"), printable("two\\nlines"), printable("x\\u202ey"))
    a\\x1b[31mb two\\nlines x\\u202ey
    """
    return _UNPRINTABLE.sub(lambda found: repr(found.group())[1:-1], text)


def csv_cell(value: object) -> object:
    """Return the cell of a CSV file; a text that a spreadsheet could compute gets an apostrophe.

    Such a text begins with ``=``, ``+``, ``-``, ``@``, a tab or a carriage return and is not a
    number. If these follow apostrophes, one more is added; so the text is restored by removing
    one apostrophe from cells that begin with apostrophes and one of these characters.

    Examples
    --------
    >>> [csv_cell(cell) for cell in ("=1+1", "-1e5", "-x", "'-x", "cat", -2.5)]
    ["'=1+1", '-1e5', "'-x", "''-x", 'cat', -2.5]
    """
    if not isinstance(value, str) or not _FORMULA.match(value) or _is_number(value):
        return value
    return f"'{value}"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return not text[0].isspace()  # which float ignores


def without_folders(text: str) -> str:
    """Shorten the absolute paths in a text to their last part: folders can name a user.

    Examples
    --------
    >>> without_folders("cannot load '/home/ada/zoo/net.onnx': no such file")
    "cannot load 'net.onnx': no such file"
    """
    return _FOLDERS.sub("", text)


MISSING = "–"
"""Stands for a number that is missing."""


def number(value: float | None, digits: int = 0) -> str:
    """A number with a fixed count of decimals, a minus sign, and groups of thousands.

    Examples
    --------
    >>> number(0.0712, 3), number(1400), number(None), number(-0.0001, 1)
    ('0.071', '1,400', '–', '0.0')
    """
    if not is_number(value):
        return MISSING
    return f"{value:z,.{digits}f}".replace("-", "\N{MINUS SIGN}")


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def span(low: float | None, high: float | None, *, digits: int = 0) -> str:
    """An interval: with an en dash, or the word "to" next to a minus sign.

    Examples
    --------
    >>> span(1, 3), span(None, 1), span(-0.5, 0.5, digits=1)[1:]
    ('1–3', '–', '0.5 to 0.5')
    """
    if not (is_number(low) and is_number(high)):
        return MISSING
    between = " to " if low < 0 or high < 0 else "–"
    return f"{number(low, digits)}{between}{number(high, digits)}"


def time_per_image(milliseconds: float) -> str:
    """Milliseconds with a decimal; two significant figures below one, where tiny models are.

    Examples
    --------
    >>> time_per_image(15.94), time_per_image(0.03), time_per_image(0.00399)
    ('15.9', '0.030', '0.0040')
    """
    return number(milliseconds, 1) if milliseconds >= 1 else significant(milliseconds, 2)


def significant(value: float | None, figures: int = 3) -> str:
    """A number of unknown magnitude, rounded to a few significant figures.

    Examples
    --------
    >>> significant(1234.5), significant(0.012345), significant(3.2e9)
    ('1,234', '0.0123', '3.2e+09')
    """
    if not is_number(value):
        return MISSING
    if value == 0:
        return "0"
    power = math.floor(math.log10(abs(value)))
    if power < -4 or power > 8:
        return f"{value:.{figures - 1}g}".replace("-", "\N{MINUS SIGN}")
    return number(value, max(0, figures - 1 - power))
