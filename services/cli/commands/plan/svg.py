"""A plan as one SVG: each graph from left to right, the graphs below each other. Nothing in it runs or is loaded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from rich.cells import cell_len

from ...render.wrapping import wrap_text
from .diagram import Arrow, Box, Diagram, Row
from .layout import Place, Size, compute_layout

_CELL = 7.3
"""Width of a character of 12 px in a monospaced font."""
_LINE = 16.0
_PAD = 10.0
_MARGIN = 24.0
_HEADING = 52.0
_BOX_CELLS = 40
_LABEL_CELLS = 30
_COLUMN_GAP = 34.0
_ROW_GAP = 22.0

_STYLE = (
    "text{font-family:'DejaVu Sans Mono',Menlo,Consolas,monospace;font-size:12px;fill:#1f2933}"
    ".h1{font-size:18px;font-weight:bold}.title{font-weight:bold}.quiet{fill:#52606d}.chained{fill:#0b7a5b}"
    ".box{fill:#eef4ff;stroke:#3b6ea8;stroke-width:1.2}.row{fill:#fff;stroke:#9fb3c8}"
    ".result{fill:#fff8e6;stroke:#b7791f;stroke-dasharray:4 3}"
    ".line{fill:none;stroke:#52606d;stroke-width:1.2}.tied{stroke:#0b7a5b;stroke-width:2}.thin{stroke-width:.8}"
)
_DEFINITIONS = (
    '<defs><marker id="tip" markerUnits="userSpaceOnUse" markerWidth="10" markerHeight="8" refX="9" refY="4" '
    'orient="auto"><path d="M0,0 L10,4 L0,8 z" fill="#52606d"/></marker></defs>'
)


def to_svg(diagrams: Sequence[Diagram], title: str) -> str:
    """The whole document."""
    body: list[str] = []
    y, width = _MARGIN, 0.0
    for diagram in diagrams:
        drawn = _Drawing(diagram)
        body.append(f'<g transform="translate({_MARGIN:g},{y:.1f})">')
        body += drawn.elements()
        body.append("</g>")
        y += drawn.height + _MARGIN * 2
        width = max(width, drawn.width)
    width, height = width + _MARGIN * 2, y
    size = f'width="{width:.0f}" height="{height:.0f}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {width:.0f} {height:.0f}">',
            f"<title>{_safe(title)}</title>",
            f"<style>{_STYLE}</style>",
            _DEFINITIONS,
            f'<rect {size} fill="#fff"/>',
            *body,
            "</svg>",
            "",
        ]
    )


@dataclass(frozen=True, slots=True)
class _Lines:
    """Text above each other, and the rows that arrows may reach, which lie below it."""

    text: tuple[tuple[str, str], ...]
    """(class, line)."""
    rows: tuple[Row, ...]

    @property
    def size(self) -> Size:
        cells = max([cell_len(line) for _, line in self.text] + [cell_len(row.text) + 2 for row in self.rows])
        return Size(cells * _CELL + 2 * _PAD, (len(self.text) + len(self.rows)) * _LINE + _PAD)

    def row_at(self, top: float, index: int) -> float | None:
        """The middle of the row of a subtask or partition."""
        for place, row in enumerate(self.rows):
            if row.index == index:
                return top + _PAD / 2 + (len(self.text) + place + 0.5) * _LINE
        return None


def _box_lines(box: Box) -> _Lines:
    room = _BOX_CELLS - len(box.badge) - 1
    title = [("title", line) for line in wrap_text(box.title, room)]
    title[0] = ("title", f"{title[0][1].ljust(room)} {box.badge}" if box.badge else title[0][1])
    facts = [("quiet", line) for fact in box.facts for line in wrap_text(fact, _BOX_CELLS)]
    rows = tuple(Row(line, row.index) for row in box.rows for line in wrap_text(row.text, _BOX_CELLS - 2))
    return _Lines((*title, *facts), rows)


def _label_lines(arrow: Arrow) -> _Lines:
    notes = [line for note in arrow.notes for line in wrap_text(note, _LABEL_CELLS)]
    kind = "chained" if arrow.chained else "quiet"
    return _Lines((("title", arrow.label), *((kind, line) for line in notes)), arrow.partitions)


class _Drawing:
    """One diagram: its boxes are the first nodes of the layout, its arrows' labels the others."""

    def __init__(self, diagram: Diagram) -> None:
        self._diagram = diagram
        self._lines = [*map(_box_lines, diagram.boxes), *map(_label_lines, diagram.arrows)]
        boxes = len(diagram.boxes)
        edges = [
            ends
            for label, arrow in enumerate(diagram.arrows, boxes)
            for ends in ((arrow.source, label), (label, arrow.target))
        ]
        sizes = [lines.size for lines in self._lines]
        self._layout = compute_layout(sizes, edges, column_gap=_COLUMN_GAP, row_gap=_ROW_GAP)
        self._sizes = sizes
        heading = max(len(diagram.title) * 11.0, cell_len(diagram.summary) * _CELL)
        self.width = max(self._layout.width, heading)
        self.height = self._layout.height + _HEADING

    def elements(self) -> Iterator[str]:
        """The drawing's own elements, its upper left corner at (0, 0)."""
        yield _text(0, 14, "h1", self._diagram.title)
        yield _text(0, 34, "quiet", self._diagram.summary)
        yield f'<g transform="translate(0,{_HEADING:g})">'
        for number in range(len(self._diagram.arrows)):
            yield from self._arrow(number)
        for node in range(len(self._lines)):
            yield from self._node(node)
        yield "</g>"

    def _node(self, node: int) -> Iterator[str]:
        place, lines = self._layout.places[node], self._lines[node]
        height = self._sizes[node].height
        label = node >= len(self._diagram.boxes)
        left = place.x
        if not label or lines.rows:
            kind = "result" if label else "box"
            yield _rect(kind, place.x, place.y, place.width, height, 6)
        else:
            left += (place.width - self._sizes[node].width) / 2
        y = place.y + _PAD / 2
        for kind, line in lines.text:
            badge = self._diagram.boxes[node].badge if kind == "title" and not label else ""
            if badge and line.endswith(f" {badge}"):
                line = line.removesuffix(badge).rstrip()
                yield _text(place.x + place.width - _PAD, y + 12, "quiet", badge, end=True)
            yield _text(left + _PAD, y + 12, kind, line)
            y += _LINE
        for row in lines.rows:
            if row.index is not None:
                yield _rect("row", place.x + _PAD / 2, y + 1, place.width - _PAD, _LINE - 2, 3)
            yield _text(place.x + _PAD, y + 12, "", row.text)
            y += _LINE

    def _arrow(self, number: int) -> Iterator[str]:
        arrow, label = self._diagram.arrows[number], len(self._diagram.boxes) + number
        kind = "line tied" if arrow.chained else "line"
        into, out = self._layout.bends[2 * number], self._layout.bends[2 * number + 1]
        for a, b in arrow.links if not into else ():
            yield _path("line thin", [self._right(arrow.source, a), self._left(label, b)])
        if not arrow.links or into:
            bends = [point for y, first, last in into for point in ((first, y), (last, y))]
            yield _path(kind, [self._right(arrow.source), *bends, self._left(label)])
        if not arrow.partitions:
            yield from self._through(label, kind)
        if arrow.partitions and not out:
            for row in arrow.partitions:
                if row.index is not None:
                    points = [self._right(label, row.index), self._left(arrow.target, row.index)]
                    yield _path("line thin", points, tip=True)
        else:
            bends = [point for y, first, last in out for point in ((first, y), (last, y))]
            yield _path(kind, [self._right(label), *bends, self._left(arrow.target)], tip=True)

    def _through(self, label: int, kind: str) -> Iterator[str]:
        """The level stretches on both sides of a label that is narrower than its layer."""
        place, width = self._layout.places[label], self._sizes[label].width
        y, spare = self._middle(label), (place.width - width) / 2
        if spare > 1:
            yield _path(kind, [(place.x, y), (place.x + spare, y)])
            yield _path(kind, [(place.x + place.width - spare, y), (place.x + place.width, y)])

    def _middle(self, node: int, index: int | None = None) -> float:
        place = self._layout.places[node]
        found = None if index is None else self._lines[node].row_at(place.y, index)
        return place.y + self._sizes[node].height / 2 if found is None else found

    def _left(self, node: int, index: int | None = None) -> tuple[float, float]:
        return self._layout.places[node].x, self._middle(node, index)

    def _right(self, node: int, index: int | None = None) -> tuple[float, float]:
        place: Place = self._layout.places[node]
        return place.x + place.width, self._middle(node, index)


def _path(kind: str, points: Sequence[tuple[float, float]], *, tip: bool = False) -> str:
    """Through the points: level where they are level, else curved."""
    (x, y), *others = points
    parts = [f"M{x:.1f},{y:.1f}"]
    for to_x, to_y in others:
        if abs(to_y - y) < 0.05:
            parts.append(f"H{to_x:.1f}")
        else:
            middle = (x + to_x) / 2
            parts.append(f"C{middle:.1f},{y:.1f} {middle:.1f},{to_y:.1f} {to_x:.1f},{to_y:.1f}")
        x, y = to_x, to_y
    marker = ' marker-end="url(#tip)"' if tip else ""
    return f'<path class="{kind}" d="{" ".join(parts)}"{marker}/>'


def _rect(kind: str, x: float, y: float, width: float, height: float, radius: float) -> str:
    return f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{radius:g}"/>'


def _text(x: float, y: float, kind: str, text: str, *, end: bool = False) -> str:
    own = f' class="{kind}"' if kind else ""
    anchor = ' text-anchor="end"' if end else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{own}{anchor}>{_safe(text)}</text>'


def _safe(text: str) -> str:
    """Escaped, without characters that XML cannot hold; what stands at the beginning of a line stays there."""
    own = text.lstrip(" ")
    kept = "\u00a0" * (len(text) - len(own)) + own
    return escape("".join(each for each in kept if each.isprintable() or each == "\u00a0"))
