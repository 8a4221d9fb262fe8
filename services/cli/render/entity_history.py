"""Prints the history of an entity: aligned columns; coloured and wrapped on a terminal, plain elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ....infra.sanitize import escape_control_characters, local_time
from .formatting import format_clock, format_count, format_duration
from .output import print_result

if TYPE_CHECKING:
    from rich.console import Console

    from ...history.entity_history.cause_chains import CauseChain, Effect
    from ...history.entity_history.timeline import EntityHistory, EventReference, HistoryLine

_DAY = "%Y-%m-%d"
_MIN_WIDTH = 40
_MAX_TEXT_LENGTH = 100
_MAX_CAUSE_LENGTH = 1_000
_SHOWN_LINES = 200, 300
_SHOWN_CAUSES = 20, 20
"""The numbers of lines at the beginning and at the end that are shown of a longer history, and of a longer chain."""
_STYLES = {"!!": "bold red", "!": "red", "x": "dim", "": ""}
_LEGEND = {
    "!!": "a failure that began here",
    "!": "a failure that followed",
    "x": "has no effect: an old leader said it, or it was not possible",
}
_QUIET = "dim"
_TITLE = "bold"
_GOOD = "green"
_BAD = "bold red"


class Segment(NamedTuple):
    """A part of a line, and its style on a terminal."""

    text: str
    style: str = ""


class Row(NamedTuple):
    """Columns of a fixed width, and a text that is wrapped beside them."""

    columns: tuple[Segment, ...]
    text: Segment


_HEADINGS = Row(
    tuple(Segment(heading, _QUIET) for heading in ("", "offset", "time", "after", "who -> whom", "cause")),
    Segment("what", _QUIET),
)


class Page:
    """Prints rows, with columns as wide as the widest seen so far."""

    def __init__(self) -> None:
        self._console = _console() if sys.stdout.isatty() else None
        self._widths: list[int] = []

    def line(self, *segments: Segment) -> None:
        """A line by itself."""
        self._print([Segment(escape_control_characters(text), style) for text, style in segments])

    def rows(self, rows: Iterable[Row]) -> None:
        """Prints aligned rows."""
        found = list(rows)
        for row in found:
            widths = [len(column.text) for column in row.columns]
            known = self._widths + [0] * (len(widths) - len(self._widths))
            self._widths = [max(pair) for pair in zip(widths, known, strict=True)]
        for row in found:
            self._row(row)

    def _row(self, row: Row) -> None:
        cells = [
            Segment(escape_control_characters(cell.text).ljust(width) + "  ", cell.style)
            for cell, width in zip(row.columns, self._widths, strict=True)
        ]
        indent = sum(len(cell.text) for cell in cells)
        text = escape_control_characters(row.text.text)
        if self._console is None:
            self._print([*cells, Segment(text)])
            return
        from .wrapping import wrap_text

        width = self._console.width
        if width - indent < _MIN_WIDTH:
            indent = 8
            self._print(cells)
            cells = [Segment(" " * indent)]
        first, *rest = wrap_text(text, width - indent)
        self._print([*cells, Segment(first, row.text.style)])
        for part in rest:
            self._print([Segment(" " * indent), Segment(part, row.text.style)])

    def _print(self, segments: Sequence[Segment]) -> None:
        if self._console is None:
            print_result("".join(segment.text for segment in segments).rstrip())
            return
        from rich.text import Text

        text = Text.assemble(*[(segment.text, segment.style) for segment in segments])
        text.rstrip()
        self._console.print(text, soft_wrap=True)


def _console() -> Console:
    from rich.console import Console

    return Console(highlight=False)


def print_head(page: Page, story: EntityHistory) -> None:
    """Prints what the entity is, when it began, and when and how it ended."""
    page.line(Segment(format_title(story), _TITLE))
    if story.began is not None:
        page.line(Segment("  began    ", _QUIET), Segment(_moment(story.began)))
        _because(page, story.because)
    if story.ended is not None and story.began is not None:
        took = f", {format_duration(max(0, story.ended.time - story.began.time))} later"
        page.line(Segment("  ended    ", _QUIET), Segment(_moment(story.ended, took)))
        _because(page, story.ended_because)
    elif story.last is not None and story.began is not None:
        page.line(Segment("  last     ", _QUIET), Segment(_moment(story.last)))
    page.line()


def _because(page: Page, moment: EventReference | None) -> None:
    if moment is not None:
        page.line(Segment("  because  ", _QUIET), Segment(_moment(moment)))


def print_body(
    page: Page,
    lines: Sequence[HistoryLine],
    before: HistoryLine | None = None,
    *,
    everything: bool = False,
    most: tuple[int, int] = _SHOWN_LINES,
) -> None:
    """Prints the lines with the time since the line before. `before`: the line that was printed last. `most`: the
    numbers of lines at the beginning and at the end; the middle is left out, unless `everything` is requested."""
    rows = list(_rows(lines, before))
    if not everything and (hidden := len(rows) - sum(most)) > 0:
        text = Segment(f"... {hidden:,} lines between (--all shows them)", _QUIET)
        gap = Row(tuple(Segment("") for _ in _HEADINGS.columns), text)
        rows = [*rows[: most[0]], gap, *rows[-most[1] :]]
    page.rows([_HEADINGS, *rows] if before is None and rows else rows)


def print_end(page: Page, story: EntityHistory) -> None:
    """Prints the status and its root cause, the number of omitted events, and the meaning of the marks."""
    if story.lines:
        page.line()
    page.line(
        Segment("outcome     ", _QUIET),
        Segment(story.outcome, _BAD if story.failed else _GOOD if story.over else _TITLE),
    )
    if story.root_cause is not None:
        label = "recovered   " if story.recovered else "root cause  " if story.failed else "was failing "
        page.line(
            Segment(label, _QUIET),
            Segment(_moment(story.root_cause, longest=_MAX_CAUSE_LENGTH), "" if story.recovered else _BAD),
        )
    left_out = []
    if story.details:
        left_out.append(f"{format_count(story.details, 'event')} of little weight (--all shows them)")
    if story.outside:
        left_out.append(f"{format_count(story.outside, 'event')} before what was asked for")
    if left_out:
        page.line(Segment(f"left out    {' and '.join(left_out)}", _QUIET))
    marks = dict.fromkeys(line.mark.value for line in story.lines if line.mark.value)
    if marks:
        page.line(Segment(f"marks       {', '.join(f'{mark} {_LEGEND[mark]}' for mark in marks)}", _QUIET))


def print_causes(page: Page, found: CauseChain, *, everything: bool = False) -> None:
    """Prints the requested event, each cause below it, and the first cause. The middle of a long chain is left out,
    unless `everything` is requested."""
    asked, began = found.lines[0], found.lines[-1]
    page.line(Segment(f"offset {asked.offset}: {asked.who}: {asked.text}", _TITLE))
    page.line()
    print_body(page, found.lines, everything=everything, most=_SHOWN_CAUSES)
    page.line()
    ago = f", {format_duration(max(0, asked.time - began.time))} before" if began is not asked else ""
    page.line(Segment("began with  ", _QUIET), Segment(f"{found.text} (offset {began.offset}{ago})", _TITLE))


def print_effects(page: Page, root: Effect, count: int, last: int | None) -> None:
    """Prints the event and the tree of its effects."""
    line = root.line
    page.line(
        Segment(f"offset {line.offset}, {_clock(line.time)}: {line.who}: {line.text}", _TITLE),
    )
    unicode = "utf" in (sys.stdout.encoding or "").lower()
    for branch in _branches(root, "", unicode, line.time):
        page.line(*branch)
    page.line()
    until = "" if last is None else f", over {format_duration(max(0, last - line.time))}"
    shown = _count_events(root) - 1
    left = f"; {format_count(count - shown, 'event')} not shown (--all shows them)" if count > shown else ""
    page.line(
        Segment("effects     ", _QUIET), Segment(f"{format_count(count, 'event')}{until}{left}", _TITLE)
    )


def format_title(story: EntityHistory) -> str:
    """Returns the title of the history: the kind and the id of the entity, and its name."""
    name = f' "{story.names[0]}"' if story.names and story.kind in ("job", "task") else ""
    return f"{story.kind} {story.id}{name}"


def _rows(lines: Sequence[HistoryLine], before: HistoryLine | None) -> Iterator[Row]:
    days = {local_time(line.time, _DAY) for line in lines}
    for line in lines:
        style = _STYLES[line.mark.value]
        after = "" if before is None else _after(line.time - before.time)
        yield Row(
            (
                Segment(line.mark.value, style),
                Segment(_offsets(line)),
                Segment(_clock(line.time, with_day=len(days) > 1), _QUIET),
                Segment(after, _QUIET),
                Segment(line.who, style),
                Segment("" if line.cause is None else f"<- {line.cause}", _QUIET),
            ),
            _text(line),
        )
        before = line


def _text(line: HistoryLine) -> Segment:
    text = line.text
    if line.count > 1 and (over := line.time_of_last - line.time) >= 1000:
        text += f" [over {format_duration(over)}]"
    if line.waited is not None:
        text += f" [after waiting {format_duration(line.waited)}]"
    if line.root is not None:
        text += f" [began at {line.root}]"
    if line.ignored is not None:
        text += f" [IGNORED: {line.ignored}]"
    return Segment(text, _STYLES[line.mark.value])


def _branches(effect: Effect, indent: str, unicode: bool, since: int) -> Iterator[list[Segment]]:
    fork, last, bar = ("├─ ", "└─ ", "│  ") if unicode else ("|- ", "`- ", "|  ")
    for number, below in enumerate(effect.effects):
        is_last = number == len(effect.effects) - 1 and not effect.left_out
        line = below.line
        style = _STYLES[line.mark.value]
        mark = f"{line.mark.value} " if line.mark.value else ""
        yield [
            Segment(indent + (last if is_last else fork), _QUIET),
            Segment(f"{_offsets(line)} "),
            Segment(f"+{format_duration(max(0, line.time - since))}  ", _QUIET),
            Segment(f"{mark}{line.who}: {_text(line).text}", style),
        ]
        yield from _branches(below, indent + ("   " if is_last else bar), unicode, since)
    if effect.left_out:
        yield [Segment(f"{indent}{last}and {format_count(effect.left_out, 'event')} more", _QUIET)]


def _offsets(line: HistoryLine) -> str:
    return f"{line.offset}" if line.count == 1 else f"{line.offset}..{line.until}"


def _count_events(effect: Effect) -> int:
    return effect.line.count + sum(_count_events(below) for below in effect.effects)


def _moment(moment: EventReference, took: str = "", longest: int = _MAX_TEXT_LENGTH) -> str:
    text = moment.text if len(moment.text) <= longest else f"{moment.text[: longest - 3]}..."
    return f"{_clock(moment.time, with_day=True)}, offset {moment.offset}{took}: {text}"


def _clock(time: int, *, with_day: bool = False) -> str:
    return f"{local_time(time, f'{_DAY} ') if with_day else ''}{format_clock(time)}"


def _after(microseconds: int) -> str:
    if abs(microseconds) < 1000:
        return ""
    # The clocks of two machines may differ.
    return f"+{format_duration(microseconds)}" if microseconds > 0 else f"-{format_duration(-microseconds)}"
