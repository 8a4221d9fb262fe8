"""The screen on a terminal: keys go to the Look and the Player, lines come back. The one part that knows textual.

Nothing is decided here. Ten times a second the player makes a step, and where what is to be seen has changed, the rows
that are others now are drawn anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style as RichStyle
from textual.app import App, ComposeResult
from textual.events import Key, Resize
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from ....infra.logging_setup import disable_logging
from ...core.replica import tune_gc_for_replay
from .canvas import Glyphs, Line, Style
from .event_player import EventPlayer
from .live_processes import LiveProcesses, LiveProcessesPoller, read_live_processes
from .log_opener import LogOpener
from .log_reader import LogReader, OpenLog
from .screen import draw
from .ui_state import PlayerCommand, Rows, UiState, handle_key, open_job

_INTERVAL_S = 0.1
_STYLES = {
    Style.PLAIN: RichStyle(),
    Style.BAR: RichStyle(reverse=True, bold=True),
    Style.TITLE: RichStyle(bold=True),
    Style.FOCUS: RichStyle(bold=True, underline=True, color="cyan"),
    Style.HEADING: RichStyle(dim=True),
    Style.DIM: RichStyle(dim=True),
    Style.NAME: RichStyle(color="cyan"),
    Style.GOOD: RichStyle(color="green"),
    Style.BUSY: RichStyle(color="yellow"),
    Style.BAD: RichStyle(color="red"),
    Style.WORST: RichStyle(color="red", bold=True),
    Style.KEY: RichStyle(bold=True),
}
_CHOSEN = RichStyle(bold=True, reverse=True)


class ScreenWidget(Widget):
    """All of the terminal: lines as they were drawn last."""

    DEFAULT_CSS = "Rectangle { width: 100%; height: 100%; }"

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[Line] = []

    def show(self, lines: list[Line]) -> None:
        """Draws the rows that are others now."""
        before, self.lines = self.lines, lines
        if len(before) != len(lines):
            self.refresh()
            return
        changed = [y for y, line in enumerate(lines) if line != before[y]]
        if changed:
            self.refresh(*(Region(0, y, self.size.width, 1) for y in changed))

    def render_line(self, y: int) -> Strip:
        """As textual wants it."""
        if y >= len(self.lines):
            return Strip.blank(self.size.width)
        line = self.lines[y]
        # Colours in reverse would be a row of patches.
        segments = [Segment(text, _CHOSEN if line.chosen else _STYLES[style]) for text, style in line.spans]
        return Strip(segments).adjust_cell_length(self.size.width)


class TopApp(App[None]):
    """Ends by `q`, or where the reader breaks."""

    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar = []
    CSS = "Screen { background: ansi_default; color: ansi_default; overflow: hidden; }"

    def __init__(
        self, player: EventPlayer, glyphs: Glyphs, presence: Callable[[], LiveProcesses] = LiveProcesses
    ) -> None:
        super().__init__(ansi_color=True)
        self._player = player
        self._glyphs = glyphs
        self.presence = presence
        self.look = UiState()
        self.error: Exception | None = None
        """What ended it before its time."""
        self._rows = Rows()
        self._drawn: object = None
        """What the screen was made of last."""
        self._at = time.monotonic()
        self.rectangle = ScreenWidget()

    def compose(self) -> ComposeResult:
        """One widget."""
        yield self.rectangle

    def on_mount(self) -> None:
        """The clock begins."""
        self._at = time.monotonic()
        self.set_interval(_INTERVAL_S, self.tick)
        self.tick()

    def on_resize(self, _: Resize) -> None:
        """All is drawn anew."""
        self.call_after_refresh(self.redraw)

    def tick(self) -> None:
        """A step of the player, and what is to be seen of it."""
        now = time.monotonic()
        elapsed, self._at = now - self._at, now
        with self._ended_by_errors():
            self._player.step(elapsed)
            self.draw()

    def redraw(self) -> None:
        """As `draw`, for who can't tell what goes wrong."""
        with self._ended_by_errors():
            self.draw()

    def draw(self) -> None:
        """What is to be seen now."""
        size = self.size
        self._player.select_job(open_job(self.look))
        view, status, presence = self._player.view(), self._player.status(), self.presence()
        of = (view.offset, view.detail, self.look, status, presence, size)
        if of == self._drawn:
            return
        self._drawn = of
        drawn = draw(view, self.look, status, presence, size.width, size.height, self._glyphs)
        self._rows = drawn.rows
        self.rectangle.show(drawn.lines)

    async def on_key(self, event: Key) -> None:
        """To the Look, and what that asks for to the Player."""
        event.stop()
        event.prevent_default()
        with self._ended_by_errors():
            pressed = handle_key(self.look, event.key, event.character, self._player.view(), self._rows)
            self.look = pressed.look
            if pressed.ask is PlayerCommand.QUIT:
                self.exit()
                return
            if pressed.ask is not None:
                self._perform(pressed.ask, pressed.place)
            elif pressed.look.question is None:
                self._player.show_notice(None)
            self.draw()

    async def action_quit(self) -> None:
        """Ctrl+q and ctrl+c, which textual has for itself."""
        self.exit()

    @contextmanager
    def _ended_by_errors(self) -> Iterator[None]:
        """What goes wrong is told when the terminal has been given back."""
        try:
            yield
        except Exception as error:
            self.error = error
            self.exit()

    def _perform(self, wanted: PlayerCommand, place: str) -> None:
        player = self._player
        match wanted:
            case PlayerCommand.PAUSE:
                player.pause()
            case PlayerCommand.FASTER | PlayerCommand.SLOWER:
                player.change_speed(faster=wanted is PlayerCommand.FASTER)
            case PlayerCommand.STEP:
                player.step_on()
            case PlayerCommand.BACK:
                player.step_back()
            case PlayerCommand.LIVE:
                player.go_to(None)
            case PlayerCommand.GO:
                player.go_to(place)
            case PlayerCommand.QUIT:
                pass


def show(opener: LogOpener, opened: OpenLog, place: str | None, speed: float, glyphs: Glyphs) -> None:
    """The screen, until somebody has seen enough. Raises what broke it."""
    tune_gc_for_replay()
    # What is logged would go over the screen.
    disable_logging()
    reader = LogReader(opened, opener.open)
    player = EventPlayer(
        reader, live=opened.live, cluster=opened.source.cluster, source=opener.description, speed=speed
    )
    configuration = opener.configuration
    asker = (
        None
        if configuration is None
        else LiveProcessesPoller(lambda: read_live_processes(opener.configuration or configuration))
    )
    app = TopApp(player, glyphs, presence=LiveProcesses if asker is None else asker.latest)
    reader.start()
    if asker is not None:
        asker.start()
    try:
        player.go_to(place)
        app.run(mouse=False)
        if app.error is not None:
            raise app.error
    finally:
        if asker is not None:
            asker.stop()
        reader.stop()
