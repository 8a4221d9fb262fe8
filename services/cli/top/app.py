"""The screen of `tailrace top`: textual's widgets, filled from the output of the EventPlayer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.color import Color
from textual.containers import Horizontal
from textual.events import Resize
from textual.filter import LineFilter
from textual.screen import ModalScreen, Screen
from textual.widgets import DataTable, Footer, Input, RichLog, Static

from ....infra import threads
from ..render.job_ids import shorten_job_ids
from . import panels
from .event_player import EventPlayer, PlayerStatus
from .live_processes import LiveProcesses
from .view import JobLine, LogLine, View

_INTERVAL_S = 0.1
_POLL_PROCESSES_S = 5.0
_STEP, _SPEED = Binding.Group("Step", compact=True), Binding.Group("Speed", compact=True)
_WIDE = 140
"""The width from which the states of tasks are written in full."""
_BLOCKS = {chr(code): " " for code in range(0x2580, 0x25A0)}
_ASCII = str.maketrans(
    {**_BLOCKS, "■": "#", "◧": "~", "□": ".", "…": "~", "→": ">", "×": "x", "─": "-", "│": "|", "←": "<"}
)


def to_ascii(text: str) -> str:
    """The text in ASCII, as wide as before."""
    if text.isascii():
        return text
    return "".join(
        sign if sign.isascii() else "?" * max(1, cell_len(sign)) for sign in text.translate(_ASCII)
    )


class AsciiFilter(LineFilter):
    """Draws with ASCII only."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Replaces all other characters."""
        return [Segment(to_ascii(text), style, control) for text, style, control in segments]


class PanelTable(DataTable[Text]):
    """A table with one row for each key."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("home", "scroll_top", "First row", show=False),
        Binding("end", "scroll_bottom", "Last row", show=False),
    ]

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id, cursor_type="row", cursor_foreground_priority="renderable")
        self._cells: panels.Rows = {}

    @property
    def key(self) -> str | None:
        """The key under the cursor."""
        keys = list(self._cells)
        return keys[self.cursor_row] if 0 <= self.cursor_row < len(keys) else None

    def show(self, columns: Sequence[str], rows: panels.Rows, title: str) -> None:
        """Updates the cells that differ, or all rows if there are others."""
        self.border_title = title
        if not self.columns:
            for column in columns:
                self.add_column(column, key=column)
        before = self._cells
        if list(before) == list(rows):
            self._cells = rows
            for key, cells in rows.items():
                if cells is not before[key]:
                    for column, cell, old in zip(columns, cells, before[key], strict=True):
                        if cell != old:
                            self.update_cell(key, column, cell, update_width=True)
            return
        chosen, top = self.key, self.scroll_y
        self._cells = rows
        self.clear()
        for key, cells in rows.items():
            self.add_row(*cells, key=key)
        if chosen in rows:
            self.move_cursor(row=list(rows).index(chosen))
            self.scroll_to(y=top, animate=False)


class LogPanel(RichLog):
    """The last events in words; follows the end unless it is scrolled up."""

    def __init__(self, *, id: str = "log") -> None:
        super().__init__(id=id, max_lines=5_000, min_width=0)
        self.border_subtitle = panels.MARKS
        self._written: tuple[object, int] = None, -1

    def on_resize(self, _: Resize) -> None:
        """The lines are as wide as the panel."""
        assert isinstance(self.app, TopApp)
        self.call_after_refresh(self.app.redraw)

    def show(self, lines: Sequence[LogLine], pattern: str) -> None:
        """Appends the new lines, or writes all where others are shown than before."""
        width = self.scrollable_content_region.width
        made_for, last = self._written
        is_same = made_for == (width, pattern) and bool(lines) and lines[0].offset <= last <= lines[-1].offset
        follows = not is_same or self.is_vertical_scroll_end
        if not is_same:
            self.clear()
            last = -1
        for line in lines:
            if line.offset > last:
                self.write(panels.log_line(line, width), width=width, scroll_end=False)
        if follows:
            self.scroll_end(animate=False)
        if not lines:
            self.write(Text("no event contains that" if pattern else "no events yet", "dim"))
        self._written = (width, pattern), lines[-1].offset if lines else -1


class Prompt(ModalScreen[str | None]):
    """Asks for a line of text; None: escape was pressed."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "Cancel")]

    def __init__(self, question: str, value: str = "") -> None:
        super().__init__()
        self._question, self._value = question, value

    def compose(self) -> ComposeResult:
        """One input."""
        line = Input(self._value, select_on_focus=False)
        line.border_title = self._question
        yield line

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Returns what was typed."""
        self.dismiss(event.value.strip())


class ViewScreen(Screen[None]):
    """A page with the title bar, the warnings and the keys."""

    app: TopApp
    AUTO_FOCUS = "#jobs, #tasks"

    def compose(self) -> ComposeResult:
        """All parts from top to bottom."""
        yield Static(id="title")
        yield Static(id="warnings")
        yield from self.compose_body()
        yield Footer(show_command_palette=False)

    def compose_body(self) -> Iterator[Static | PanelTable | LogPanel | Horizontal]:
        """The panels."""
        raise NotImplementedError

    def show(self, view: View, status: PlayerStatus) -> None:
        """Fills the widgets."""
        self.query_one("#title", Static).update(panels.title_bar(view, status))
        text = panels.warnings(view, status, self.app.pattern)
        warnings = self.query_one("#warnings", Static)
        warnings.update(text)
        warnings.display = bool(text)

    def on_screen_resume(self) -> None:
        """Another page was shown before."""
        self.call_after_refresh(self.app.redraw)


class MainScreen(ViewScreen):
    """The whole cluster."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("tab", "app.focus_next", "Panel")]

    def __init__(self) -> None:
        super().__init__()
        self._rows: dict[str, tuple[JobLine, object, panels.Row]] = {}

    def compose_body(self) -> Iterator[Static | PanelTable | LogPanel | Horizontal]:
        """Masters beside TaskExecutors, jobs, and the log."""
        yield Horizontal(PanelTable(id="masters"), PanelTable(id="executors"), id="processes")
        yield PanelTable(id="jobs")
        yield LogPanel()

    def show(self, view: View, status: PlayerStatus) -> None:
        """Fills the widgets."""
        super().show(view, status)
        pattern, now = self.app.pattern, status.now
        masters = panels.master_rows(view, self.app.processes)
        self.query_one("#masters", PanelTable).show(panels.MASTER_COLUMNS, masters, "Masters")
        executors = panels.executor_rows(view, pattern)
        self.query_one("#executors", PanelTable).show(
            panels.EXECUTOR_COLUMNS, executors, panels.executor_title(view)
        )
        jobs = self.query_one("#jobs", PanelTable)
        lines = {line.job.job_id: line for line in view.jobs if panels.matches_job(line, pattern)}
        shown = shorten_job_ids(line.job.job_id for line in view.jobs)
        rows = {job_id: self._row(line, shown[job_id], now) for job_id, line in lines.items()}
        jobs.show(panels.JOB_COLUMNS, rows, panels.job_title(view, len(rows)))
        chosen = lines.get(jobs.key or "")
        jobs.border_subtitle = "" if chosen is None else panels.failure_text(chosen, now).markup
        log = self.query_one(LogPanel)
        log.border_title = "Log"
        log.show(panels.filter_log(view, pattern), pattern)

    def on_data_table_row_highlighted(self, _: DataTable.RowHighlighted) -> None:
        """The last failure is that of the job under the cursor."""
        self.app.redraw()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Opens a job's page."""
        if event.data_table.id == "jobs" and event.row_key.value is not None:
            self.app.push_screen(JobScreen(event.row_key.value))

    def _row(self, line: JobLine, shown_id: str, now: int | None) -> panels.Row:
        """The row of a job. Most rows stay the same from one view to the next."""
        moment = now // 1_000_000 if now is not None and line.job.ended is None else None
        wide = self.size.width >= _WIDE
        known = self._rows.get(line.job.job_id)
        if known is None or known[0] is not line or known[1] != (shown_id, moment, wide):
            row = panels.job_row(line, shown_id, now, wide=wide)
            known = self._rows[line.job.job_id] = line, (shown_id, moment, wide), row
        return known[2]


class JobScreen(ViewScreen):
    """One job: its tasks, its checkpoints, and its part of the log."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("tab", "app.focus_next", "Panel", show=False)]

    def __init__(self, job_id: str) -> None:
        super().__init__()
        self._job_id = job_id

    def compose_body(self) -> Iterator[Static | PanelTable | LogPanel | Horizontal]:
        """Head, tasks, checkpoints and log."""
        yield Static(id="head")
        yield PanelTable(id="tasks")
        checkpoints = Static(id="checkpoints")
        checkpoints.border_title = "Checkpoints"
        yield checkpoints
        yield LogPanel()

    def on_mount(self) -> None:
        """The player adds the job's tasks to its views."""
        player = self.app.player
        player.submit(lambda: player.select_job(self._job_id))

    def on_unmount(self) -> None:
        """They are not needed any more."""
        player = self.app.player
        player.submit(lambda: player.select_job(None))

    def show(self, view: View, status: PlayerStatus) -> None:
        """Fills the widgets."""
        super().show(view, status)
        line = next((line for line in view.jobs if line.job.job_id == self._job_id), None)
        detail = view.detail if view.detail is not None and view.detail.job_id == self._job_id else None
        head = (
            Text("there is no such job at this place", "dim")
            if line is None
            else panels.job_head(line, status.now)
        )
        self.query_one("#head", Static).update(head)
        tasks = panels.task_rows(detail)
        self.query_one(PanelTable).show(panels.TASK_COLUMNS, tasks, f"Tasks: {len(tasks)}")
        self.query_one("#checkpoints", Static).update(panels.checkpoint_lines(detail, status.now))
        log = self.query_one(LogPanel)
        log.border_title = "Log of the job"
        log.show(panels.filter_log(view, self.app.pattern, self._job_id), self.app.pattern)


class TopApp(App[None]):
    """Ends by `q`, or by an error."""

    TITLE = "tailrace top"
    ENABLE_COMMAND_PALETTE = False
    VERTICAL_BREAKPOINTS = [(0, "-short"), (18, "-tall")]
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+c", "quit", "Quit", key_display="q"),
        Binding("question_mark", "help", "Help", key_display="?"),
        Binding("escape", "close", "Back", show=False),
        Binding("space,p", "pause", "Pause", key_display="space"),
        Binding("left,comma", "step_back", "One event back", key_display="←", priority=True, group=_STEP),
        Binding("right,full_stop", "step_on", "One event on", key_display="→", priority=True, group=_STEP),
        Binding("plus,equals_sign", "change_speed(True)", "Faster", key_display="+", group=_SPEED),
        Binding("minus", "change_speed(False)", "Slower", key_display="-", group=_SPEED),
        Binding("g", "go_to", "Go to"),
        Binding("l", "live", "Live"),
        Binding("slash", "filter", "Filter", key_display="/"),
    ]
    CSS = """
    #title { height: 1; background: $primary; color: $text; text-style: bold; }
    #warnings, #head { height: auto; padding: 0 1; }
    PanelTable, LogPanel, #checkpoints {
        border: round $surface-lighten-3; border-title-color: $text; border-title-style: bold;
        border-subtitle-color: $text-muted; background: $background; padding: 0 1; scrollbar-size: 0 1;
    }
    PanelTable:focus, LogPanel:focus { border: round $accent; border-title-color: $accent; }
    PanelTable > .datatable--header { background: $background; color: $text-muted; text-style: none; }
    PanelTable > .datatable--cursor { background: $background; text-style: none; }
    PanelTable:focus > .datatable--cursor { background: $primary-muted; text-style: bold; }
    #processes { height: auto; max-height: 30%; }
    #masters { width: 3fr; } #executors { width: 2fr; }
    #masters, #executors { height: auto; max-height: 100%; }
    #jobs, #tasks { height: auto; max-height: 40%; }
    #checkpoints { height: auto; }
    LogPanel { height: 1fr; }
    .-short #processes, .-short #checkpoints { display: none; }
    .-ascii PanelTable, .-ascii LogPanel, .-ascii #checkpoints { border: ascii $foreground; }
    Prompt Input { border: round $accent; border-title-color: $accent; }
    Prompt { align: center bottom; background: $background 0%; }
    """

    def __init__(
        self,
        player: EventPlayer,
        read_processes: Callable[[], LiveProcesses] | None = None,
        *,
        ascii_only: bool = False,
    ) -> None:
        super().__init__()
        self.player = player
        self.processes = LiveProcesses()
        self.pattern = ""
        self.error: Exception | None = None
        """The error that ended the app."""
        self._read_processes = read_processes
        self._poller: threads.Thread | None = None
        self._drawn: object = None
        self._notice: str | None = None
        self._filters_lines = ascii_only
        self.set_class(ascii_only, "-ascii")

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Adds the one of --ascii."""
        filters = super().get_line_filters()
        return [*filters, AsciiFilter()] if self._filters_lines else filters

    def get_default_screen(self) -> Screen[None]:
        """The first page."""
        return MainScreen()

    def on_mount(self) -> None:
        """Starts to look."""
        self.set_interval(_INTERVAL_S, self.tick)
        if self._read_processes is not None:
            self._poll_processes()
            self.set_interval(_POLL_PROCESSES_S, self._poll_processes)

    def tick(self) -> None:
        """Updates the page if its content has changed."""
        try:
            if self.player.error is not None:
                raise self.player.error
            view, status = self.player.shown
            if status.notice != self._notice:
                self._notice = status.notice
                self.clear_notifications()
                if status.notice:
                    self.notify(panels.clean(status.notice), markup=False)
            screen = self.screen
            made_of = view.offset, view.detail, status, self.processes, self.pattern, screen
            if isinstance(screen, ViewScreen) and screen.is_mounted and made_of != self._drawn:
                screen.show(view, status)
                self._drawn = made_of
        except Exception as error:
            # It is reported when the terminal is restored.
            self.error = error
            self.exit()

    def redraw(self) -> None:
        """Updates the page in any case."""
        self._drawn = None
        self.tick()

    def _poll_processes(self) -> None:
        if self._poller is None or not self._poller.is_alive():
            # A daemon: who quits does not wait for ZooKeeper.
            self._poller = threads.Thread(target=self._update_processes, name="top-processes")
            self._poller.start()

    def _update_processes(self) -> None:
        assert self._read_processes is not None
        try:
            self.processes = self._read_processes()
        except Exception as error:
            self.player.error = error

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys go to the prompt while it is open."""
        return not isinstance(self.screen, Prompt) or action not in ("step_back", "step_on")

    def action_help(self) -> None:
        """Shows or hides all keys."""
        if self.screen.query("HelpPanel"):
            self.action_hide_help_panel()
        else:
            self.action_show_help_panel()

    def action_close(self) -> None:
        """Closes the help or the job's page, or removes the filter."""
        if self.screen.query("HelpPanel"):
            self.action_hide_help_panel()
        elif isinstance(self.screen, JobScreen):
            self.pop_screen()
        else:
            self.pattern = ""

    def action_pause(self) -> None:
        """Pauses, or continues."""
        self.player.submit(self.player.pause)

    def action_step_on(self) -> None:
        """One event later."""
        self.player.submit(self.player.step_on)

    def action_step_back(self) -> None:
        """One event earlier."""
        self.player.submit(self.player.step_back)

    def action_change_speed(self, faster: bool) -> None:
        """Changes the speed of the playback."""
        self.player.submit(lambda: self.player.change_speed(faster=faster))

    def action_live(self) -> None:
        """Goes to the end of the log."""
        self.player.submit(lambda: self.player.go_to(None))

    def action_go_to(self) -> None:
        """Asks for a place."""

        def go(place: str | None) -> None:
            if place:
                self.player.submit(lambda: self.player.go_to(place))

        self.push_screen(Prompt("Go to an offset (4711), a time (08:30, 2026-11-22T08:30:05) or -10m"), go)

    def action_filter(self) -> None:
        """Asks for a text."""

        def show_only(pattern: str | None) -> None:
            self.pattern = self.pattern if pattern is None else pattern

        self.push_screen(Prompt("Show only what contains", self.pattern), show_only)
