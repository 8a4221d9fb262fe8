"""A graph in a terminal: its boxes below each other, an arrow down to the next box, all other arrows beside them.

Arrows to boxes further down run in lanes at the left edge; short ones are nearest to the boxes. What an arrow says
stands where it arrives. Where there are more arrows than lanes, the rest is told in words alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.cells import cell_len
from rich.text import Text

from .....infra.sanitize import escape_control_characters
from ...render.wrapping import wrap_text
from .diagram import Arrow, Box, Diagram

MOST_LANES = 8
_WIDEST = 120
_TOLD = 64
_TITLE = "bold"
_QUIET = "dim"
_CHAINED = "green"
_LABEL = "bold cyan"

Styled = tuple[str, str]
"""A line and its style."""


def draw(diagram: Diagram, width: int) -> Iterator[Text]:
    """The lines of the drawing, none longer than `width` cells (40 or more)."""
    yield Text.assemble((diagram.title, _TITLE))
    yield from (Text(line, _QUIET) for line in wrap_text(diagram.summary, width))
    yield Text("")
    yield from _Drawing(diagram, width).lines()


class _Drawing:
    def __init__(self, diagram: Diagram, width: int) -> None:
        self._boxes = diagram.boxes
        self._order = _order(diagram)
        place = {box: i for i, box in enumerate(self._order)}
        self._arrows = [(place[arrow.source], place[arrow.target], arrow) for arrow in diagram.arrows]
        self._down = _to_the_next(self._arrows)
        self._beside = dict(enumerate(self._arrows))
        for number in self._down.values():
            del self._beside[number]
        self._lanes = _lanes(self._beside)
        self._names = [self._boxes[box].name for box in self._order]
        count = max(self._lanes.values(), default=-1) + 1
        self._gutter = 2 * count + 1 if count else 0
        self._active: set[int] = set()
        self._room = min(width - self._gutter, _WIDEST) - 4
        self._inner = min(self._room, max(map(self._wanted, range(len(self._order))), default=0))

    def lines(self) -> Iterator[Text]:
        for place in range(len(self._order)):
            yield from self._box(place)
            yield from self._below(place)

    def _wanted(self, place: int) -> int:
        """How wide a box would be that breaks no line, or only long ones of those that tell of arrows."""
        box = self._boxes[self._order[place]]
        title = cell_len(escape_control_characters(box.title)) + (len(box.badge) + 2 if box.badge else 0)
        texts = [*box.facts, *(row.text for row in box.rows)]
        told = [
            text
            for source, target, arrow in self._beside.values()
            if place in (source, target)
            for text in (f"{arrow.label} from {self._names[source]}", *arrow.notes)
        ]
        return max(
            title,
            *(cell_len(escape_control_characters(text)) for text in texts),
            *(min(cell_len(escape_control_characters(text)), _TOLD) for text in told),
        )

    def _content(self, box: Box, room: int) -> Iterator[Styled]:
        """The lines of a box but those where arrows end or begin."""
        lines = wrap_text(box.title, max(room - len(box.badge) - 2, 8))
        if box.badge:
            lines[0] += box.badge.rjust(room - cell_len(lines[0]))
        yield from ((line, _TITLE) for line in lines)
        for fact in box.facts:
            yield from ((line, _QUIET) for line in wrap_text(fact, room))
        for row in box.rows:
            yield from ((line, "") for line in wrap_text(row.text, room))

    def _box(self, place: int) -> Iterator[Text]:
        entered = place > 0 and place - 1 in self._down
        left = place in self._down
        edge = "─" * (self._inner + 1)
        yield self._line(f"╭{'▼' if entered else '─'}{edge}╮", "")
        for text, style in self._content(self._boxes[self._order[place]], self._inner):
            yield self._inside(text, style)
        for number, (source, target, arrow) in self._beside.items():
            if target == place:
                yield from self._arrival(number, f"from {self._names[source]}", arrow)
        for number, (source, target, arrow) in self._beside.items():
            if source == place:
                yield from self._departure(number, f"{arrow.label} to {self._names[target]}")
        yield self._line(f"╰{'┬' if left else '─'}{edge}╯", "")

    def _below(self, place: int) -> Iterator[Text]:
        number = self._down.get(place)
        if number is None:
            yield self._line("", "")
            return
        arrow = self._arrows[number][2]
        stem = _CHAINED if arrow.chained else ""
        for text, style in _format_label(arrow, "", self._room):
            yield self._line(" │", stem).append(f" {text}", style)

    def _arrival(self, number: int, sender: str, arrow: Arrow) -> Iterator[Text]:
        lane = self._lanes.get(number)
        for i, (text, style) in enumerate(_format_label(arrow, f" {sender}", self._inner - 2)):
            first = i == 0
            yield self._inside(text if first else f"  {text}", style, ends=lane if first else None)
            if first and lane is not None:
                self._active.discard(lane)

    def _departure(self, number: int, receiver: str) -> Iterator[Text]:
        lane = self._lanes.get(number)
        for i, text in enumerate(wrap_text(receiver, self._inner - 2)):
            yield self._inside(text if i == 0 else f"  {text}", _LABEL, begins=lane if i == 0 else None)
            if i == 0 and lane is not None:
                self._active.add(lane)

    def _inside(self, text: str, style: str, *, ends: int | None = None, begins: int | None = None) -> Text:
        left, lane = "│", ends if begins is None else begins
        if lane is not None:
            left = "┤" if ends is None else "▶"
        line = self._line(f"{left} ", "", lane=lane, corner="╰" if begins is None else "╭")
        return line.append(text, style).append(" " * (self._inner - cell_len(text))).append(" │")

    def _line(self, text: str, style: str, *, lane: int | None = None, corner: str = "") -> Text:
        cells = [" "] * self._gutter
        for each in self._active:
            cells[self._column(each)] = "│"
        if lane is not None:
            own = self._column(lane)
            cells[own] = corner
            for column in range(own + 1, self._gutter):
                cells[column] = "┼" if cells[column] == "│" else "─"
        drawn = "".join(cells)
        return Text(drawn).append(text, style) if text else Text(drawn.rstrip())

    def _column(self, lane: int) -> int:
        return self._gutter - 2 * lane - 2


def _format_label(arrow: Arrow, who: str, room: int) -> Iterator[Styled]:
    yield from ((line, _LABEL) for line in wrap_text(f"{arrow.label}{who}", room))
    for note in arrow.notes:
        style = _CHAINED if arrow.chained else _QUIET
        yield from ((line, style) for line in wrap_text(note, room))


def _order(diagram: Diagram) -> list[int]:
    """Boxes, each after those that lead to it, and where it can be right below one of them."""
    waits_for = [0] * len(diagram.boxes)
    targets: list[list[int]] = [[] for _ in diagram.boxes]
    for arrow in diagram.arrows:
        waits_for[arrow.target] += 1
        targets[arrow.source].append(arrow.target)
    ready = [box for box in reversed(range(len(diagram.boxes))) if not waits_for[box]]
    order = []
    while ready:
        box = ready.pop()
        order.append(box)
        for target in reversed(targets[box]):
            waits_for[target] -= 1
            if not waits_for[target]:
                ready.append(target)
    return order


Placed = tuple[int, int, Arrow]


def _to_the_next(arrows: Sequence[Placed]) -> dict[int, int]:
    """Place -> the number of the arrow that leads from it to the place below."""
    found: dict[int, int] = {}
    for number, (source, target, _) in enumerate(arrows):
        if target == source + 1:
            found.setdefault(source, number)
    return found


def _lanes(arrows: Mapping[int, Placed]) -> dict[int, int]:
    """The lane of each arrow, by number, 0 next to the boxes; arrows in one lane do not meet."""
    taken: list[list[tuple[int, int]]] = []
    lanes: dict[int, int] = {}
    for number, (source, target, _) in sorted(arrows.items(), key=lambda each: each[1][1] - each[1][0]):
        for lane in range(MOST_LANES):
            if lane == len(taken):
                taken.append([])
            if all(target <= first or last <= source for first, last in taken[lane]):
                taken[lane].append((source, target))
                lanes[number] = lane
                break
    return lanes
