"""What a job is said to have counted is what its subtasks have counted, each in all its attempts, and no more."""

from __future__ import annotations

import math
from collections.abc import Iterator

from .events import Event

ENDS = frozenset({"FINISHED", "CANCELED", "FAILED"})

Counts = dict[str, float]
Subtask = tuple[str, str, int]
"""(job, vertex, index)."""


class Accumulators:
    """Of every job. An attempt that ends speaks for its subtask: what the attempts before it committed is in it."""

    def __init__(self) -> None:
        self._attempts: dict[str, tuple[Subtask, int]] = {}
        self._said: dict[Subtask, tuple[int, Counts]] = {}
        self._reached: dict[str, Counts] = {}

    def see(self, event: Event) -> Iterator[str]:
        counts: Counts = event.body.get("accumulators", {})
        if event.name == "task_executor.SubmitTask":
            subtask = event["job_id"], event["vertex_id"], event["subtask_index"]
            self._attempts[event["execution_attempt_id"]] = subtask, event["attempt_number"]
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
        known = self._attempts.get(attempt_id)
        if known is None:
            return
        subtask, number = known
        last, before = self._said.get(subtask, (-1, {}))
        if number >= last:
            self._said[subtask] = number, {**before, **counts}

    def _finished(self, job_id: str, counts: Counts) -> Iterator[str]:
        parts = [said for (job, _, _), (_, said) in self._said.items() if job == job_id]
        names = {name for said in parts for name in said}
        if names != set(counts):
            yield f"job {job_id} has counted {sorted(counts)}, its tasks {sorted(names)}"
            return
        for name in sorted(names):
            expected = math.fsum(said.get(name, 0.0) for said in parts)
            if not math.isclose(counts[name], expected, rel_tol=1e-9, abs_tol=1e-9):
                yield f"job {job_id} has counted {counts[name]:g} of {name}, its tasks {expected:g}"
