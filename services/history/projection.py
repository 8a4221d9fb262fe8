"""Folds the log into the states of all roles, as every replica does, and describes each event.

The fold begins at the first event of the log. It begins after a snapshot if the head of the log is gone, or if the
JobHistory of that offset is stored beside the snapshot (job_history_store.py). It adds to a Replica what only a reader
of the whole log knows: the job of an event, when a job was submitted and ended, and why events were ignored.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from ...schemas.body import Body
from ...schemas.client import JobFinished, JobRejected
from ...schemas.dispatcher import JobsForgotten, SubmitJob
from ...schemas.event import Record
from ...schemas.everyone import LeaderElected
from ...schemas.task_executor import SubmitTask
from ...schemas.types import JobGraph, JobVertex
from ..core.replica import Replica, tune_gc_for_replay
from ..core.role import DISPATCHER, JOB_MASTER, IllegalEvent, address, kind_of
from ..dispatcher.state import DispatcherState
from ..job_master.state import StartedJob
from ..log import EventLog
from ..log.event_log import LogTruncated, read_to_end
from ..roles import roles_at
from ..snapshots.recovery import restore_newest
from ..snapshots.store import SnapshotStore
from .checkpoint_history import NOTED_EVENTS, CheckpointHistory, StoredCheckpoints
from .event_formatting import FormattedEvent, format_subtasks
from .event_job_index import EventJobIndex
from .execution_history import ExecutionHistory
from .forgotten_jobs import ForgottenJob, ForgottenJobs, describe_jobs
from .job_history import JobHistory, RestartCauses
from .job_history_store import JobHistoryStore, newest
from .lazy_states import LazyStates
from .snapshot_requests import SNAPSHOT_ANSWERS, DisposalView, SnapshotRequestHistory, SnapshotRequestView

PartKey = tuple[str, str]
"""A field of JobHistory, and what the part is about: a job, a checkpoint or a client."""
T = TypeVar("T")


class HistoryProjection:
    """The states of all roles, and the history so far. Not thread-safe."""

    def __init__(self, *, past: bool = True) -> None:
        """`past`: whether to collect what `past()` returns: times, failures and checkpoints."""
        self._notes_past = past
        self._illegal: list[str] = []
        """The errors of the event that is being folded."""
        self._named = 0
        """The number of names that `name_tasks` took from the states."""
        self._jobs = EventJobIndex()
        self.task_names: dict[str, str] = {}
        """Execution attempt id -> the name of its task: without `past` of all, for stories; otherwise of those in the
        states, and of at least 10,000 before them."""
        self.submitted: dict[str, int] = {}
        """Job id -> the time of its submission, in microseconds since the epoch, until it is rejected or forgotten."""
        self.ended: dict[str, int] = {}
        """Job id -> the time of its end, until the cluster forgets the job."""
        self.failures = RestartCauses()
        """The reasons why jobs restart."""
        self.checkpoints = CheckpointHistory()
        self.executions = ExecutionHistory()
        """The graphs of jobs, and the times of their attempts."""
        self.snapshot_requests = SnapshotRequestHistory()
        """The requests for checkpoints and savepoints, and to delete savepoints."""
        self.forgotten = ForgottenJobs()
        """The jobs that no state has any more."""
        self.replica = self._new_replica()
        self.changed: Sequence[str] = ()
        """The addresses whose state the last event has changed."""
        self.whole = True
        """Whether the fold has all events of the log; false if the head of the log was gone."""

    def _new_replica(self) -> Replica:
        illegal = self._illegal

        def on_illegal(error: IllegalEvent, _: tuple[Record, ...]) -> None:
            # Not a method: a cycle would keep the states until a scan of the garbage collector.
            illegal.append(error.reason)

        return Replica(roles_at, on_illegal=on_illegal)

    def apply(self, record: Record) -> FormattedEvent:
        """Folds the next event, and describes it."""
        header, kind, replica = record.header, type(record.body), self.replica
        # Only an election changes who is accepted. For all other events the check comes later, and only in doubt.
        known = replica.leadership
        fenced = kind is LeaderElected and not known.accepts(record)
        leaving = self._describe_leaving(record) if kind is JobsForgotten and self._notes_past else {}
        self.changed = changed = replica.apply(record)
        job = self._jobs.on_event(record)
        ignored = None
        if self._illegal:
            ignored = self._illegal[-1]
            self._illegal.clear()
        if not changed and ignored is None and kind is not LeaderElected:
            fenced = not replica.leadership.accepts(record)
        if fenced:
            ignored = known.find_fault(record)
            if ignored is None:
                ignored = (
                    f"{header.sender} speaks under epoch {header.sender_epoch}, which is not its leader's"
                )
        elif ignored is None and kind in _TIMED_EVENTS and self._notes_past:
            self._note_times(record)
        elif ignored is None and kind in SNAPSHOT_ANSWERS and self._notes_past:
            self.snapshot_requests.on_event(record)
        elif ignored is None and leaving:
            self._forget(leaving)
        task = self._find_task(record) if _names_attempt(kind) else None
        if changed and self._notes_past:
            if kind in NOTED_EVENTS and header.recipient in changed:
                self.checkpoints.on_event(record, self.task_of)
            self.failures.on_event(record, task, changed, replica.states)
            self.executions.on_event(record, changed, replica.states)
        return FormattedEvent(record, job, task, ignored)

    def past(self) -> JobHistory:
        """Returns what the states do not have."""
        return JobHistory(
            submitted=self.submitted,
            ended=self.ended,
            failures=self.failures.all(),
            checkpoints=self.checkpoints.all(),
            executions=self.executions.all(),
            snapshot_requests=self.snapshot_requests.all(),
            disposals=self.snapshot_requests.disposals(),
            forgotten=dict(self.forgotten.all()),
        )

    def copy(self) -> HistoryProjection:
        """Returns an independent projection that continues from here. It has the states and what `past` returns, but
        not the jobs of earlier events."""
        fold, known = HistoryProjection(), self.replica
        states = known.states.copy() if isinstance(known.states, LazyStates) else dict(known.states)
        fold.replica.resume(states, known.active_addresses, known.leadership, known.offset)
        fold.submitted, fold.ended = self.submitted.copy(), self.ended.copy()
        fold.name_tasks()
        fold.failures = RestartCauses.from_failures(self.failures.all())
        fold.checkpoints, fold.executions = self.checkpoints.copy(), self.executions.copy()
        fold.snapshot_requests = SnapshotRequestHistory(
            self.snapshot_requests.all(), self.snapshot_requests.disposals()
        )
        fold.forgotten = ForgottenJobs(self.forgotten.all())
        fold.whole = self.whole
        return fold

    def stored(self) -> Iterator[tuple[PartKey, Any]]:
        """Yields what `past` returns, in parts. A part that was not decoded comes as bytes. A part that has not changed
        is the same object as before."""
        for field, parts in (
            ("submitted", self.submitted.items()),
            ("ended", self.ended.items()),
            ("failures", self.failures.all().items()),
            ("checkpoints", self.checkpoints.stored().items()),
            ("checkpoint", self.checkpoints.views()),
            ("executions", self.executions.stored()),
            ("snapshot_requests", self.snapshot_requests.all().items()),
            ("disposals", self.snapshot_requests.disposals().items()),
            ("forgotten", self.forgotten.all().items()),
        ):
            for key, part in parts:
                yield (field, key), part

    def resume_stored(self, replica: Replica, stored: Mapping[PartKey, bytes]) -> None:
        """Continues from the states of a replica, with the parts that `stored` returned after the same event, as
        MessagePack. Nothing must be folded here yet. Raises msgspec.MsgspecError."""
        parts: dict[str, dict[str, bytes]] = {}
        for (field, key), data in stored.items():
            parts.setdefault(field, {})[key] = data

        def decoded(field: str, kind: type[T]) -> dict[str, T]:
            decoder = msgspec.msgpack.Decoder(kind)
            return {key: decoder.decode(data) for key, data in parts.get(field, {}).items()}

        self.resume_from(replica)
        self.submitted, self.ended = decoded("submitted", int), decoded("ended", int)
        self.name_tasks()
        self.failures = RestartCauses.from_failures(decoded("failures", str))
        self.checkpoints = CheckpointHistory.from_stored(
            decoded("checkpoints", StoredCheckpoints), parts.get("checkpoint", {})
        )
        self.executions = ExecutionHistory.from_bytes(parts.get("executions", {}), self._live_jobs())
        self.snapshot_requests = SnapshotRequestHistory(
            decoded("snapshot_requests", SnapshotRequestView), decoded("disposals", DisposalView)
        )
        self.forgotten = ForgottenJobs(decoded("forgotten", ForgottenJob))

    def resume_from(self, replica: Replica) -> None:
        """Continues from the states of a replica of the same roles. Nothing must be folded here yet."""
        self.replica.resume(replica.states, replica.active_addresses, replica.leadership, replica.offset)

    def begin(
        self,
        log: EventLog,
        store: SnapshotStore | None = None,
        histories: JobHistoryStore | None = None,
        at_most: int | None = None,
    ) -> int:
        """Returns the offset from which to fold the log: after the newest snapshot that has its history in `histories`,
        or the first event. If that is gone, it is the offset after the newest snapshot, and earlier times and failures
        are unknown. `at_most`: the highest offset of a snapshot with its history.

        Raises LogUnavailable, and LogTruncated if there is no usable snapshot.
        """
        if store is not None and histories is not None:
            stored = newest(log, store, histories, self._new_replica, at_most)
            if stored is not None:
                self._resume(*stored)
                return self.replica.offset + 1
        try:
            log.tail(0).close()
            return 0
        except LogTruncated:
            if store is None or restore_newest(self.replica, log, store) is None:
                raise
            self.whole = False
            self.name_tasks()
            return self.replica.offset + 1

    def read(
        self,
        log: EventLog,
        end: int | None = None,
        store: SnapshotStore | None = None,
        histories: JobHistoryStore | None = None,
    ) -> Iterator[FormattedEvent]:
        """Folds the log up to its current end, or up to `end` (exclusive). Starts, and raises, as `begin`."""
        tune_gc_for_replay()
        for batch in read_to_end(log, self.begin(log, store, histories), end=end):
            yield from self._apply_all(batch)

    def _resume(self, replica: Replica, past: JobHistory) -> None:
        self.replica = replica
        self.submitted, self.ended = dict(past.submitted), dict(past.ended)
        self.name_tasks()
        self.failures = RestartCauses.from_failures(past.failures)
        self.checkpoints = CheckpointHistory.from_views(past.checkpoints)
        self.executions = ExecutionHistory.from_stored(past.executions, self._live_jobs())
        self.snapshot_requests = SnapshotRequestHistory(past.snapshot_requests, past.disposals)
        self.forgotten = ForgottenJobs(past.forgotten)

    def _apply_all(self, batch: Iterable[Record]) -> Iterator[FormattedEvent]:
        return (self.apply(record) for record in batch)

    def _note_times(self, record: Record) -> None:
        match record.body:
            case SubmitJob(job_id=job_id):
                self.submitted.setdefault(job_id, record.header.time)
            case JobFinished(job_id=job_id):
                self.ended.setdefault(job_id, record.header.time)
            case JobRejected(job_id=job_id):
                dispatcher = self.replica.states.get(DISPATCHER)
                # A job that runs may be submitted again in vain.
                if not isinstance(dispatcher, DispatcherState) or job_id not in dispatcher.jobs:
                    self.submitted.pop(job_id, None)
            case _:
                pass

    def _describe_leaving(self, record: Record) -> dict[str, ForgottenJob]:
        """Returns the jobs that the event removes from the states, if it is not ignored."""
        job_ids = record.body.job_ids  # type: ignore[attr-defined]
        replica = self.replica
        return describe_jobs(job_ids, replica.states, replica.offset, self.submitted, self.ended)

    def _forget(self, jobs: Mapping[str, ForgottenJob]) -> None:
        """The moment before has all that was known of them."""
        self.forgotten.add(jobs)
        for job_id in jobs:
            self.submitted.pop(job_id, None)
            self.ended.pop(job_id, None)
        self.failures.forget(jobs)
        self.checkpoints.forget(jobs)

    def task_of(self, execution_attempt_id: str) -> str:
        """Returns the name of an Execution's task, or the id of the Execution if the name is unknown."""
        return self.task_names.get(execution_attempt_id, execution_attempt_id)

    def name_tasks(self) -> None:
        """Takes the names of tasks from the states of a snapshot."""
        for state in self._live_jobs().values():
            for attempt, execution in state.executions.items():
                self.task_names[attempt] = find_task_name(state.graph, *execution.vertex) or attempt
        self._named = len(self.task_names)

    def _live_jobs(self) -> dict[str, StartedJob]:
        """Returns job id -> state of all jobs that were started and are not over."""
        states = self.replica.states
        masters = (states.get(each) for each in self.replica.active_addresses if kind_of(each) == JOB_MASTER)
        return {state.job_id: state for state in masters if isinstance(state, StartedJob)}

    def _find_task(self, record: Record) -> str | None:
        """Returns the name of the task that the event is about: vertex (subtask/parallelism)."""
        body = record.body
        if isinstance(body, SubmitTask):
            master = self.replica.states.get(address(JOB_MASTER, body.job_id))
            graph = master.graph if isinstance(master, StartedJob) else None
            vertex = find_vertex(graph, body.vertex_id)
            if vertex is None:
                return None
            if self._notes_past and len(self.task_names) > 2 * self._named + _MORE_TASK_NAMES:
                self.task_names.clear()
                self.name_tasks()
            numbers = [subtask.subtask_index + 1 for subtask in body.subtasks]
            for number, subtask in zip(numbers, body.subtasks, strict=True):
                name = f"{vertex.name} ({number}/{vertex.parallelism})"
                self.task_names[subtask.execution_attempt_id] = name
            return format_subtasks(vertex.name, numbers, vertex.parallelism)
        return self.task_names.get(body.execution_attempt_id)  # type: ignore[attr-defined]


def find_vertex(graph: JobGraph | None, vertex_id: str) -> JobVertex | None:
    """Returns a vertex of a graph; None if there is no such vertex, or no graph."""
    return (
        next((vertex for vertex in graph.vertices if vertex.vertex_id == vertex_id), None) if graph else None
    )


def find_task_name(graph: JobGraph | None, vertex_id: str, subtask_index: int) -> str | None:
    """Returns the name of a task, as people know it: vertex (subtask/parallelism)."""
    vertex = find_vertex(graph, vertex_id)
    return None if vertex is None else f"{vertex.name} ({subtask_index + 1}/{vertex.parallelism})"


_TIMED_EVENTS = frozenset({SubmitJob, JobFinished, JobRejected})
_MORE_TASK_NAMES = 10_000


@functools.cache
def _names_attempt(kind: type[Body]) -> bool:
    return kind is SubmitTask or "execution_attempt_id" in kind.__struct_fields__
