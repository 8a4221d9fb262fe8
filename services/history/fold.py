"""The log folded into the states of all roles, as every replica folds it, and what that says about each event.

The fold reads the log from its first event on, or behind a snapshot where that is gone, or where what it would have
found before was kept beside the snapshot (keeping.py). It adds to a Replica what only a reader of the whole log knows:
which job an event belongs to, when a job was submitted and ended, and which events were ignored, and why.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...schemas.client import JobFinished
from ...schemas.dispatcher import SubmitJob
from ...schemas.event import Record
from ...schemas.task_executor import SubmitTask
from ..dispatcher import Dispatcher
from ..job_master import JobMaster
from ..job_master.state import JobMasterState
from ..log import EventLog
from ..log.event_log import LogTruncated, read_to_end
from ..replica import Replica, spare_the_collector
from ..resource_manager import ResourceManager
from ..roles import JOB_MASTER, IllegalEvent, address, instance_of, kind_of
from ..snapshots.restoring import restore
from ..snapshots.store import SnapshotStore
from ..task_executor import TaskExecutor
from .checkpoints import Checkpoints
from .history_store import HistoryStore, newest
from .past import Past
from .restarts import Failures
from .story import Entry


class Fold:
    """The states of all roles, and the story so far. Not safe for use by several threads."""

    def __init__(self) -> None:
        self._illegal: str | None = None
        self._job_of: dict[str, str] = {}
        self._job_at: dict[int, str] = {}
        self._tasks: dict[str, str] = {}
        self.submitted: dict[str, int] = {}
        """Job id -> when it was submitted, in microseconds since the epoch; rejected jobs are among them."""
        self.ended: dict[str, int] = {}
        """Job id -> when its end was told."""
        self.failures = Failures()
        """Why jobs restart."""
        self.checkpoints = Checkpoints()
        self.replica = self._new_replica()
        self.whole = True
        """Whether all is known that the log has told; not where its head was gone."""

    def _new_replica(self) -> Replica:
        return Replica(
            [Dispatcher(), ResourceManager(), JobMaster(), TaskExecutor()], on_illegal=self._on_illegal
        )

    def tell(self, record: Record) -> Entry:
        """Folds the next event and says what became of it."""
        fenced = not self.replica.leadership.admits(record)
        self._illegal = None
        changed = self.replica.apply(record)
        job = self._find_job(record)
        if job is not None:
            self._job_at[record.offset] = job
        ignored = self._illegal
        if fenced:
            leader = record.header.sender
            ignored = f"{leader} speaks under epoch {record.header.sender_epoch}, which is not its leader's"
        elif ignored is None:
            self._note_times(record)
        task = self._find_task(record)
        if record.header.recipient in changed:
            self.checkpoints.note(record, self.task_of)
        self.failures.note(record, task, changed, self.replica.states)
        return Entry(record, job, task, ignored)

    def past(self) -> Past:
        """What of the past was found that states do not hold."""
        masters = [each for each in self.replica.states.values() if isinstance(each, JobMasterState)]
        current = {attempt for master in masters for attempt in master.executions}
        return Past(
            submitted=self.submitted,
            ended=self.ended,
            tasks={attempt: name for attempt, name in self._tasks.items() if attempt in current},
            failures=self.failures.all(),
            checkpoints=self.checkpoints.all(),
        )

    def begin(
        self, log: EventLog, store: SnapshotStore | None = None, histories: HistoryStore | None = None
    ) -> int:
        """The offset from which the log is to be folded: behind the newest fit snapshot beside which there is what was
        before, in `histories`; or its first event; or, where that is gone, what follows the newest fit snapshot, and
        then times and failures from before are not known.

        Raises LogUnavailable, and LogTruncated where no snapshot helps.
        """
        if store is not None and histories is not None:
            kept = newest(log, store, histories, self._new_replica)
            if kept is not None:
                self._go_on(*kept)
                return self.replica.offset + 1
        try:
            log.tail(0).close()
            return 0
        except LogTruncated:
            if store is None or restore(self.replica, log, store) is None:
                raise
            self.whole = False
            return self.replica.offset + 1

    def read(
        self,
        log: EventLog,
        end: int | None = None,
        store: SnapshotStore | None = None,
        histories: HistoryStore | None = None,
    ) -> Iterator[Entry]:
        """Folds the log to the end that it has now, or to `end` (exclusive). Begins, and raises, as `begin`."""
        spare_the_collector()
        for batch in read_to_end(log, self.begin(log, store, histories), end=end):
            yield from self._tell_all(batch)

    def _go_on(self, replica: Replica, past: Past) -> None:
        self.replica = replica
        self.submitted, self.ended, self._tasks = dict(past.submitted), dict(past.ended), dict(past.tasks)
        self.failures = Failures.known(past.failures)
        self.checkpoints = Checkpoints.known(past.checkpoints)

    def _tell_all(self, batch: Iterable[Record]) -> Iterator[Entry]:
        return (self.tell(record) for record in batch)

    def _on_illegal(self, error: IllegalEvent, _: tuple[Record, ...]) -> None:
        self._illegal = str(error)

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
        return self._tasks.get(getattr(body, "execution_attempt_id", ""))

    def _find_job(self, record: Record) -> str | None:
        """The job by name, by the JobMaster that says or hears it, by an id that a job made known, or by the cause."""
        header, body = record.header, record.body
        job: str | None = getattr(body, "job_id", None)
        for each in (header.sender, header.recipient):
            if job is None and kind_of(each) == JOB_MASTER:
                job = instance_of(each) or None
        ids = [getattr(body, name, None) for name in _IDS]
        known = [each for each in ids if isinstance(each, str)]
        if job is None:
            job = next((self._job_of[each] for each in known if each in self._job_of), None)
        if job is None and header.cause is not None:
            job = self._job_at.get(header.cause)
        if job is not None:
            self._job_of.update(dict.fromkeys(known, job))
        return job


_IDS = ("allocation_id", "old_allocation_id", "execution_attempt_id")
