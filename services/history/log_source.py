"""Opens a log for reading: the topic of a live cluster with its archive, or an exported file. It never writes to
the log.

It notes the values that this release can't read as events, so that a command can report them. A single such value does
no harm. Many of them mean that another release wrote the log, and that the shown history is incomplete.

with open_log_source(configuration) as source:  # or a path
    for entry in HistoryProjection().read(source.log, store=source.store): ...
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from ...schemas.event import Event
from ..configuration import Configuration
from ..configuration.options.rest import REST_URL
from ..core.leadership import LeadershipState
from ..log import EventLog
from ..log.event_log import Concerns, OnUnreadable, Tail, Unreadable
from ..snapshots.store import SnapshotStore
from .archive.file_log import FileLog
from .log_position import LogPosition, TimeMarks
from .state_index.index import StateIndex

_TIMEOUT_S = 10.0
_MAX_NOTED = 100_000


class UnreadableEntries:
    """The unreadable values of a log, however often it was read."""

    def __init__(self) -> None:
        self._offsets: set[int] = set()
        self._first: Unreadable | None = None

    def note(self, value: Unreadable) -> None:
        """Adds a value."""
        if len(self._offsets) < _MAX_NOTED:
            self._offsets.add(value.offset)
        if self._first is None or value.offset < self._first.offset:
            self._first = value

    def format_lines(self) -> str | None:
        """Returns a line for people; None if there are none."""
        first, count = self._first, len(self._offsets)
        if first is None:
            return None
        values = "a value that is" if count == 1 else f"{count:,} values that are"
        return (
            f"skipped {values} no event of this release in {first.topic}, the first at offset {first.offset} "
            f"({first.reason}); if another release wrote them, export the log with that release, and read the file"
        )


class UnreadableTrackingLog:
    """A log that notes the unreadable values that its readers skip."""

    def __init__(self, log: EventLog, passed_over: UnreadableEntries) -> None:
        self._log = log
        self._passed_over = passed_over

    @property
    def topic(self) -> str:
        return self._log.topic

    def append(self, events: Sequence[Event], most_bytes: int | None = None) -> list[int]:
        return self._log.append(events, most_bytes)

    def follow(self, leadership: LeadershipState) -> None:
        self._log.follow(leadership)

    def end(self) -> int:
        return self._log.end()

    def tail(
        self, start: int, *, concerns: Concerns | None = None, on_unreadable: OnUnreadable | None = None
    ) -> Tail:
        def note(value: Unreadable) -> None:
            self._passed_over.note(value)
            if on_unreadable is not None:
                on_unreadable(value)

        return self._log.tail(start, concerns=concerns, on_unreadable=note)

    def close(self) -> None:
        self._log.close()


class LogSource:
    """A log with its snapshots and index. Close it, or use it in a `with` statement."""

    def __init__(
        self,
        log: EventLog,
        cluster: str,
        *,
        store: SnapshotStore | None = None,
        file: Path | None = None,
        whole: bool = True,
        first: int | None = None,
    ) -> None:
        self.passed_over = UnreadableEntries()
        """The unreadable values, as far as the log was read."""
        self.log: EventLog = UnreadableTrackingLog(log, self.passed_over)
        self.first = first
        """The offset of the first entry of a file; None for a live cluster."""
        self.cluster = cluster
        """The id of the cluster."""
        self.store = store
        """The cluster's snapshots; None for files."""
        self.file = file
        """None for a live cluster."""
        self.whole = whole
        """Whether the log has all events from its beginning on. Only then it can be folded."""
        self.when_closed: Callable[[LogSource], None] | None = None
        """Called at the end, unless there was an error."""
        self.index = StateIndex(self.log, cluster)
        """States at marks of the log, on this machine; opened at its first use."""
        self.marks: TimeMarks | None = self.index if whole else None

    def at(self, position: LogPosition) -> int:
        """Returns the last offset up to the position. Raises PositionOutOfRange, LogUnavailable, ArchiveError."""
        return position.at(self.log, self.marks)

    def start(self, position: LogPosition) -> int:
        """Returns the first offset from the position on. Raises like `at`."""
        return position.start(self.log, self.marks)

    def close(self) -> None:
        """Closes connections and files."""
        self.log.close()
        if self.when_closed is not None:
            self.when_closed(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.when_closed = None
        self.close()


OpenSource = Callable[[], LogSource]
"""Opens a log, as often as it is read. Raises like open_log_source."""


def open_log_source(of: Configuration | Path, *, selections: bool = False) -> LogSource:
    """Opens the log of a live cluster, or an exported file; `selections`: also a file without some events.

    Raises ArchiveError if the file is no archive, or its beginning is damaged. LogUnavailable may come here or later.
    """
    if isinstance(of, Path):
        log = FileLog.open(of, selections=selections)
        about = log.description
        return LogSource(log, about.cluster, file=of, whole=about.whole, first=about.first)
    if of.get(REST_URL):
        # Loaded here: HTTP and TLS take longer to load than a short file to read.
        from ..log.rest_log import RestConnection, RestEventLog

        connection = RestConnection(of)
        return LogSource(RestEventLog(connection), of.cluster_id)
    from .retention.archived_log import open_archived_log

    return LogSource(
        open_archived_log(of, timeout_s=_TIMEOUT_S), of.cluster_id, store=SnapshotStore.from_configuration(of)
    )
