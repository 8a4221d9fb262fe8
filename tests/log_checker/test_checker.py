"""The checker reports each violation in one line, and reports none for a correct log."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tailrace.schemas import avro
from tailrace.schemas.catalog import EVENTS

from . import check, dump, load
from .events import Event
from .log_builder import SECOND, LogBuilder, finished, running, slot_id, vertex
from .log_reader import _by_fingerprint


def find_violations(builder: LogBuilder, *, settled: bool = True) -> list[str]:
    """Returns the violations that the checker reports."""
    return [str(violation) for violation in check(builder.events, settled=settled)]


def test_checker_accepts_correct_log() -> None:
    assert find_violations(running()) == []
    assert find_violations(finished()) == []


def slot_is_allocated_twice(builder: LogBuilder) -> None:
    builder.start("k")
    builder.request("B", "te-1", 0, "k")


def allocation_is_requested_for_two_jobs(builder: LogBuilder) -> None:
    builder.start("k")
    builder.append(
        "job_master/k", "resource_manager", "resource_manager.RequestSlot", job_id="k", allocation_id="A"
    )


def allocation_is_held_at_two_task_executors(builder: LogBuilder) -> None:
    builder.request("A", "te-2")
    builder.offer("A", "te-2")


def task_executor_reports_slot_of_another(builder: LogBuilder) -> None:
    te = "task_executor/te-2"
    slot = slot_id("te-1", 1)
    builder.append(
        te, "resource_manager", "resource_manager.SlotRequestAccepted", allocation_id="B", slot_id=slot
    )


def slot_is_leaked(builder: LogBuilder) -> None:
    builder.report("a0", "FINISHED", "te-1")
    builder.free("A", "te-1")
    builder.part("te-1")
    builder.end()


def slot_is_held_without_job(builder: LogBuilder) -> None:
    builder.request("B", "te-2")


def slot_is_accepted_without_holder(builder: LogBuilder) -> None:
    builder.offer("B", "te-2")


def attempt_is_submitted_while_another_runs(builder: LogBuilder) -> None:
    builder.slot("B", "te-2")
    builder.task("a1", "B", "te-2", number=1)


def attempt_is_submitted_twice(builder: LogBuilder) -> None:
    builder.submit("a0", "A", "te-1")


def attempts_are_not_counted_by_one(builder: LogBuilder) -> None:
    builder.report("a0", "FAILED", "te-1")
    builder.task("a2", "A", "te-1", number=2)


def first_attempt_has_wrong_number(builder: LogBuilder) -> None:
    builder.task("b1", "A", "te-1", vertex_id="w", number=1)


def attempt_is_submitted_into_missing_slot(builder: LogBuilder) -> None:
    builder.task("b0", "B", "te-2", vertex_id="w")


def two_subtasks_of_a_vertex_share_a_slot(builder: LogBuilder) -> None:
    builder.task("b0", "A", "te-1", index=1)


def task_state_follows_terminal_state(builder: LogBuilder) -> None:
    builder.report("a0", "FINISHED", "te-1")
    builder.report("a0", "RUNNING", "te-1")


def task_runs_twice(builder: LogBuilder) -> None:
    builder.report("a0", "RUNNING", "te-1")


def task_is_reported_by_other_task_executor(builder: LogBuilder) -> None:
    builder.report("a0", "FINISHED", "te-2")


def unsubmitted_task_is_reported(builder: LogBuilder) -> None:
    builder.report("zzz", "RUNNING", "te-1")


def submitted_task_never_runs(builder: LogBuilder) -> None:
    request = builder.submit("b0", "A", "te-1", vertex_id="w")
    te = "task_executor/te-1"
    builder.append(
        te, "job_master/j", "job_master.TaskAcknowledged", cause=request, execution_attempt_id="b0"
    )


def job_ends_with_running_task(builder: LogBuilder) -> None:
    builder.free("A", "te-1")
    builder.end()


def task_executor_disconnects_before_slots_are_free(builder: LogBuilder) -> None:
    builder.report("a0", "FINISHED", "te-1")
    builder.free("A", "te-1")
    builder.part("te-1")


def task_executor_disconnects_while_task_runs(builder: LogBuilder) -> None:
    builder.free("A", "te-1")
    builder.part("te-1")


def registration_is_not_answered(builder: LogBuilder) -> None:
    builder.lead("task_executor/te-3")
    te = "task_executor/te-3"
    builder.append(te, "resource_manager", "resource_manager.RegisterTaskExecutor", resource_id="te-3")


def job_master_is_not_registered(builder: LogBuilder) -> None:
    builder.append("job_master/k", "resource_manager", "resource_manager.RegisterJobManager", job_id="k")


def slot_request_is_not_served(builder: LogBuilder) -> None:
    builder.append(
        "job_master/j", "resource_manager", "resource_manager.RequestSlot", job_id="j", allocation_id="B"
    )
    builder.now += 301 * SECOND
    builder.lead("task_executor/te-9")


def task_executor_does_not_answer_slot_request(builder: LogBuilder) -> None:
    builder.append(
        "resource_manager",
        "task_executor/te-2",
        "task_executor.RequestSlot",
        job_id="j",
        allocation_id="B",
        slot_id=slot_id("te-2", 0),
    )


def offer_is_not_answered(builder: LogBuilder) -> None:
    builder.request("B", "te-2")
    offer = {"allocation_id": "B", "slot_number": 0}
    te = "task_executor/te-2"
    builder.append(te, "job_master/j", "job_master.OfferSlots", job_id="j", resource_id="te-2", slots=[offer])


def task_is_not_acknowledged(builder: LogBuilder) -> None:
    builder.submit("b0", "A", "te-1", vertex_id="w")


def task_is_not_cancelled(builder: LogBuilder) -> None:
    te = "task_executor/te-1"
    builder.append("job_master/j", te, "task_executor.CancelTask", job_id="j", execution_attempt_id="a0")


def submission_is_not_answered(builder: LogBuilder) -> None:
    builder.append("client/you", "dispatcher", "dispatcher.SubmitJob", job_id="k")


def cancel_request_is_not_answered(builder: LogBuilder) -> None:
    builder.append("client/you", "dispatcher", "dispatcher.CancelJob", job_id="j")


def job_is_not_cancelled(builder: LogBuilder) -> None:
    builder.append("dispatcher", "job_master/j", "job_master.CancelJob", job_id="j")


def connection_is_not_answered(builder: LogBuilder) -> None:
    te = "task_executor/te-2"
    builder.append(te, "job_master/j", "job_master.RegisterTaskManager", job_id="j", resource_id="te-2")


def status_transition_is_invalid(builder: LogBuilder) -> None:
    builder.status("FAILED")


def status_follows_terminal_status(builder: LogBuilder) -> None:
    builder.report("a0", "FINISHED", "te-1")
    builder.status("FINISHED")
    builder.status("RUNNING")


def job_ends_with_other_status(builder: LogBuilder) -> None:
    builder.append(
        "job_master/j", "dispatcher", "dispatcher.JobReachedTerminalState", job_id="j", status="CANCELED"
    )


def client_gets_other_status(builder: LogBuilder) -> None:
    builder.append("dispatcher", "client/me", "client.JobFinished", job_id="j", status="FAILED")


def dispatcher_is_not_notified(builder: LogBuilder) -> None:
    builder.report("a0", "FINISHED", "te-1")
    builder.status("FINISHED")


def client_is_not_notified(builder: LogBuilder) -> None:
    builder.report("a0", "FINISHED", "te-1")
    builder.status("FINISHED")
    builder.append(
        "job_master/j", "dispatcher", "dispatcher.JobReachedTerminalState", job_id="j", status="FINISHED"
    )


def job_is_started_twice(builder: LogBuilder) -> None:
    graph = {"name": "Job", "vertices": [vertex("v")]}
    builder.append("dispatcher", "job_master/j", "job_master.StartJob", job_id="j", job_graph=graph)


def cause_is_later_event(builder: LogBuilder) -> None:
    builder.append("job_master/j", "client", "client.Anything", cause=len(builder.events) + 1)


def cause_was_not_read_by_sender(builder: LogBuilder) -> None:
    last = builder.append("dispatcher", "job_master/j", "job_master.Anything")
    builder.append("job_master/j", "client", "client.Anything", cause=last, at=last - 1)


def cause_does_not_concern_sender(builder: LogBuilder) -> None:
    last = builder.append("dispatcher", "client/me", "client.Anything")
    builder.append("job_master/j", "client", "client.Anything", cause=last)


def cause_was_fenced(builder: LogBuilder) -> None:
    builder.lead("dispatcher")
    last = builder.append("dispatcher", "job_master/j", "job_master.Anything", speaks_as=1)
    builder.append("job_master/j", "client", "client.Anything", cause=last)


def decision_is_not_before_event(builder: LogBuilder) -> None:
    builder.append("job_master/j", "client", "client.Anything", at=len(builder.events))


def leader_has_not_read_its_claim(builder: LogBuilder) -> None:
    claim = builder.lead("dispatcher")
    builder.append("dispatcher", "client/me", "client.Anything", at=claim - 1)


def job_leader_has_not_read_its_claim(builder: LogBuilder) -> None:
    claim = builder.lead("dispatcher")
    builder.append("job_master/j", "client", "client.Anything", at=claim - 1)


def leader_has_no_claim(builder: LogBuilder) -> None:
    builder.append("dispatcher", "client/me", "client.Anything", speaks_as=99)


def job_sends_event_before_its_start(builder: LogBuilder) -> None:
    builder.append("job_master/k", "client", "client.Anything")


def disconnect_reason_differs(builder: LogBuilder) -> None:
    te = "task_executor/te-1"
    body = {"job_id": "j", "resource_id": "te-1", "reason": "bye"}
    builder.append(te, "job_master/j", "job_master.DisconnectTaskManager", **body)


def job_master_stop_reason_differs(builder: LogBuilder) -> None:
    body = {"job_id": "j", "reason": "Stopping JobMaster for job Other(j)."}
    builder.append("job_master/j", "task_executor/te-2", "task_executor.DisconnectJobManager", **body)


def job_master_disconnects_before_slots_are_free(builder: LogBuilder) -> None:
    builder.report("a0", "FINISHED", "te-1")
    builder.part("te-1")


def accumulators_are_reported_before_end(builder: LogBuilder) -> None:
    builder.report("a0", "RUNNING", "te-1", counts={"n": 1})


def accumulator_is_not_finite(builder: LogBuilder) -> None:
    builder.report("a0", "FINISHED", "te-1", counts={"n": float("inf")})


def job_accumulator_is_too_small(builder: LogBuilder) -> None:
    builder.report("a0", "FAILED", "te-1", counts={"n": 2})
    builder.task("a1", "A", "te-1", number=1)
    builder.report("a1", "FINISHED", "te-1", counts={"n": 5})
    builder.end(counts={"n": 2})


def job_accumulator_counts_earlier_attempts_twice(builder: LogBuilder) -> None:
    builder.report("a0", "FAILED", "te-1", counts={"n": 2})
    builder.task("a1", "A", "te-1", number=1)
    builder.report("a1", "FINISHED", "te-1", counts={"n": 5})
    builder.end(counts={"n": 7})


def job_accumulators_are_missing(builder: LogBuilder) -> None:
    builder.report("a0", "FINISHED", "te-1", counts={"n": 5})
    builder.end()


def client_gets_other_accumulators(builder: LogBuilder) -> None:
    builder.append(
        "dispatcher", "client/me", "client.JobFinished", job_id="j", status="FINISHED", accumulators={"n": 1}
    )


BAD: dict[Callable[[LogBuilder], None], str] = {
    leader_has_not_read_its_claim: "by one who had not read that this begins at",
    job_leader_has_not_read_its_claim: "by one who had not read that this begins at",
    leader_has_no_claim: "under epoch 99, which nobody ever had",
    job_sends_event_before_its_start: "before the job has begun",
    slot_is_allocated_twice: "slot te-1/0 is given to allocation B of job k while allocation A of job j holds it since",
    allocation_is_requested_for_two_jobs: "allocation A is requested for job k and for job j",
    allocation_is_held_at_two_task_executors: "job j takes allocation A at te-2 and has it at te-1",
    task_executor_reports_slot_of_another: "task_executor/te-2 speaks of slot te-1/1",
    slot_is_leaked: "slot te-1/0 is held for allocation A of job j, which has ended",
    slot_is_held_without_job: "slot te-2/0 is held for allocation B of job j, which has not taken it",
    slot_is_accepted_without_holder: "has taken allocation B at te-2, which holds no slot for it",
    attempt_is_submitted_while_another_runs: "attempt 1 of j/v/0 at te-2 is submitted while attempt 0",
    attempt_is_submitted_twice: "attempt 0 of j/v/0 at te-1 is submitted again",
    attempts_are_not_counted_by_one: "attempt 2 of j/v/0 at te-1 is submitted where attempt 1 would be next",
    first_attempt_has_wrong_number: "attempt 1 of j/w/0 at te-1 is submitted where attempt 0 would be next",
    attempt_is_submitted_into_missing_slot: "into allocation B, which its job has not taken there",
    two_subtasks_of_a_vertex_share_a_slot: "shares its slot with attempt 0 of j/v/0 at te-1, of the same vertex",
    task_state_follows_terminal_state: "attempt 0 of j/v/0 at te-1 is reported RUNNING after it was FINISHED",
    task_runs_twice: "attempt 0 of j/v/0 at te-1 is reported RUNNING while it was RUNNING",
    task_is_reported_by_other_task_executor: "task_executor/te-2 reports FINISHED of attempt 0 of j/v/0 at te-1",
    unsubmitted_task_is_reported: "reports RUNNING of Execution zzz, which was never submitted",
    submitted_task_never_runs: "does not run but is DEPLOYING",
    job_ends_with_running_task: "attempt 0 of j/v/0 at te-1 has not ended, but its job has",
    task_executor_disconnects_before_slots_are_free: "but did not say that te-1/0 is free",
    task_executor_disconnects_while_task_runs: "has no more slots, but attempt 0 of j/v/0 at te-1 runs",
    registration_is_not_answered: "was not answered by resource_manager",
    job_master_is_not_registered: "the registration of job k of offset",
    slot_request_is_not_served: "the request for slot B of job j of offset",
    task_executor_does_not_answer_slot_request: "was not answered by task_executor/te-2",
    offer_is_not_answered: "the offer of slot 0 (B) to job j of offset",
    task_is_not_acknowledged: "the submission of task b0 of offset",
    task_is_not_cancelled: "the cancellation of task a0 of offset",
    submission_is_not_answered: "the submission of job k of offset",
    cancel_request_is_not_answered: "the request to cancel job j of offset",
    job_is_not_cancelled: "the cancellation of job j of offset",
    connection_is_not_answered: "the registration at job j of offset",
    status_transition_is_invalid: "job j becomes FAILED after RUNNING",
    status_follows_terminal_status: "job j becomes RUNNING after FINISHED",
    job_ends_with_other_status: "job j ends as CANCELED, but its last status was RUNNING",
    client_gets_other_status: "a client is told that job j is FAILED, but it is None",
    dispatcher_is_not_notified: "job j is FINISHED, but the Dispatcher was not told",
    client_is_not_notified: "job j has ended as FINISHED, but its client was not told",
    job_is_started_twice: "job j is started again",
    cause_is_later_event: "cannot have sent",
    cause_was_not_read_by_sender: "but was decided at",
    cause_does_not_concern_sender: "which dispatcher said to client/me",
    cause_was_fenced: "which no reader takes notice of",
    decision_is_not_before_event: "cannot have sent",
    disconnect_reason_differs: "instead of 'TaskExecutor task_executor/te-1 has no more allocated slots for job j.'",
    job_master_stop_reason_differs: "instead of 'Stopping JobMaster for job Job(j).'",
    accumulators_are_reported_before_end: "tells what a0 has counted, though it is RUNNING",
    accumulator_is_not_finite: "tells that a0 has counted inf of n",
    job_accumulator_is_too_small: "job j has counted 2 of n, its tasks 5",
    job_accumulator_counts_earlier_attempts_twice: "job j has counted 7 of n, its tasks 5",
    job_accumulators_are_missing: "job j has counted [], its tasks ['n']",
    client_gets_other_accumulators: "a client is told that job j has counted {'n': 1}, but it is {}",
    job_master_disconnects_before_slots_are_free: "disconnects from task_executor/te-1 before it frees allocation A",
}


@pytest.mark.parametrize("spoil", BAD, ids=lambda item: item.__name__)
def test_checker_reports_violation(spoil: Callable[[LogBuilder], None]) -> None:
    builder = running()
    spoil(builder)
    (result, *more) = [violation for violation in find_violations(builder) if BAD[spoil] in violation]
    assert result.startswith("offset ")
    assert not more


SHOWS_AT_THE_END = {
    function for function, words in BAD.items() if "of offset" in words or "was not answered" in words
} | {
    slot_is_leaked,
    slot_is_held_without_job,
    slot_is_accepted_without_holder,
    submitted_task_never_runs,
    job_ends_with_running_task,
    dispatcher_is_not_notified,
    client_is_not_notified,
}


@pytest.mark.parametrize("spoil", BAD, ids=lambda item: item.__name__)
def test_checker_reports_missing_answer_only_at_end_of_settled_log(
    spoil: Callable[[LogBuilder], None],
) -> None:
    builder = running()
    spoil(builder)
    results = [violation for violation in find_violations(builder, settled=False) if BAD[spoil] in violation]
    assert bool(results) == (spoil not in SHOWS_AT_THE_END)


def test_checker_accepts_job_with_dispatcher_epoch_only() -> None:
    builder = running()
    builder.lead("dispatcher")
    status = {"job_id": "j", "status": "FAILED"}
    builder.append("job_master/j", "client", "client.JobStatusChanged", speaks_as=1, **status)
    assert find_violations(builder) == []
    builder.append("job_master/j", "*", "everyone.LeaderElected", role="job_master/j", epoch=3)
    builder.append("job_master/j", "client", "client.Anything")
    (claim,) = find_violations(builder)
    assert "job_master/j cannot have sent everyone.LeaderElected" in claim


def test_checker_ignores_events_of_deposed_leader() -> None:
    builder = running()
    builder.lead("resource_manager")
    status = {"role": "dispatcher", "epoch": 9}
    builder.append("resource_manager", "*", "everyone.LeaderElected", **status)
    builder.lead("dispatcher")
    builder.append(
        "job_master/j", "client", "client.JobStatusChanged", speaks_as=1, job_id="j", status="FAILED"
    )
    assert find_violations(builder) == []


def test_checker_counts_duplicate_event_once() -> None:
    builder = finished()
    again = next(event for event in builder.events if event.name == "job_master.UpdateTaskExecutionState")
    fields = {name: getattr(again, name) for name in Event.__slots__} | {"offset": len(builder.events)}
    builder.events.append(Event(**fields))
    assert find_violations(builder) == []


def test_checker_accepts_next_attempt_after_loss_of_task_executor() -> None:
    builder = running()
    builder.lose("te-1")
    builder.slot("B", "te-2")
    builder.task("a1", "B", "te-2", number=1)
    assert find_violations(builder) == []


def test_checker_accepts_next_attempt_after_failed_slot() -> None:
    builder = running()
    builder.fail_slot("A", "te-1")
    builder.freed("A", "te-1")
    builder.slot("B", "te-2")
    builder.task("a1", "B", "te-2", number=1)
    assert find_violations(builder) == []


def test_checker_treats_task_submitted_into_lost_slot_as_never_live() -> None:
    builder = running()
    before = len(builder.events) - 1
    builder.lose("te-1")
    builder.submit("b0", "A", "te-1", vertex_id="w", at=before)
    builder.slot("B", "te-2")
    builder.task("a1", "B", "te-2", number=1)
    builder.task("b1", "B", "te-2", vertex_id="w", number=1)
    assert find_violations(builder) == []


def test_checker_ignores_events_of_task_executor_that_has_not_read_its_loss() -> None:
    builder = running()
    before = len(builder.events) - 1
    builder.lose("te-1")
    slot = slot_id("te-1", 0)
    te = "task_executor/te-1"
    builder.append(
        te,
        "resource_manager",
        "resource_manager.SlotRequestAccepted",
        at=before,
        allocation_id="A",
        slot_id=slot,
    )
    builder.report("a0", "FINISHED", "te-1", at=before)
    builder.slot("B", "te-2")
    builder.task("a1", "B", "te-2", number=1)
    assert find_violations(builder) == []


def test_checker_accepts_restarted_task_executor() -> None:
    builder = running()
    builder.register("te-1", slots=0)
    builder.report("a0", "RUNNING", "te-1")
    assert find_violations(builder) == []


def test_checker_accepts_co_located_subtasks_in_one_slot() -> None:
    builder = LogBuilder().cluster("te-1", "te-2")
    builder.start("j", vertex("v", co_location="x"), vertex("w", co_location="x"))
    builder.slot("A", "te-1")
    builder.slot("B", "te-2")
    builder.task("a0", "A", "te-1")
    builder.task("b0", "B", "te-2", vertex_id="w")
    builder.status("RUNNING")
    (result,) = find_violations(builder)
    assert "attempt 0 of j/w/0 at te-2 is not in the slot of attempt 0 of j/v/0 at te-1" in result


def test_checker_accepts_subtasks_without_group_in_their_own_slots() -> None:
    builder = LogBuilder().cluster("te-1")
    builder.start("j", vertex("v", ""), vertex("w", ""))
    builder.slot("A", "te-1")
    builder.task("a0", "A", "te-1")
    builder.task("b0", "A", "te-1", vertex_id="w")
    builder.status("RUNNING")
    (result,) = find_violations(builder)
    assert "which is in another group" in result


def test_checker_sums_accumulators_of_last_attempts() -> None:
    builder = running()
    builder.task("b0", "A", "te-1", vertex_id="w")
    builder.report("a0", "FAILED", "te-1", counts={"n": 2, "m": 1})
    builder.task("a1", "A", "te-1", number=1)
    builder.report("a1", "FINISHED", "te-1", counts={"n": 5})
    builder.report("b0", "FINISHED", "te-1", counts={"n": 0.5})
    builder.free("A", "te-1")
    builder.part("te-1", freed=["A"])
    builder.end(counts={"n": 5.5, "m": 1})
    assert find_violations(builder) == []


def test_checker_accepts_resumed_job() -> None:
    builder = running()
    builder.append("dispatcher", "job_master/j", "job_master.SuspendJob", job_id="j", reason="later")
    builder.report("a0", "CANCELED", "te-1")
    builder.free("A", "te-1")
    builder.part("te-1", freed=["A"])
    builder.end("SUSPENDED")
    assert find_violations(builder) == []
    builder.append("dispatcher", "job_master/j", "job_master.ResumeJob", job_id="j")
    builder.status("CREATED")
    builder.slot("B", "te-2")
    builder.task("a1", "B", "te-2", number=1)
    builder.status("RUNNING")
    assert find_violations(builder) == []


def test_dump_and_load_preserve_events(tmp_path: Path) -> None:
    events = finished().events
    path = tmp_path / "dump"
    path.write_text("\n".join(dump(events)), "utf-8")
    assert load(path.read_text("utf-8").splitlines()) == events


def test_checker_decodes_every_event_by_fingerprint() -> None:
    known = {fingerprint: name for fingerprint, (name, _) in _by_fingerprint().items()}
    for name in EVENTS:
        assert known[avro.fingerprint(name)] == name


def test_checker_imports_nothing_of_roles() -> None:
    for path in Path(__file__).parent.glob("*.py"):
        if not path.name.startswith("test_"):
            assert "tailrace" not in [
                word.split(".")[0]
                for line in path.read_text("utf-8").splitlines()
                if line.lstrip().startswith(("import ", "from "))
                for word in line.split()[1:2]
            ]
