"""Lines of text in named styles, cut and padded to the cells of a terminal: what the screen is drawn with.

What others wrote (names of jobs, reasons) is made printable before anything else; on a terminal without Unicode it
comes as ASCII with escapes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size

from ....infra.sanitize import escape_control_characters


class Style(StrEnum):
    """What a part of a line is; the terminal says how that looks."""

    PLAIN = "plain"
    BAR = "bar"
    TITLE = "title"
    FOCUS = "focus"
    """The title of the panel that keys go to."""
    HEADING = "heading"
    DIM = "dim"
    NAME = "name"
    GOOD = "good"
    BUSY = "busy"
    BAD = "bad"
    WORST = "worst"
    KEY = "key"


class Span(NamedTuple):
    """A part of a line."""

    text: str
    style: Style = Style.PLAIN


class Line(NamedTuple):
    """A row of the screen; `chosen`: the cursor is on it."""

    spans: tuple[Span, ...]
    chosen: bool = False

    @property
    def text(self) -> str:
        """Without styles, and without spaces at its end."""
        return "".join(each.text for each in self.spans).rstrip()


class Glyphs(NamedTuple):
    """The signs that are not ASCII everywhere."""

    rule: str
    used: str
    pending: str
    free: str
    cut: str
    dot: str
    times: str
    cursor: str
    arrow: str
    unicode: bool


UNICODE = Glyphs("─", "■", "◧", "□", "…", "·", "×", "▸", "→", True)
ASCII = Glyphs("-", "#", "~", ".", "~", "-", "x", ">", "->", False)


def glyphs_of(encoding: str | None) -> Glyphs:
    """Those that an encoding has."""
    try:
        "".join(str(each) for each in UNICODE).encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return UNICODE


def width_of(text: str) -> int:
    """Cells of a terminal."""
    return len(text) if text.isascii() else cell_len(text)


class Canvas:
    """Makes the lines of a screen of some width."""

    def __init__(self, width: int, glyphs: Glyphs) -> None:
        self.width = width
        self.glyphs = glyphs

    def clean(self, text: str) -> str:
        """What others wrote, on one line, safe to show."""
        text = escape_control_characters(" ".join(text.split()) if not text.isprintable() else text)
        if self.glyphs.unicode or text.isascii():
            return text
        return text.encode("ascii", "backslashreplace").decode()

    def cut(self, text: str, width: int) -> str:
        """Not wider than that, with a sign that something is missing."""
        if width_of(text) <= width:
            return text
        if width <= 0:
            return ""
        if text.isascii():
            return text[: width - 1] + self.glyphs.cut
        return set_cell_size(text, width - 1).rstrip() + self.glyphs.cut

    def cell(self, text: str, width: int, *, right: bool = False) -> str:
        """Just as wide."""
        shown = self.cut(text, width)
        space = " " * (width - width_of(shown))
        return space + shown if right else shown + space

    def line(self, *spans: Span, chosen: bool = False) -> Line:
        """A row that fills the width."""
        left, kept = self.width, []
        for text, style in spans:
            if left <= 0:
                break
            shown = self.cut(text, left)
            left -= width_of(shown)
            kept.append(Span(shown, style))
        if left > 0:
            kept.append(
                Span(" " * left, kept[-1].style if kept and kept[-1].style is Style.BAR else Style.PLAIN)
            )
        return Line(tuple(kept), chosen)

    def sides(self, left: Sequence[Span], right: Sequence[Span]) -> Line:
        """Something at either end; where there is too little room, what is on the left gives way."""
        room = self.width - sum(width_of(each.text) for each in right)
        if right and room < 1:
            return self.line(*right)
        return Line((*Canvas(room, self.glyphs).line(*left).spans, *right))

    def title(self, name: str, said: str = "", *, focus: bool = False) -> Line:
        """Above a panel."""
        rule = self.glyphs.rule
        spans = [Span(f"{rule * 2} ", Style.DIM), Span(name, Style.FOCUS if focus else Style.TITLE)]
        if said:
            spans.append(Span(f"  {said}"))
        used = sum(width_of(each.text) for each in spans) + 1
        return self.line(*spans, Span(f" {rule * max(0, self.width - used)}", Style.DIM))

    def blank(self) -> Line:
        """Nothing."""
        return self.line()


class Column(NamedTuple):
    """Of a table: not narrower than `least`, where there is room; wider by its share of what is left over."""

    name: str
    least: int
    most: int
    need: int = 0
    """Columns with the highest are left out first where the width does not do; 0 never."""
    right: bool = False


_GAP = 2


def widths(columns: Sequence[Column], room: int, wanted: Sequence[int]) -> list[int]:
    """Of each column, 0 for those that are left out; `wanted` is what would show all of it."""
    shown = [True] * len(columns)
    limits = [max(len(each.name), min(each.most, want)) for each, want in zip(columns, wanted, strict=True)]
    leasts = [min(each.least, limit) for each, limit in zip(columns, limits, strict=True)]

    def least() -> int:
        there = [leasts[i] for i in range(len(columns)) if shown[i]]
        return sum(there) + _GAP * (len(there) - 1)

    for i in sorted(range(len(columns)), key=lambda i: -columns[i].need):
        if least() <= room or columns[i].need == 0:
            break
        shown[i] = False
    found = [leasts[i] if shown[i] else 0 for i in range(len(columns))]
    left = room - least()
    while left > 0:
        growing = [i for i in range(len(columns)) if shown[i] and found[i] < limits[i]]
        if not growing:
            break
        share = max(1, left // len(growing))
        for i in growing:
            more = min(share, limits[i] - found[i], left)
            found[i] += more
            left -= more
    return found


def row(
    canvas: Canvas,
    columns: Sequence[Column],
    sizes: Sequence[int],
    cells: Iterable[Span],
    *,
    begin: str = "",
    chosen: bool = False,
) -> Line:
    """The cells of a table's row."""
    spans = [Span(begin)] if begin else []
    for column, size, each in zip(columns, sizes, cells, strict=True):
        if size == 0:
            continue
        if len(spans) > (1 if begin else 0):
            spans.append(Span(" " * _GAP))
        spans.append(Span(canvas.cell(each.text, size, right=column.right), each.style))
    return canvas.line(*spans, chosen=chosen)
