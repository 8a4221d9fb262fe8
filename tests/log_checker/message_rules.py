"""Messages with a fixed text, and events with a fixed order, for example how a job is cancelled."""

from __future__ import annotations

from collections.abc import Iterator

from .events import Event
from .slots import Slots


class MessageRules:
    """Checks the messages with which JobMasters and TaskExecutors disconnect."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._names: dict[str, str] = {}
        self._frees: set[str] = set()
        self._failed: set[str] = set()
        """Jobs whose JobMaster could not say what it owed: it may leave out what frees slots."""

    def see(self, event: Event) -> Iterator[str]:
        name = event.name
        if name == "job_master.StartJob":
            self._names[event["job_id"]] = event["job_graph"]["name"]
        elif name == "job_master.JobMasterFailed":
            self._failed.add(event["job_id"])
        elif name == "task_executor.FreeSlot":
            self._frees.add(event["allocation_id"])
        elif name == "job_master.DisconnectTaskManager":
            yield from self._no_more_slots(event)
        elif name == "task_executor.DisconnectJobManager":
            yield from self._stopping(event)
        if name == "resource_manager.NotifySlotAvailable":
            self._frees.discard(event["old_allocation_id"])

    def end(self) -> Iterator[str]:
        return iter(())

    def _no_more_slots(self, event: Event) -> Iterator[str]:
        job_id = event["job_id"]
        if event.kind != "task_executor":
            return
        reported = f"TaskExecutor {event.sender} has no more allocated slots for job {job_id}."
        if event["reason"] != reported:
            yield f"{event.sender} says {event['reason']!r} instead of {reported!r}"

    def _stopping(self, event: Event) -> Iterator[str]:
        job_id, words = event["job_id"], event["reason"]
        if not words.startswith("Stopping JobMaster"):
            return
        reported = f"Stopping JobMaster for job {self._names.get(job_id)}({job_id})."
        if words != reported:
            yield f"{event.sender} says {words!r} instead of {reported!r}"
        # `slots` has seen this event already: what it took from the job now is what was not freed before.
        for allocation_id, offset in self._slots.gone.items():
            here = offset == event.offset and self._slots.job_of.get(allocation_id) == job_id
            if here and allocation_id not in self._frees and job_id not in self._failed:
                yield f"{event.sender} disconnects from {event.recipient} before it frees allocation {allocation_id}"
