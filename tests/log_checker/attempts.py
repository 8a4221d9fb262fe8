"""At most one live attempt per subtask; attempt numbers rise by one; each attempt runs in a slot of its job.

An attempt is live from SubmitTask until its TaskExecutor reports its end, or the job loses its slot or TaskExecutor. An
attempt that was submitted after such a loss, before its JobMaster had read of it, is never live. If the tasks of a slot
share a process, the failure of one ends all of them. A JobMaster that gives a slot back because another is offered in
its place or a task in it is slow, or that restarts tasks on request, does not wait for the end of the tasks.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .events import Event
from .slots import Slots

ENDS = frozenset({"FINISHED", "CANCELED", "FAILED"})
AFTER = {
    "DEPLOYING": ENDS | {"INITIALIZING", "RUNNING"},
    "INITIALIZING": ENDS | {"RUNNING"},
    "RUNNING": ENDS,
}
"""What a TaskExecutor may report of an Execution after what, as Flink has it."""

NEVER = sys.maxsize
Subtask = tuple[str, str, int]
"""(job, vertex, index)."""


@dataclass(slots=True)
class Attempt:
    """One Execution. `reported` is the last state that its TaskExecutor reported; `live`: whether it counts for its
    JobMaster."""

    attempt_id: str
    subtask: Subtask
    number: int
    allocation_id: str
    resource_id: str
    offset: int
    generation: int = 0
    shares_process: bool = False
    is_cancelled: bool = False
    restarts: bool = False
    """Whether somebody has asked for its restart, or for that of a task in its process."""
    is_live: bool = True
    reported: str = "DEPLOYING"
    running_at: int = NEVER
    """Where it was reported RUNNING for the first time."""
    is_finished: bool = False
    """Whether it has FINISHED, and that counts."""
    over_at: int = NEVER
    """Where it ended, or was lost to its job."""

    def is_over(self, offset: int) -> None:
        """Returns whether it has ended, or does not count any more."""
        if self.is_live:
            self.is_live, self.over_at = False, offset

    def has_run(self, offset: int) -> bool:
        """Returns whether it was RUNNING for a reader at `offset`."""
        return self.running_at <= offset < self.over_at

    def had_finished(self, offset: int) -> bool:
        """Returns whether it had FINISHED for a reader at `offset`."""
        return self.is_finished and self.over_at <= offset


class Attempts:
    """Every Execution of every job so far."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._attempts: dict[str, Attempt] = {}
        self._last: dict[Subtask, Attempt] = {}
        self._at: dict[str, set[str]] = {}
        self._in: dict[str, set[str]] = {}
        self._of_job: dict[str, list[Attempt]] = {}
        self._vertices: dict[str, dict[str, dict[str, Any]]] = {}
        self._rescaled: set[str] = set()
        self._adaptive: set[str] = set()
        """Jobs with the adaptive scheduler."""
        self._moves: set[int] = set()
        """Where slots were offered, or slow tasks detected: tasks may move then."""

    def find(self, attempt_id: str) -> Attempt | None:
        """Returns a submitted Execution."""
        return self._attempts.get(attempt_id)

    def attempts_of_job(self, job_id: str) -> list[Attempt]:
        """Returns the Executions of a job, in the order of their submission."""
        return self._of_job.get(job_id, [])

    def parallelism(self, job_id: str) -> dict[str, int]:
        """Returns the number of subtasks per vertex; empty if the graph is unknown."""
        vertices = self._vertices.get(job_id, {})
        return {item: vertex["parallelism"] for item, vertex in vertices.items() if "parallelism" in vertex}

    def rescale(self, job_id: str, parallelism: Mapping[str, int]) -> None:
        """Changes the parallelism of vertices; a new one is a part of the vertex whose chain has its first operator."""
        if parallelism:
            self._rescaled.add(job_id)
        vertices = self._vertices[job_id]
        for vertex_id, count in parallelism.items():
            vertex = vertices.get(vertex_id) or next(
                each
                for each in vertices.values()
                if any(operator["operator_id"] == vertex_id for operator in each["operators"])
            )
            vertices[vertex_id] = {**vertex, "parallelism": count}

    def _on_graph(self, event: Event) -> None:
        """A job with the adaptive scheduler may have another graph before its first task is submitted."""
        job_id, graph = event["job_id"], event.body.get("job_graph")
        if job_id in self._adaptive and graph is not None and not self._of_job.get(job_id):
            self._vertices[job_id] = {vertex["vertex_id"]: vertex for vertex in graph["vertices"]}

    def see(self, event: Event) -> Iterator[str]:
        name = event.name
        if name == "job_master.StartJob":
            vertices = event["job_graph"]["vertices"]
            self._vertices[event["job_id"]] = {vertex["vertex_id"]: vertex for vertex in vertices}
            if event.body.get("bounds"):
                self._adaptive.add(event["job_id"])
        elif name == "task_executor.JobManagerRegistrationSuccess":
            self._on_graph(event)
        elif name == "task_executor.SubmitTask":
            yield from self._on_submit_task(event)
        elif name == "task_executor.CancelTask" and event["execution_attempt_id"] in self._attempts:
            cancelled = self._attempts[event["execution_attempt_id"]]
            cancelled.is_cancelled = True
            if cancelled.restarts:
                self._end_with_process(cancelled, event.offset)
        elif name == "job_master.RestartTasks":
            self._on_restart_tasks(event)
        elif name in ("job_master.OfferSlots", "job_master.SlowTaskDetected"):
            self._moves.add(event.offset)
        elif name == "task_executor.FreeSlot" and event.cause in self._moves:
            self._end_attempt(self._in.get(event["allocation_id"], set()), event.offset)
        elif name == "job_master.UpdateTaskExecutionState":
            yield from self._on_state_changed(event)
        elif name == "everyone.LeaderElected" and event.kind == "task_executor":
            # A process that starts anew starts its tasks anew.
            for attempt_id in self._at.get(event.by, ()):
                if self._attempts[attempt_id].reported not in ENDS:
                    self._attempts[attempt_id].reported = "DEPLOYING"
        elif name == "everyone.TaskExecutorLost":
            self._end_attempt(self._at.get(event["resource_id"], set()), event.offset)
        elif name == "job_master.FailSlot" and not self._slots.is_late(event):
            self._end_attempt(self._in.get(event["allocation_id"], set()), event.offset)
        elif name == "job_master.TasksContradicted":
            for attempt_id in event["execution_attempt_ids"]:
                named = self._attempts.get(attempt_id)
                if named is not None and named.is_live and named.resource_id == event["resource_id"]:
                    self._end_with_process(named, event.offset)
        elif name == "job_master.HeartbeatTimedOut":
            self._end_attempt(self._of_job_at(event.to, event["resource_id"]), event.offset)
        elif name == "job_master.DisconnectTaskManager" and not self._slots.is_late(event):
            at = self._of_job_at(event["job_id"], event["resource_id"])
            for attempt_id in sorted(item for item in at if self._attempts[item].is_live):
                yield (
                    f"{event.sender} says that it has no more slots, but "
                    f"{format_attempt(self._attempts[attempt_id])} runs"
                )
            self._end_attempt(at, event.offset)

    def end(self) -> Iterator[str]:
        if self._slots.terminated:
            return
        for attempt in self._attempts.values():
            if not attempt.is_live:
                continue
            if attempt.subtask[0] in self._slots.ended:
                yield f"{format_attempt(attempt)} has not ended, but its job has"
            elif attempt.reported != "RUNNING":
                yield f"{format_attempt(attempt)} does not run but is {attempt.reported}"

    def _on_restart_tasks(self, event: Event) -> None:
        wanted = event["vertex_id"], event["subtask_index"]
        for attempt in self._of_job.get(event["job_id"], []):
            _, vertex_id, index = attempt.subtask
            if attempt.is_live and wanted[0] in (None, vertex_id) and wanted[1] in (None, index):
                # Each CancelTask of them tells it: that of the named task is missing if it has finished meanwhile.
                for each in self._with_process(attempt):
                    each.restarts |= each.is_live

    def _on_submit_task(self, event: Event) -> Iterator[str]:
        for subtask in event["subtasks"]:
            yield from self._on_submitted(event, subtask)

    def _on_submitted(self, event: Event, subtask: dict[str, Any]) -> Iterator[str]:
        attempt = Attempt(
            attempt_id=subtask["execution_attempt_id"],
            subtask=(event["job_id"], event["vertex_id"], subtask["subtask_index"]),
            number=subtask["attempt_number"],
            allocation_id=subtask["allocation_id"],
            resource_id=event.to,
            offset=event.offset,
            generation=event.body.get("generation", 0),
            shares_process=subtask.get("slot_tasks", 1) > 1,
        )
        if attempt.attempt_id in self._attempts:
            yield f"{format_attempt(attempt)} is submitted again"
            return
        job_id = attempt.subtask[0]
        self._attempts[attempt.attempt_id] = attempt
        self._of_job.setdefault(job_id, []).append(attempt)
        before = self._last.get(attempt.subtask)
        if before is not None and before.is_live:
            yield f"{format_attempt(attempt)} is submitted while {format_attempt(before)} has not ended"
            before.is_over(event.offset)
        expected = 0 if before is None else before.number + 1
        is_free = job_id in self._rescaled and (before is None or before.generation < attempt.generation)
        if attempt.number < expected or (attempt.number > expected and not is_free):
            yield f"{format_attempt(attempt)} is submitted where attempt {expected} would be next"
        self._last[attempt.subtask] = attempt
        self._at.setdefault(attempt.resource_id, set()).add(attempt.attempt_id)
        self._in.setdefault(attempt.allocation_id, set()).add(attempt.attempt_id)
        if not event.has_read(self._slots.over(job_id, attempt.resource_id, attempt.allocation_id)):
            attempt.is_over(event.offset)
            return
        if job_id in self._slots.ended:
            yield f"{format_attempt(attempt)} is submitted though its job has ended"
        if self._slots.taken.get(attempt.allocation_id) != attempt.resource_id:
            where = f"allocation {attempt.allocation_id}, which its job has not taken there"
            yield f"{format_attempt(attempt)} is submitted into {where}"
        elif self._slots.job_of.get(attempt.allocation_id, job_id) != job_id:
            yield (
                f"{format_attempt(attempt)} is submitted into a slot of job "
                f"{self._slots.job_of[attempt.allocation_id]}"
            )
        yield from self._shares(attempt)

    def _shares(self, attempt: Attempt) -> Iterator[str]:
        """Checks slot sharing and co-location among the live attempts."""
        job_id, vertex_id, index = attempt.subtask
        vertex = self._vertices.get(job_id, {}).get(vertex_id)
        if vertex is None:
            return
        for attempt_id in self._in[attempt.allocation_id]:
            other = self._attempts[attempt_id]
            if other is attempt or not other.is_live or other.subtask[0] != job_id:
                continue
            group = self._vertices[job_id][other.subtask[1]]["slot_sharing_group"]
            if job_id in self._adaptive and other.subtask[2] != index:
                # The job has lost the other slot.
                continue
            if other.subtask[1] == vertex_id:
                yield f"{format_attempt(attempt)} shares its slot with {format_attempt(other)}, of the same vertex"
            elif not group or group != vertex["slot_sharing_group"]:
                yield (
                    f"{format_attempt(attempt)} shares its slot with {format_attempt(other)}, which is in "
                    "another group"
                )
        group = vertex["co_location_group"]
        if group is None:
            return
        for other_id, other_vertex in self._vertices[job_id].items():
            peer = self._last.get((job_id, other_id, index))
            if other_vertex["co_location_group"] != group or peer is None or not peer.is_live:
                continue
            if peer.allocation_id != attempt.allocation_id:
                yield (
                    f"{format_attempt(attempt)} is not in the slot of {format_attempt(peer)}, though they are "
                    "co-located"
                )

    def _on_state_changed(self, event: Event) -> Iterator[str]:
        attempt = self._attempts.get(event["execution_attempt_id"])
        to = event["execution_state"]
        if attempt is None:
            yield f"{event.sender} reports {to} of Execution {event['execution_attempt_id']}, which was never submitted"
            return
        if event.by != attempt.resource_id:
            yield f"{event.sender} reports {to} of {format_attempt(attempt)}"
            return
        if attempt.reported in ENDS:
            yield f"{format_attempt(attempt)} is reported {to} after it was {attempt.reported}"
        elif to not in AFTER[attempt.reported]:
            yield f"{format_attempt(attempt)} is reported {to} while it was {attempt.reported}"
        attempt.reported = to
        if to == "RUNNING":
            attempt.running_at = min(attempt.running_at, event.offset)
        elif to in ENDS:
            has_failed = to == "FAILED" or (to == "CANCELED" and not attempt.is_cancelled)
            attempt.is_finished = attempt.is_live and to == "FINISHED"
            if has_failed and attempt.is_live:
                self._end_with_process(attempt, event.offset)
            attempt.is_over(event.offset)

    def _end_with_process(self, attempt: Attempt, offset: int) -> None:
        for each in self._with_process(attempt):
            each.is_over(offset)

    def _with_process(self, attempt: Attempt) -> list[Attempt]:
        """Returns an Execution, and those that share its process."""
        others = self._in[attempt.allocation_id] if attempt.shares_process else ()
        found = (self._attempts[each] for each in others)
        # A slot has processes of several subtask indexes while the adaptive scheduler has tasks share it.
        peers = (each for each in found if each.shares_process and each.subtask[2] == attempt.subtask[2])
        return [attempt, *(each for each in peers if each is not attempt)]

    def _of_job_at(self, job_id: str, resource_id: str) -> set[str]:
        at = self._at.get(resource_id, set())
        return {item for item in at if self._attempts[item].subtask[0] == job_id}

    def _end_attempt(self, attempt_ids: set[str], offset: int) -> None:
        for attempt_id in attempt_ids:
            if attempt_id in self._attempts:
                self._attempts[attempt_id].is_over(offset)


def format_attempt(attempt: Attempt) -> str:
    """Formats an attempt for messages."""
    job_id, vertex_id, index = attempt.subtask
    return f"attempt {attempt.number} of {job_id}/{vertex_id[:8]}/{index} at {attempt.resource_id}"
