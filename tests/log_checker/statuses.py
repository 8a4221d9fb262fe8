"""The transitions of a job's status follow Flink's rules, and all events about its end agree. A job that stops with a
savepoint finishes, even if its tasks fail after the savepoint.

`attempts` checks execution states.
"""

from __future__ import annotations

from collections.abc import Iterator

from .events import Event
from .rescales import is_cut

AFTER = {
    None: {"INITIALIZING", "CREATED", "FAILING", "FAILED", "CANCELLING", "SUSPENDED"},
    "INITIALIZING": {"CREATED", "FAILING", "FAILED", "CANCELLING", "CANCELED", "SUSPENDED"},
    "CREATED": {"RUNNING", "RESTARTING", "FAILING", "FAILED", "CANCELLING", "SUSPENDED"},
    "RUNNING": {"FAILING", "CANCELLING", "RESTARTING", "FINISHED", "SUSPENDED"},
    "FAILING": {"FAILED", "CANCELLING", "RESTARTING", "SUSPENDED"},
    "CANCELLING": {"CANCELED", "FAILING", "SUSPENDED"},
    "RESTARTING": {"CREATED", "RUNNING", "FAILING", "CANCELLING", "SUSPENDED"},
    "SUSPENDED": {"CREATED", "CANCELLING", "CANCELED", "FINISHED"},
}
"""What may follow what; FINISHED, CANCELED and FAILED are followed by nothing, SUSPENDED only by going on, or by
FINISHED if nothing is left to do. FAILED may follow anything else if the JobMaster failed."""

ENDS = frozenset({"FINISHED", "CANCELED", "FAILED"})
TERMINAL = ENDS | {"SUSPENDED"}


class Statuses:
    """The status of every job as its clients receive it."""

    def __init__(self) -> None:
        self._announced: dict[str, str] = {}
        self._ended: dict[str, str] = {}
        self._notified: dict[str, str] = {}
        self._stops: set[tuple[str, int]] = set()
        """(job, checkpoint)."""
        self._stopped: set[str] = set()
        """Jobs whose savepoint was complete while they were to go on, and that nobody has told anything else since."""
        self._cancelled: set[str] = set()
        self._failed: set[str] = set()
        """Jobs whose JobMaster failed: it may leave out events that it owed."""

    def see(self, event: Event) -> Iterator[str]:
        name = event.name
        if name == "client.JobStatusChanged":
            yield from self._moved(event["job_id"], event.body.get("old_status"), event["status"])
        elif name == "dispatcher.JobReachedTerminalState":
            yield from self._reached(event["job_id"], event["status"])
        elif name == "client.JobFinished":
            yield from self._finished(event["job_id"], event["status"])
        elif name == "resource_manager.DisconnectJobManager" and event["status"] not in TERMINAL:
            yield f"job {event['job_id']} leaves the ResourceManager with status {event['status']}"
        elif name == "job_master.ResumeJob":
            self._ended.pop(event["job_id"], None)
        elif name == "job_master.CheckpointTriggered" and event["options"].get("stops") and not is_cut(event):
            self._stops.add((event["job_id"], event["checkpoint_id"]))
        elif name == "job_master.CheckpointCompleted":
            self._complete(event["job_id"], event["checkpoint"]["checkpoint_id"])
        elif name == "job_master.JobMasterFailed":
            self._failed.add(event["job_id"])
        elif name == "job_master.CancelJob":
            self._cancelled.add(event["job_id"])
        elif name == "job_master.StartJob" and event["job_id"] in self._announced:
            yield f"job {event['job_id']} is started again"

    def end(self) -> Iterator[str]:
        for job_id, status in self._announced.items():
            if status in TERMINAL and job_id not in self._ended:
                yield f"job {job_id} is {status}, but the Dispatcher was not told"
        for job_id, status in self._ended.items():
            if status in ENDS and job_id not in self._notified:
                yield f"job {job_id} has ended as {status}, but its client was not told"

    def _moved(self, job_id: str, old: str | None, status: str) -> Iterator[str]:
        before = self._announced.get(job_id)
        if old not in (None, before or "INITIALIZING"):
            # A JobMaster may fail again before it reads its failure.
            if job_id not in self._failed:
                yield f"job {job_id} becomes {status} from {old}, but it was {before}"
            return
        has_failed = status == "FAILED" and job_id in self._failed
        if status not in AFTER.get(before, ()) and not (has_failed and before not in ENDS):
            yield f"job {job_id} becomes {status} after {before or 'nothing'}"
        self._announced[job_id] = status

    def _reached(self, job_id: str, status: str) -> Iterator[str]:
        if status not in TERMINAL:
            yield f"job {job_id} is said to have ended as {status}"
        if status != self._announced.get(job_id):
            yield f"job {job_id} ends as {status}, but its last status was {self._announced.get(job_id)}"
        if job_id in self._stopped - self._cancelled - self._failed and status in ("FAILED", "CANCELED"):
            yield f"job {job_id} ends as {status}, though the savepoint that it was to end with was complete"
        before = self._ended.get(job_id)
        if before in ENDS and job_id not in self._failed:
            yield f"job {job_id} ends as {status} after it had ended as {before}"
        self._ended[job_id] = status

    def _complete(self, job_id: str, checkpoint_id: int) -> None:
        if (job_id, checkpoint_id) in self._stops and self._announced.get(job_id) == "RUNNING":
            self._stopped.add(job_id)

    def _finished(self, job_id: str, status: str) -> Iterator[str]:
        if status != self._ended.get(job_id):
            yield f"a client is told that job {job_id} is {status}, but it is {self._ended.get(job_id)}"
        if self._notified.get(job_id) in ENDS:
            yield f"a client is told of the end of job {job_id} twice"
        self._notified[job_id] = status
