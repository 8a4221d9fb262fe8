"""Opens a log for reading: the topic of a live cluster, or an exported file. It never writes to the log.

with open_log_source(configuration) as source:  # or a path
    for entry in HistoryProjection().read(source.log, store=source.store): ...
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from ..configuration import Configuration
from ..log import EventLog
from ..snapshots.store import SnapshotStore
from .archive.file_log import FileLog
from .log_position import LogPosition, TimeMarks
from .state_index.index import StateIndex
from .unreadable_entries import UnreadableEntries, UnreadableTrackingLog

_TIMEOUT_S = 10.0


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
        passed_over: UnreadableEntries | None = None,
    ) -> None:
        self.log = log
        self.cluster = cluster
        """The id of the cluster whose history it is."""
        self.store = store
        """The cluster's snapshots; None for files."""
        self.file = file
        """None for a live cluster."""
        self.whole = whole
        """Whether the log's beginning is there, and nothing is left out. Only then it can be folded."""
        self.passed_over = passed_over or UnreadableEntries()
        """What is no event to this release, as far as the log was read."""
        self.when_closed: Callable[[LogSource], None] | None = None
        """Is called when all has been read that was asked for."""
        self.index = StateIndex(log, cluster)
        """States at marks of the log, on this machine; opened when it is first asked."""
        self.marks: TimeMarks | None = self.index if whole else None

    def at(self, position: LogPosition) -> int:
        """The offset up to which (inclusive) a state is wanted. Raises OutsideLog, LogUnavailable, ArchiveError."""
        return position.at(self.log, self.marks)

    def start(self, position: LogPosition) -> int:
        """The first offset of the stretch that begins at the position. Raises as `at`."""
        return position.start(self.log, self.marks)

    def close(self) -> None:
        """Gives connections and files back."""
        self.index.close()
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


def open_log_source(of: Configuration | Path, *, selections: bool = False) -> LogSource:
    """The history of a live cluster, or of an exported file; `selections`: also of a file where events are left out.

    Raises ArchiveError for a file that is none, or whose beginning is damaged; LogUnavailable where Kafka can't be
    reached may come here or later.
    """
    if isinstance(of, Path):
        log = FileLog.open(of, selections=selections)
        return LogSource(
            log,
            log.description.cluster,
            file=of,
            whole=log.description.whole,
            passed_over=log.passed_over,
        )
    from ..log.factory import open_event_log

    noted = UnreadableEntries()
    live = UnreadableTrackingLog(open_event_log(of, timeout=_TIMEOUT_S), noted)
    return LogSource(live, of.cluster_id, store=SnapshotStore.from_configuration(of), passed_over=noted)
