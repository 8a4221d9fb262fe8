"""Slots over time as one SVG: what really happened above what would have, on the same axes. Nothing in it runs.

Each job's slots are an area in the job's colour, on top of each other; the line is how many slots are registered; what
is hatched above are requests that wait.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape

from ...core.role import Time
from .outcome_metrics import NOBODY, Outcome, SlotStep, TimelineEvent
from .report import format_duration
from .what_if import WhatIf

_WIDTH, _PLOT_HEIGHT = 1040.0, 190.0
_LEFT, _RIGHT, _TOP = 56.0, 24.0, 72.0
_HEADING, _LABELS, _AXIS, _GAP = 24.0, 44.0, 26.0, 22.0
_CELL = 6.7
"""Width of a character of 11 px in a monospaced font."""
_COLOURS = (
    "#3b6ea8", "#d98324", "#3f8f5b", "#b8475a", "#7a5ea8", "#2a9d9d",
    "#8c6d46", "#c76fa8", "#6b8e23", "#5a6b7b",
)  # fmt: skip
_OTHERS = "#b9c4cf"
_MAX_LABELS = 40
_ROWS = 3
"""Of labels above each other, where they would lie on each other."""
_STYLE = (
    "text{font-family:'DejaVu Sans Mono',Menlo,Consolas,monospace;font-size:11px;fill:#1f2933}"
    ".h1{font-size:17px;font-weight:bold}.h2{font-size:13px;font-weight:bold}.quiet{fill:#52606d}"
    ".grid{stroke:#e1e7ee;stroke-width:1}.axis{stroke:#7b8794;stroke-width:1}"
    ".total{fill:none;stroke:#1f2933;stroke-width:1.6}.mark{stroke:#a61b1b;stroke-width:1;stroke-dasharray:3 3}"
    ".told{fill:#a61b1b}.ended{fill:#f5f7fa}"
)
_DEFINITIONS = (
    '<defs><pattern id="waiting" width="6" height="6" patternUnits="userSpaceOnUse" '
    'patternTransform="rotate(45)"><rect width="6" height="6" fill="#fdeeee"/>'
    '<line x1="0" y1="0" x2="0" y2="6" stroke="#d64545" stroke-width="1.6"/></pattern></defs>'
)


def to_svg(found: WhatIf, title: str) -> str:
    """The whole document."""
    panels: list[tuple[str, Outcome, Sequence[TimelineEvent]]] = []
    if found.really is not None:
        panels.append(("what really happened", found.really, found.really.happenings))
    wanted = [TimelineEvent(found.would.start + each.at, each.text) for each in found.scenario.events]
    inside = [each for each in wanted if each.time <= found.would.end]
    lost = [each for each in found.would.happenings if each.text not in {told.text for told in inside}]
    happenings = sorted([*inside, *lost], key=lambda each: each.time)
    panels.append(("what would have happened", found.would, happenings))
    colours = _colours([outcome for _, outcome, _ in panels])
    plot = _Plot(
        found.would.start,
        max(outcome.end for _, outcome, _ in panels),
        max((step.used + step.waiting for _, outcome, _ in panels for step in outcome.slots), default=1),
        max((step.total for _, outcome, _ in panels for step in outcome.slots), default=1),
    )
    body: list[str] = []
    y = _TOP
    for name, outcome, told in panels:
        body.append(f'<g transform="translate({_LEFT:g},{y:.1f})">')
        body += plot.panel(name, outcome, told, colours)
        body.append("</g>")
        y += _HEADING + _LABELS + _PLOT_HEIGHT + _AXIS + _GAP
    body += _legend(colours, y)
    height = y + 20 + 18 * (-(-(len(colours) + 3) // 4))
    size = f'width="{_WIDTH:.0f}" height="{height:.0f}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {_WIDTH:.0f} {height:.0f}">',
            f"<title>{_safe(title)}</title>",
            f"<style>{_STYLE}</style>",
            _DEFINITIONS,
            f'<rect {size} fill="#fff"/>',
            _text(24, 32, "h1", title),
            _text(24, 52, "quiet", _summary(found)),
            *body,
            "</svg>",
            "",
        ]
    )


class _Plot:
    """Both panels have the same axes."""

    def __init__(self, start: Time, end: Time, busiest: int, largest: int) -> None:
        self._start = start
        self._end = max(end, start + 1)
        self._width = _WIDTH - _LEFT - _RIGHT
        self._most = _ceiling(max(busiest, largest, 1))

    def panel(
        self, name: str, outcome: Outcome, happenings: Sequence[TimelineEvent], colours: dict[str, str]
    ) -> Iterator[str]:
        """Its upper left corner, without the numbers of the axis, at (0, 0)."""
        yield _text(0, 14, "h2", name)
        yield f'<g transform="translate(0,{_HEADING + _LABELS:g})">'
        yield from self._grid()
        end = min(outcome.end, self._end)
        if end < self._end:
            x = self._x(end)
            yield _rect("ended", x, 0, self._width - x, _PLOT_HEIGHT)
            yield _text(x + 6, 14, "quiet", "the log ends here")
        steps = [step for step in outcome.slots if step.time <= end]
        yield from self._areas(steps, end, colours)
        yield self._line(steps, end)
        yield from self._marks(happenings)
        yield "</g>"

    def _grid(self) -> Iterator[str]:
        step = max(1, self._most // 4)
        for value in range(0, self._most + 1, step):
            y = self._y(value)
            yield _line("axis" if value == 0 else "grid", 0, y, self._width, y)
            yield _text(-8, y + 4, "quiet", str(value), anchor="end")
        every = _tick(self._end - self._start)
        for at in range(0, self._end - self._start + 1, every):
            x = self._x(self._start + at)
            yield _line("grid", x, 0, x, _PLOT_HEIGHT)
            anchor = "end" if x > self._width - 30 else "middle"
            yield _text(x, _PLOT_HEIGHT + 16, "quiet", _clock(at), anchor=anchor)

    def _areas(self, steps: Sequence[SlotStep], end: Time, colours: dict[str, str]) -> Iterator[str]:
        base = [0] * len(steps)
        for job, colour in colours.items():
            heights = [_count(step, job, colours) for step in steps]
            if any(heights):
                tops = [low + height for low, height in zip(base, heights, strict=True)]
                yield self._area(steps, base, tops, end, f'fill="{colour}" fill-opacity=".82"')
                base = tops
        waiting = [low + step.waiting for low, step in zip(base, steps, strict=True)]
        if any(step.waiting for step in steps):
            yield self._area(steps, base, waiting, end, 'fill="url(#waiting)"')

    def _area(
        self, steps: Sequence[SlotStep], low: Sequence[int], high: Sequence[int], end: Time, how: str
    ) -> str:
        """One closed path for each stretch in which there is anything."""
        parts: list[str] = []
        times = [step.time for step in steps] + [end]
        place = 0
        while place < len(steps):
            if high[place] == low[place]:
                place += 1
                continue
            first = place
            while place < len(steps) and high[place] > low[place]:
                place += 1
            there = range(first, place)
            up = [(self._x(time), self._y(high[i])) for i in there for time in (times[i], times[i + 1])]
            down = [
                (self._x(time), self._y(low[i])) for i in reversed(there) for time in (times[i + 1], times[i])
            ]
            parts.append(f"M{_points([*up, *down])}Z")
        return f'<path {how} d="{" ".join(parts)}"/>'

    def _line(self, steps: Sequence[SlotStep], end: Time) -> str:
        times = [step.time for step in steps] + [end]
        points = [
            (self._x(time), self._y(step.total))
            for i, step in enumerate(steps)
            for time in (times[i], times[i + 1])
        ]
        return f'<path class="total" d="M{_points(points)}"/>' if points else ""

    def _marks(self, happenings: Sequence[TimelineEvent]) -> Iterator[str]:
        free = [float("-inf")] * _ROWS
        for each in happenings[:_MAX_LABELS]:
            x = self._x(each.time)
            if not 0 <= x <= self._width:
                continue
            yield _line("mark", x, 0, x, _PLOT_HEIGHT)
            row = min(range(_ROWS), key=lambda i: (free[i] > x, free[i] if free[i] > x else i))
            width = len(each.text) * _CELL + 8
            left = min(max(x, free[row] if free[row] > x else x), self._width - width + 8)
            free[row] = left + width
            yield _text(left + 2, -6 - 13 * row, "told", each.text)

    def _x(self, time: Time) -> float:
        return (time - self._start) / (self._end - self._start) * self._width

    def _y(self, slots: float) -> float:
        return _PLOT_HEIGHT * (1 - slots / self._most)


def _colours(outcomes: Sequence[Outcome]) -> dict[str, str]:
    """Of the jobs that hold slots longest; the others share one (NOBODY)."""
    held: dict[str, int] = {}
    for outcome in outcomes:
        ends = [step.time for step in outcome.slots[1:]] + [outcome.end]
        for step, end in zip(outcome.slots, ends, strict=False):
            for job, count in step.by_job.items():
                held[job] = held.get(job, 0) + count * max(1, end - step.time)
    longest = sorted((job for job in held if job != NOBODY), key=lambda job: (-held[job], job))
    own = dict(zip(sorted(longest[: len(_COLOURS)]), _COLOURS, strict=False))
    if len(held) > len(own):
        own[NOBODY] = _OTHERS
    return own


def _count(step: SlotStep, job: str, colours: dict[str, str]) -> int:
    if job != NOBODY:
        return step.by_job.get(job, 0)
    return sum(count for other, count in step.by_job.items() if other == NOBODY or other not in colours)


def _legend(colours: dict[str, str], y: float) -> Iterator[str]:
    entries = [(f'fill="{colour}"', job or "others") for job, colour in colours.items()]
    entries.append(('fill="url(#waiting)"', "requests that wait"))
    entries.append(('fill="#1f2933"', "registered slots"))
    for number, (how, name) in enumerate(entries):
        x, row = 24 + (number % 4) * 250, y + 18 * (number // 4)
        height = 3 if name == "registered slots" else 10
        yield f'<rect {how} x="{x}" y="{row + (10 - height) / 2:.1f}" width="16" height="{height}"/>'
        yield _text(x + 22, row + 9, "", name if len(name) <= 30 else f"{name[:29]}…")


def _summary(found: WhatIf) -> str:
    length = format_duration(found.would.end - found.would.start)
    return f"cluster {found.cluster}, from offset {found.offset} on, for {length}; slots by job, over time"


def _ceiling(value: int) -> int:
    """At least the value, and a multiple of four where it is not small."""
    return value if value <= 4 else -(-value // 4) * 4


def _tick(length: Time) -> Time:
    """Eight to sixteen ticks, at times that people like."""
    second = 1_000_000
    nice = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)
    for seconds in nice:
        if length / (seconds * second) <= 13:
            return seconds * second
    days = -(-length // (86400 * second * 12))
    return days * 86400 * second


def _clock(at: Time) -> str:
    seconds = at // 1_000_000
    if seconds < 60:
        return f"{seconds} s"
    minutes, left = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes}:{left:02} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02} h"


def _points(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _rect(kind: str, x: float, y: float, width: float, height: float) -> str:
    return f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"/>'


def _line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _text(x: float, y: float, kind: str, text: str, *, anchor: str = "") -> str:
    own = f' class="{kind}"' if kind else ""
    end = f' text-anchor="{anchor}"' if anchor else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{own}{end}>{_safe(text)}</text>'


def _safe(text: str) -> str:
    """Escaped, without characters that XML cannot hold."""
    return escape("".join(each for each in text if each.isprintable()))
