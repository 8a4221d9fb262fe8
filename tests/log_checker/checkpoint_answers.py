"""Each request for a checkpoint or savepoint, to delete one, or for another parallelism, is answered once.

A JobMaster that fails after the end of its job sends all that it owes, also what is in the log already: the same answer
to the same event counts once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from .events import Event
from .slots import Slots

_TRIGGERS = ("dispatcher.TriggerCheckpoint", "dispatcher.TriggerSavepoint", "dispatcher.StopWithSavepoint")

CheckpointQuestion = tuple[str, str]
"""(client, job or directory)."""
_AUTOSCALER = "client/autoscaler"
_ADAPTIVE_SCHEDULER = "client/adaptive-scheduler"


class CheckpointAnswers:
    """Counts requests and answers, because one client may send the same request more than once."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._asked: Counter[CheckpointQuestion] = Counter()
        self._answered: Counter[CheckpointQuestion] = Counter()
        self._ended: set[str] = set()
        self._causes: set[tuple[str, int | None]] = set()
        """(client, cause) of the answers."""

    def see(self, event: Event) -> Iterator[str]:
        match event.name:
            case name if name in _TRIGGERS:
                self._asked[event.sender, event["job_id"]] += 1
            case "dispatcher.RescaleJob":
                self._asked[event.sender, f"{event['job_id']} at another parallelism"] += 1
            case "job_master.ScalingDecided" if event["parallelism"] and not event["is_advice"]:
                self._asked[_AUTOSCALER, f"{event['job_id']} at another parallelism"] += 1
            case "job_master.RescaleStarted" if event.body.get("is_adaptive"):
                self._asked[_ADAPTIVE_SCHEDULER, f"{event['job_id']} at another parallelism"] += 1
            case "dispatcher.DisposeSavepoint":
                self._asked[event.sender, event["path"]] += 1
            case "client.JobStatusChanged" if event["status"] in ("FINISHED", "CANCELED", "FAILED"):
                self._ended.add(event["job_id"])
            case "client.CheckpointSucceeded" | "client.CheckpointFailed":
                known = (event.recipient, event.cause) in self._causes
                self._causes.add((event.recipient, event.cause))
                if known and event.kind == "job_master" and event["job_id"] in self._ended:
                    return
                yield from self._is_answered(event.recipient, event["job_id"])
            case "client.JobRescaled" | "client.RescaleFailed":
                known = (event.recipient, event.cause) in self._causes
                self._causes.add((event.recipient, event.cause))
                if known and event.kind == "job_master" and event["job_id"] in self._ended:
                    return
                yield from self._is_answered(event.recipient, f"{event['job_id']} at another parallelism")
            case "client.SavepointDisposed":
                yield from self._is_answered(event.recipient, event["path"])

    def end(self) -> Iterator[str]:
        if self._slots.terminated:
            return
        for asked, count in self._asked.items():
            # A decision that a change of the job has overtaken asks for nothing.
            if self._answered[asked] < count and asked[0] not in (_AUTOSCALER, _ADAPTIVE_SCHEDULER):
                yield f"{asked[0]} asked {count} times for {asked[1]} and was answered {self._answered[asked]} times"

    def _is_answered(self, client: str, what: str) -> Iterator[str]:
        self._answered[client, what] += 1
        if self._answered[client, what] > self._asked[client, what]:
            yield f"{client} is answered once more than it asked for {what}"
