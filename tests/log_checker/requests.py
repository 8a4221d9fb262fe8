"""Every request is answered, or ends with its sender or recipient, or has not reached its timeout."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .attempts import ENDS
from .durations import microseconds
from .events import Event
from .fencing import is_job
from .slots import Slots

WAITS_S = 300
"""How long a request for a slot may wait where the configuration does not say (`slot.request.timeout`)."""

Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Request:
    """The kind, sender and recipient of a request."""

    what: str
    asked: str
    offset: int
    time: int


class Requests:
    """Requests without an answer, by what identifies them."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._open: dict[Key, Request] = {}
        self._by_resource: dict[str, set[Key]] = {}
        self._led: set[str] = set()
        self._ended_attempts: set[str] = set()
        self._attempt_slots: dict[str, str] = {}
        self._waits_us = WAITS_S * 1_000_000
        self._now = 0

    def see(self, event: Event) -> Iterator[str]:
        self._now = max(self._now, event.time)
        folder, _, short = event.name.partition(".")
        step = getattr(self, f"_{folder}_{short}", None)
        if step is not None:
            step(event)
        return iter(())

    def end(self) -> Iterator[str]:
        if self._slots.terminated:
            return
        for key, request in self._open.items():
            if request.asked not in self._led and not (is_job(request.asked) and "dispatcher" in self._led):
                continue
            if key[0] == "slot" and self._now - request.time < self._waits_us:
                continue
            yield f"{request.what} of offset {request.offset} was not answered by {request.asked}"

    def _ask(self, event: Event, key: Key, what: str, resource_id: str = "") -> None:
        self._open[key] = Request(what, event.recipient, event.offset, event.time)
        if resource_id:
            self._by_resource.setdefault(resource_id, set()).add(key)

    def _answer(self, *key: str) -> None:
        self._open.pop(key, None)

    def _drop_job(self, job_id: str, *kinds: str) -> None:
        for key in [pair for pair in self._open if pair[0] in kinds and pair[1] == job_id]:
            del self._open[key]

    def _drop_resource(self, resource_id: str, job_id: str | None = None) -> None:
        keys = self._by_resource.pop(resource_id, set())
        retained = {key for key in keys if job_id is not None and key[1] != job_id}
        for key in keys - retained:
            self._open.pop(key, None)
        if retained:
            self._by_resource[resource_id] = retained

    def _is_over(self, event: Event, job_id: str, allocation_id: str) -> bool:
        return not event.has_read(self._slots.over(job_id, event.to, allocation_id))

    # Who is there

    def _everyone_LeaderElected(self, event: Event) -> None:
        self._led.add(event["role"])
        if event.kind == "task_executor":
            self._answer("register", "", event.by)

    def _everyone_ConfigurationChanged(self, event: Event) -> None:
        text = event["configuration"].get("slot.request.timeout")
        if text is not None:
            self._waits_us = microseconds(text)

    def _everyone_TaskExecutorLost(self, event: Event) -> None:
        self._drop_resource(event["resource_id"])

    def _resource_manager_DisconnectTaskManager(self, event: Event) -> None:
        self._drop_resource(event["resource_id"])

    def _resource_manager_DisconnectJobManager(self, event: Event) -> None:
        self._drop_job(event["job_id"], "job", "slot", "cancel", "suspend", "task", "stop")

    # Registrations

    def _resource_manager_RegisterTaskExecutor(self, event: Event) -> None:
        if not self._slots.is_late(event):
            self._ask(event, ("register", "", event.by), "the registration", event.by)

    def _task_executor_TaskExecutorRegistrationSuccess(self, event: Event) -> None:
        self._answer("register", "", event.to)

    def _task_executor_TaskExecutorRegistrationRejection(self, event: Event) -> None:
        self._answer("register", "", event.to)

    def _resource_manager_RegisterJobManager(self, event: Event) -> None:
        self._ask(event, ("job", event["job_id"]), f"the registration of job {event['job_id']}")

    def _job_master_JobManagerRegistrationSuccess(self, event: Event) -> None:
        self._answer("job", event["job_id"])

    def _job_master_RegisterTaskManager(self, event: Event) -> None:
        if not self._slots.is_late(event):
            job_id = event["job_id"]
            self._ask(event, ("connection", job_id, event.by), f"the registration at job {job_id}", event.by)

    def _task_executor_JobManagerRegistrationSuccess(self, event: Event) -> None:
        self._answer("connection", event["job_id"], event.to)

    def _task_executor_DisconnectJobManager(self, event: Event) -> None:
        self._drop_resource(event.to, event["job_id"])

    def _job_master_DisconnectTaskManager(self, event: Event) -> None:
        if not self._slots.is_late(event):
            self._drop_resource(event["resource_id"], event["job_id"])

    def _job_master_HeartbeatTimedOut(self, event: Event) -> None:
        self._drop_resource(event["resource_id"], event.to)

    # Slots

    def _resource_manager_RequestSlot(self, event: Event) -> None:
        job_id, allocation_id = event["job_id"], event["allocation_id"]
        self._ask(
            event, ("slot", job_id, allocation_id), f"the request for slot {allocation_id} of job {job_id}"
        )

    def _job_master_SlotAllocationFailed(self, event: Event) -> None:
        self._answer("slot", event.to, event["allocation_id"])

    def _resource_manager_CancelSlotRequest(self, event: Event) -> None:
        self._answer("slot", event.by, event["allocation_id"])

    def _task_executor_RequestSlot(self, event: Event) -> None:
        if event.has_read(max(self._slots.lost.get(event.to, -1), self._slots.left.get(event.to, -1))):
            what = f"the request for slot {event['slot_id']['slot_number']}"
            self._ask(event, ("requested", event["job_id"], str(event.offset)), what, event.to)

    def _resource_manager_SlotRequestAccepted(self, event: Event) -> None:
        self._slot_answered(event)

    def _resource_manager_SlotRequestRejected(self, event: Event) -> None:
        self._slot_answered(event)

    def _slot_answered(self, event: Event) -> None:
        job_id = self._slots.job_of.get(event["allocation_id"], "")
        self._answer("requested", job_id, str(event.cause))

    def _job_master_OfferSlots(self, event: Event) -> None:
        job_id = event["job_id"]
        late = self._slots.is_late(event) or not event.has_read(self._slots.cut.get((job_id, event.by), -1))
        for offer in event["slots"]:
            allocation_id = offer["allocation_id"]
            self._answer("slot", job_id, allocation_id)
            if not late:
                what = f"the offer of slot {offer['slot_number']} ({allocation_id}) to job {job_id}"
                self._ask(event, ("offer", job_id, event.by, allocation_id), what, event.by)

    def _task_executor_SlotsAccepted(self, event: Event) -> None:
        self._offer_answered(event)

    def _task_executor_SlotsRejected(self, event: Event) -> None:
        self._offer_answered(event)

    def _offer_answered(self, event: Event) -> None:
        for allocation_id in event["allocation_ids"]:
            self._answer("offer", event["job_id"], event.to, allocation_id)

    def _task_executor_FreeSlot(self, event: Event) -> None:
        self._answer("offer", event.by, event.to, event["allocation_id"])

    def _job_master_FailSlot(self, event: Event) -> None:
        if self._slots.is_late(event):
            return
        allocation_id = event["allocation_id"]
        for key in [pair for pair in self._open if pair[0] in ("task", "stop", "offer")]:
            if key[-1] == allocation_id or self._attempt_slots.get(key[-1]) == allocation_id:
                del self._open[key]

    # Tasks

    def _task_executor_SubmitTask(self, event: Event) -> None:
        job_id = event["job_id"]
        for item in event["subtasks"]:
            attempt, allocation_id = item["execution_attempt_id"], item["allocation_id"]
            self._attempt_slots[attempt] = allocation_id
            if self._is_over(event, job_id, allocation_id):
                self._ended_attempts.add(attempt)
            else:
                self._ask(event, ("task", job_id, attempt), f"the submission of task {attempt}", event.to)

    def _task_executor_CancelTask(self, event: Event) -> None:
        job_id, attempt = event["job_id"], event["execution_attempt_id"]
        over = self._is_over(event, job_id, self._attempt_slots.get(attempt, ""))
        if attempt not in self._ended_attempts and not over:
            self._ask(event, ("stop", job_id, attempt), f"the cancellation of task {attempt}", event.to)

    def _job_master_TaskAcknowledged(self, event: Event) -> None:
        self._answer("task", event.to, event["execution_attempt_id"])

    def _job_master_UpdateTaskExecutionState(self, event: Event) -> None:
        attempt = event["execution_attempt_id"]
        self._answer("task", event["job_id"], attempt)
        if event["execution_state"] in ENDS:
            self._ended_attempts.add(attempt)
            self._answer("stop", event["job_id"], attempt)

    def _job_master_TasksContradicted(self, event: Event) -> None:
        for attempt in event["execution_attempt_ids"]:
            self._ended_attempts.add(attempt)
            self._answer("task", event.to, attempt)
            self._answer("stop", event.to, attempt)

    # Jobs

    def _dispatcher_SubmitJob(self, event: Event) -> None:
        key = ("submit", event["job_id"], event.sender, str(event.offset))
        self._ask(event, key, f"the submission of job {event['job_id']}")

    def _client_JobAccepted(self, event: Event) -> None:
        self._submission_answered(event)

    def _client_JobRejected(self, event: Event) -> None:
        self._submission_answered(event)

    def _submission_answered(self, event: Event) -> None:
        for key in self._open:
            if key[:3] == ("submit", event["job_id"], event.recipient):
                del self._open[key]
                return

    def _dispatcher_CancelJob(self, event: Event) -> None:
        key = ("ask to cancel", event["job_id"], event.sender, str(event.offset))
        self._ask(event, key, f"the request to cancel job {event['job_id']}")

    def _client_CancelJobRejected(self, event: Event) -> None:
        for key in self._open:
            if key[:3] == ("ask to cancel", event["job_id"], event.recipient):
                del self._open[key]
                return

    def _job_master_CancelJob(self, event: Event) -> None:
        self._drop_job(event["job_id"], "ask to cancel")
        if event["job_id"] not in self._slots.ended:
            self._ask(event, ("cancel", event["job_id"]), f"the cancellation of job {event['job_id']}")

    def _job_master_SuspendJob(self, event: Event) -> None:
        if event["job_id"] not in self._slots.ended:
            self._ask(event, ("suspend", event["job_id"]), f"the suspension of job {event['job_id']}")

    def _dispatcher_JobReachedTerminalState(self, event: Event) -> None:
        self._drop_job(event["job_id"], "cancel", "suspend", "ask to cancel")
