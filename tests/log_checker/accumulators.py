"""The reported accumulators of a job equal the sum over its subtasks, of all their attempts."""

from __future__ import annotations

import math
from collections.abc import Iterator

from .attempts import Attempts
from .events import Event

ENDS = frozenset({"FINISHED", "CANCELED", "FAILED"})

Counts = dict[str, float]
Subtask = tuple[str, str, int]
"""(job, vertex, index)."""


class Accumulators:
    """The accumulators of every job. An attempt that ends reports for its subtask, including what earlier attempts
    committed.

    An attempt that acknowledges a savepoint which stops its job also reports, once the savepoint is complete: it may be
    lost before its end.
    """

    def __init__(self, attempts: Attempts) -> None:
        self._all = attempts
        self._attempts: dict[str, tuple[Subtask, int]] = {}
        self._reported: dict[Subtask, tuple[int, Counts]] = {}
        self._where: dict[str, str] = {}
        """Attempt -> its TaskExecutor."""
        self._awaited: dict[tuple[str, int], set[str]] = {}
        self._acknowledged: dict[tuple[str, int], dict[str, Counts]] = {}
        """(job, checkpoint) -> attempt -> what it had counted."""
        self._reached: dict[str, Counts] = {}

    def see(self, event: Event) -> Iterator[str]:
        counts: Counts = event.body.get("accumulators", {})
        if event.name == "task_executor.SubmitTask":
            for item in event["subtasks"]:
                subtask = event["job_id"], event["vertex_id"], item["subtask_index"]
                self._attempts[item["execution_attempt_id"]] = subtask, item["attempt_number"]
                self._where[item["execution_attempt_id"]] = event.to
        elif event.name == "job_master.CheckpointTriggered" and event["options"].get("stops"):
            self._awaited[event["job_id"], event["checkpoint_id"]] = set(event["to_acknowledge"])
        elif event.name == "job_master.AcknowledgeCheckpoint":
            self._has_part(event)
        elif event.name == "job_master.CheckpointCompleted":
            key = event["job_id"], event["checkpoint"]["checkpoint_id"]
            for attempt_id, part in self._acknowledged.get(key, {}).items():
                self._counted(attempt_id, part)
        elif event.name == "job_master.UpdateTaskExecutionState" and counts:
            yield from self._ended(event, counts)
        elif event.name == "dispatcher.JobReachedTerminalState":
            self._reached[event["job_id"]] = counts
            if event["status"] == "FINISHED":
                yield from self._finished(event["job_id"], counts)
        elif event.name == "client.JobFinished" and counts != self._reached.get(event["job_id"], {}):
            known = self._reached.get(event["job_id"], {})
            yield f"a client is told that job {event['job_id']} has counted {counts}, but it is {known}"

    def end(self) -> Iterator[str]:
        return iter(())

    def _ended(self, event: Event, counts: Counts) -> Iterator[str]:
        attempt_id, state = event["execution_attempt_id"], event["execution_state"]
        if state not in ENDS:
            yield f"{event.sender} tells what {attempt_id} has counted, though it is {state}"
            return
        for name, value in counts.items():
            if not math.isfinite(value):
                yield f"{event.sender} tells that {attempt_id} has counted {value} of {name}"
        self._counted(attempt_id, counts)

    def _has_part(self, event: Event) -> None:
        key = event["job_id"], event["checkpoint_id"]
        for part in event["acknowledgements"]:
            attempt_id, counts = (
                part["execution_attempt_id"],
                part.get("subtask_state", {}).get("accumulators", {}),
            )
            if (
                attempt_id in self._awaited.get(key, ())
                and event.by == self._where.get(attempt_id)
                and counts
            ):
                self._acknowledged.setdefault(key, {}).setdefault(attempt_id, counts)

    def _counted(self, attempt_id: str, counts: Counts) -> None:
        known = self._attempts.get(attempt_id)
        if known is None:
            return
        subtask, number = known
        last, before = self._reported.get(subtask, (-1, {}))
        if number >= last:
            self._reported[subtask] = number, {**before, **counts}

    def _finished(self, job_id: str, counts: Counts) -> Iterator[str]:
        # A rescale has given the counts of subtasks that are gone to others.
        parallelism = self._all.parallelism(job_id)
        parts = [
            reported
            for (job, vertex, index), (_, reported) in self._reported.items()
            if job == job_id and index < parallelism.get(vertex, index + 1)
        ]
        names = {name for reported in parts for name in reported}
        if names != set(counts):
            yield f"job {job_id} has counted {sorted(counts)}, its tasks {sorted(names)}"
            return
        for name in sorted(names):
            expected = math.fsum(reported.get(name, 0.0) for reported in parts)
            if not math.isclose(counts[name], expected, rel_tol=1e-9, abs_tol=1e-9):
                yield f"job {job_id} has counted {counts[name]:g} of {name}, its tasks {expected:g}"
