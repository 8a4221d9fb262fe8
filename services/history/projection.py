"""The log folded into the states of all roles, as every replica folds it, and what that says about each event.

The fold reads the log from its first event on, or behind a snapshot where that is gone, or where what it would have
found before was kept beside the snapshot (keeping.py). It adds to a Replica what only a reader of the whole log knows:
which job an event belongs to, when a job was submitted and ended, and which events were ignored, and why.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence

from ...schemas.body import Body
from ...schemas.client import JobFinished
from ...schemas.dispatcher import SubmitJob
from ...schemas.event import Record
from ...schemas.everyone import LeaderElected
from ...schemas.task_executor import SubmitTask
from ..core.leadership import is_epoch_out_of_reach
from ..core.replica import Replica, tune_gc_for_replay
from ..core.role import JOB_MASTER, IllegalEvent, address
from ..dispatcher import Dispatcher
from ..job_master import JobMaster
from ..job_master.state import JobMasterState
from ..log import EventLog
from ..log.event_log import LogTruncated, read_to_end
from ..resource_manager import ResourceManager
from ..snapshots.recovery import restore_newest
from ..snapshots.store import SnapshotStore
from ..task_executor import TaskExecutor
from .checkpoint_history import NOTED_EVENTS, CheckpointHistory
from .entity_history import FormattedEvent
from .event_job_index import EventJobIndex
from .job_history import JobHistory
from .job_history_store import JobHistoryStore, newest
from .restart_causes import RestartCauses


class HistoryProjection:
    """The states of all roles, and the story so far. Not safe for use by several threads."""

    def __init__(self, *, past: bool = True) -> None:
        """`past`: whether times, failures and checkpoints matter, which `past` has."""
        self._notes_past = past
        self._illegal: list[str] = []
        """What is said against the event that is being folded."""
        self._jobs = EventJobIndex()
        self._tasks: dict[str, str] = {}
        self.submitted: dict[str, int] = {}
        """Job id -> when it was submitted, in microseconds since the epoch; rejected jobs are among them."""
        self.ended: dict[str, int] = {}
        """Job id -> when its end was told."""
        self.failures = RestartCauses()
        """Why jobs restart."""
        self.checkpoints = CheckpointHistory()
        self.replica = self._new_replica()
        self.changed: Sequence[str] = ()
        """The addresses whose state the last event has changed."""
        self.whole = True
        """Whether all is known that the log has told; not where its head was gone."""

    def _new_replica(self) -> Replica:
        return Replica(
            [Dispatcher(), ResourceManager(), JobMaster(), TaskExecutor()], on_illegal=self._on_illegal
        )

    def apply(self, record: Record) -> FormattedEvent:
        """Folds the next event and says what became of it."""
        header, kind, replica = record.header, type(record.body), self.replica
        # Nothing but an election changes who is heard, so all else can be asked about afterwards, and only if in doubt.
        fenced = kind is LeaderElected and not replica.leadership.accepts(record)
        self.changed = changed = replica.apply(record)
        job = self._jobs.on_event(record)
        ignored = None
        if self._illegal:
            ignored = self._illegal[-1]
            self._illegal.clear()
        if not changed and ignored is None and kind is not LeaderElected:
            fenced = not replica.leadership.accepts(record)
        if fenced and is_epoch_out_of_reach(replica.leadership, record):
            last = replica.leadership.epoch(header.sender)
            ignored = (
                f"the epoch {header.sender_epoch} is too far above {last}, the last one of {header.sender}"
            )
        elif fenced:
            ignored = f"{header.sender} speaks under epoch {header.sender_epoch}, which is not its leader's"
        elif ignored is None and kind in _TIMED_EVENTS and self._notes_past:
            self._note_times(record)
        task = self._find_task(record) if _names_attempt(kind) else None
        if changed and self._notes_past:
            if kind in NOTED_EVENTS and header.recipient in changed:
                self.checkpoints.on_event(record, self.task_of)
            self.failures.on_event(record, task, changed, replica.states)
        return FormattedEvent(record, job, task, ignored)

    def past(self) -> JobHistory:
        """What of the past was found that states do not hold."""
        masters = [each for each in self.replica.states.values() if isinstance(each, JobMasterState)]
        current = {attempt for master in masters for attempt in master.executions}
        return JobHistory(
            submitted=self.submitted,
            ended=self.ended,
            tasks={attempt: name for attempt, name in self._tasks.items() if attempt in current},
            failures=self.failures.all(),
            checkpoints=self.checkpoints.all(),
        )

    def copy(self) -> HistoryProjection:
        """Another one that goes on from here, and shares nothing with this one that changes. It knows the states and
        what `past` has, and not which job an event belonged to."""
        fold = HistoryProjection()
        replica = fold._new_replica()
        replica.restore(self.replica.states, self.replica.leadership, self.replica.offset)
        fold._resume(replica, self.past())
        fold.whole = self.whole
        return fold

    def resume_from(self, replica: Replica) -> None:
        """Goes on from where a replica is, of the same roles; nothing was folded here yet."""
        self.replica.resume(replica.states, replica.active_addresses, replica.leadership, replica.offset)

    def begin(
        self,
        log: EventLog,
        store: SnapshotStore | None = None,
        histories: JobHistoryStore | None = None,
        at_most: int | None = None,
    ) -> int:
        """The offset from which the log is to be folded: behind the newest fit snapshot beside which there is what was
        before, in `histories`; or its first event; or, where that is gone, what follows the newest fit snapshot, and
        then times and failures from before are not known. `at_most`: the highest offset of a snapshot with its history.

        Raises LogUnavailable, and LogTruncated where no snapshot helps.
        """
        if store is not None and histories is not None:
            kept = newest(log, store, histories, self._new_replica, at_most)
            if kept is not None:
                self._resume(*kept)
                return self.replica.offset + 1
        try:
            log.tail(0).close()
            return 0
        except LogTruncated:
            if store is None or restore_newest(self.replica, log, store) is None:
                raise
            self.whole = False
            return self.replica.offset + 1

    def read(
        self,
        log: EventLog,
        end: int | None = None,
        store: SnapshotStore | None = None,
        histories: JobHistoryStore | None = None,
    ) -> Iterator[FormattedEvent]:
        """Folds the log to the end that it has now, or to `end` (exclusive). Begins, and raises, as `begin`."""
        tune_gc_for_replay()
        for batch in read_to_end(log, self.begin(log, store, histories), end=end):
            yield from self._apply_all(batch)

    def _resume(self, replica: Replica, past: JobHistory) -> None:
        self.replica = replica
        self.submitted, self.ended, self._tasks = dict(past.submitted), dict(past.ended), dict(past.tasks)
        self.failures = RestartCauses.known(past.failures)
        self.checkpoints = CheckpointHistory.known(past.checkpoints)

    def _apply_all(self, batch: Iterable[Record]) -> Iterator[FormattedEvent]:
        return (self.apply(record) for record in batch)

    def _on_illegal(self, error: IllegalEvent, _: tuple[Record, ...]) -> None:
        self._illegal.append(str(error))

    def _note_times(self, record: Record) -> None:
        match record.body:
            case SubmitJob(job_id=job_id):
                self.submitted.setdefault(job_id, record.header.time)
            case JobFinished(job_id=job_id):
                self.ended.setdefault(job_id, record.header.time)
            case _:
                pass

    def task_of(self, execution_attempt_id: str) -> str:
        """The name of an Execution's task, or its id where none is known."""
        return self._tasks.get(execution_attempt_id, execution_attempt_id)

    def _find_task(self, record: Record) -> str | None:
        """The name of the task that the event is about, as people know it: vertex (subtask/parallelism)."""
        body = record.body
        if isinstance(body, SubmitTask):
            master = self.replica.states.get(address(JOB_MASTER, body.job_id))
            graph = master.graph if isinstance(master, JobMasterState) else None
            for vertex in graph.vertices if graph else ():
                if vertex.vertex_id == body.vertex_id:
                    name = f"{vertex.name} ({body.subtask_index + 1}/{vertex.parallelism})"
                    self._tasks[body.execution_attempt_id] = name
        return self._tasks.get(body.execution_attempt_id)  # type: ignore[attr-defined]


_TIMED_EVENTS = frozenset({SubmitJob, JobFinished})


@functools.cache
def _names_attempt(kind: type[Body]) -> bool:
    return "execution_attempt_id" in kind.__struct_fields__
