"""Measures the tasks of jobs in windows of time: performs MeasureTasks.

Tasks count; so the counts at the begin and at the end of a window are enough, and nothing is read in between. One
thread does it for all JobMasters of a process. A subtask that gives no counts is asked again for some seconds; then its
vertex is missing in the result, and the decision says so. The next leader's meter begins the window again.

Tasks count the records of a batch when they have processed it, which may take longer than a window. So records and busy
time are those from the last count before the window to the last one in it, and a window lasts until these are half of a
window apart.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from ....infra import threads
from ....infra.config.option_types import SECOND
from ....infra.logging_setup import logger
from ....schemas import job_master
from ....schemas.types import VertexMeasurement
from ...core.role import Emit, Instruction, OutgoingEvent
from ..instructions import MeasureTasks
from ..topology import VertexKey

_log = logger(__name__)
_PAUSE_S: Final = 1.0
_TRIES: Final = 5
"""The number of times that counts are read at the end of a window."""
_LEAST_PART: Final = 0.5
"""The part of the window that an attempt must have been measured, and that its counts must be apart."""
_MOST_WINDOWS: Final = 10
_LONGEST_S: Final = 600.0
"""A window whose counts do not come ends after ten times its length, or after this time if that is longer."""


class TaskCounts(NamedTuple):
    """What one attempt has counted so far; times in seconds."""

    records_in: float = 0.0
    records_out: float = 0.0
    busy_s: float = 0.0
    idle_s: float = 0.0
    back_pressured_s: float = 0.0
    pending_records: float | None = None
    """The lag of a Kafka source; one of the subtasks of a TaskExecutor has that of all of them."""
    position: float | None = None
    """The sum of the positions of a Kafka source."""
    partitions: float | None = None
    """The partitions that a Kafka source reads, in one of the subtasks of a TaskExecutor."""
    counted_s: float | None = None
    """Until when the records are counted, in the time since the attempt began to process; None: until now."""
    counted_busy_s: float | None = None
    """The time of work until then."""

    @property
    def measured_s(self) -> float:
        """The time since the attempt began to process."""
        return self.busy_s + self.idle_s + self.back_pressured_s

    @property
    def until_count(self) -> tuple[float, float]:
        """The time until the last count, and the time of work in it."""
        if self.counted_s is None or self.counted_busy_s is None:
            return self.measured_s, self.busy_s
        return self.counted_s, self.counted_busy_s


Counts = Mapping[VertexKey, TaskCounts]


class TaskCountsReader(Protocol):
    """Reads the counts of the running tasks of a job."""

    def read(self, job_id: str) -> Counts: ...

    def close(self) -> None: ...


@dataclass(slots=True)
class _Window:
    instruction: MeasureTasks
    due_s: float
    """When counts are read next."""
    first: Counts | None = None
    began_s: float = 0.0
    tries: int = 0
    is_over: bool = False


class TaskMeter:
    """Follows the instructions on the host's thread."""

    def __init__(self, say: Emit, reader: TaskCountsReader) -> None:
        self._say = say
        self._reader = reader
        self._windows: dict[str, _Window] = {}
        """By address."""
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread: threads.Thread | None = None

    def follow(self, role_address: str, instructions: Sequence[Instruction]) -> None:
        """Takes all instructions of an address: a measurement that is not among them ends without a report."""
        wanted = next((each for each in instructions if isinstance(each, MeasureTasks)), None)
        if wanted is None and role_address not in self._windows:
            return
        with self._changed:
            if wanted is None:
                del self._windows[role_address]
                return
            known = self._windows.get(role_address)
            if known is not None and known.instruction.key == wanted.key:
                return
            pause_s = max(0.0, wanted.begins / SECOND - time.time())
            self._windows[role_address] = _Window(wanted, time.monotonic() + pause_s)
            self._changed.notify()
            if self._thread is None and not self._is_closed:
                self._thread = threads.Thread(target=self._run, name="measure tasks")
                self._thread.start()

    def close(self) -> None:
        """Ends the thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()
        self._reader.close()

    def _run(self) -> None:
        while (due := self._wait()) is not None:
            role_address, window = due
            try:
                self._advance(role_address, window)
            except Exception as error:
                # No other thread measures: a job would wait for ever.
                _log.warning("cannot measure tasks; retries", job=role_address, error=str(error))
                window.due_s = time.monotonic() + _PAUSE_S

    def _wait(self) -> tuple[str, _Window] | None:
        """Returns the next window that is due; None after `close`."""
        with self._changed:
            while not self._is_closed:
                waiting = [item for item in self._windows.items() if not item[1].is_over]
                first = min(waiting, key=lambda item: item[1].due_s, default=None)
                if first is None:
                    self._changed.wait()
                    continue
                pause_s = first[1].due_s - time.monotonic()
                if pause_s <= 0:
                    return first
                self._changed.wait(pause_s)
        return None

    def _advance(self, role_address: str, window: _Window) -> None:
        wanted = window.instruction
        counts, now_s = self._reader.read(wanted.job_id), time.monotonic()
        is_whole = all(
            (vertex_id, index) in counts
            for vertex_id, parallelism in wanted.vertices.items()
            for index in range(parallelism)
        )
        if window.first is None:
            if is_whole:
                window.first, window.began_s = counts, now_s
            window.due_s = now_s + (wanted.window / SECOND if is_whole else _PAUSE_S)
            return
        duration_s, window_s = now_s - window.began_s, wanted.window / SECOND
        window.tries += not is_whole
        if not is_whole and window.tries < _TRIES:
            window.due_s = now_s + _PAUSE_S
            return
        is_longest = duration_s >= max(_MOST_WINDOWS * window_s, _LONGEST_S)
        if is_whole and not is_longest and not have_counted(wanted.vertices, window.first, counts, window_s):
            window.due_s = now_s + _PAUSE_S
            return
        body = job_master.TasksMeasured(
            job_id=wanted.job_id,
            duration=int(duration_s * SECOND),
            vertices=measure_vertices(wanted.vertices, window.first, counts, duration_s),
        )
        window.is_over = True
        self._say(role_address, OutgoingEvent(role_address, body, wanted.cause))


def measure_vertices(
    vertices: Mapping[str, int], first: Counts, last: Counts, duration_s: float
) -> tuple[VertexMeasurement, ...]:
    """Returns what the vertices did between two readings; those of which a subtask was not measured are missing."""
    found = (
        _measure(vertex_id, parallelism, first, last, duration_s)
        for vertex_id, parallelism in sorted(vertices.items())
    )
    return tuple(each for each in found if each is not None)


def have_counted(vertices: Mapping[str, int], first: Counts, last: Counts, window_s: float) -> bool:
    """Whether all subtasks have counted for long enough. Another attempt than at the start never will."""
    for vertex_id, parallelism in vertices.items():
        for index in range(parallelism):
            start, end = first[vertex_id, index], last[vertex_id, index]
            counted_s = end.until_count[0] - start.until_count[0]
            if counted_s < window_s * _LEAST_PART and end.measured_s >= start.measured_s:
                return False
    return True


def _measure(
    vertex_id: str, parallelism: int, first: Counts, last: Counts, duration_s: float
) -> VertexMeasurement | None:
    records_in = records_out = busy = back_pressured = consumed = 0.0
    before, after = [], []
    for index in range(parallelism):
        start, end = first.get((vertex_id, index)), last.get((vertex_id, index))
        if start is None or end is None:
            return None
        before.append(start)
        after.append(end)
        passed_s = end.measured_s - start.measured_s
        if passed_s < duration_s * _LEAST_PART or end.records_in < start.records_in:
            # Another attempt, or one whose reports are late.
            return None
        if (start.pending_records is None) != (end.pending_records is None):
            # The lag was not measured yet.
            return None
        (began_s, busy_before_s), (ended_s, busy_after_s) = start.until_count, end.until_count
        counted_s, worked_s = ended_s - began_s, busy_after_s - busy_before_s
        if counted_s <= 0:
            # Nothing was counted: what was done before the window is no part of it.
            counted_s, worked_s = passed_s, end.busy_s - start.busy_s
        records_in += (end.records_in - start.records_in) / counted_s
        records_out += (end.records_out - start.records_out) / counted_s
        busy = max(busy, worked_s / counted_s)
        back_pressured += (end.back_pressured_s - start.back_pressured_s) / passed_s / parallelism
        consumed += ((end.position or 0.0) - (start.position or 0.0)) / counted_s
    pending, pending_before = _pending(after), _pending(before)
    partitions = int(sum(each.partitions or 0.0 for each in after))
    has_lag = pending is not None and pending_before is not None
    arrived = (_end_offsets(after) - _end_offsets(before)) / duration_s
    return VertexMeasurement(
        vertex_id=vertex_id,
        parallelism=parallelism,
        records_in=round(records_in, 3),
        records_out=round(records_out, 3),
        busy=round(busy, 4),
        back_pressured=round(back_pressured, 4),
        pending_records=pending if has_lag else None,
        pending_records_before=pending_before if has_lag else None,
        records_consumed=round(max(0.0, consumed), 3) if has_lag else None,
        records_arrived=round(max(0.0, arrived), 3) if has_lag else None,
        partitions=partitions or None,
    )


def _pending(counts: Sequence[TaskCounts]) -> int | None:
    known = [each.pending_records for each in counts if each.pending_records is not None]
    return int(sum(known)) if known else None


def _end_offsets(counts: Sequence[TaskCounts]) -> float:
    """Returns the sum of the end offsets of a Kafka source's partitions. It does not depend on when tasks count."""
    return sum((each.position or 0.0) + (each.pending_records or 0.0) for each in counts)
