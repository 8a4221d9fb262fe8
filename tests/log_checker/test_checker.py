"""The checker finds what is wrong, says so in a line, and finds nothing in a log that is right."""

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


def said(talk: LogBuilder, *, settled: bool = True) -> list[str]:
    """What the checker says of it."""
    return [str(each) for each in check(talk.events, settled=settled)]


def test_a_log_that_is_right_is_right() -> None:
    assert said(running()) == []
    assert said(finished()) == []


def a_slot_is_given_twice(talk: LogBuilder) -> None:
    talk.start("k")
    talk.request("B", "te-1", 0, "k")


def an_allocation_is_requested_for_two_jobs(talk: LogBuilder) -> None:
    talk.start("k")
    talk.append(
        "job_master/k", "resource_manager", "resource_manager.RequestSlot", job_id="k", allocation_id="A"
    )


def an_allocation_is_taken_at_two_task_executors(talk: LogBuilder) -> None:
    talk.request("A", "te-2")
    talk.offer("A", "te-2")


def a_task_executor_speaks_of_the_slot_of_another(talk: LogBuilder) -> None:
    te = "task_executor/te-2"
    slot = slot_id("te-1", 1)
    talk.append(
        te, "resource_manager", "resource_manager.SlotRequestAccepted", allocation_id="B", slot_id=slot
    )


def a_slot_is_leaked(talk: LogBuilder) -> None:
    talk.report("a0", "FINISHED", "te-1")
    talk.free("A", "te-1")
    talk.part("te-1")
    talk.end()


def a_slot_is_held_that_nobody_has_taken(talk: LogBuilder) -> None:
    talk.request("B", "te-2")


def a_slot_is_taken_that_nobody_holds(talk: LogBuilder) -> None:
    talk.offer("B", "te-2")


def an_attempt_is_submitted_while_another_runs(talk: LogBuilder) -> None:
    talk.slot("B", "te-2")
    talk.task("a1", "B", "te-2", number=1)


def an_attempt_is_submitted_twice(talk: LogBuilder) -> None:
    talk.submit("a0", "A", "te-1")


def attempts_are_not_counted_by_one(talk: LogBuilder) -> None:
    talk.report("a0", "FAILED", "te-1")
    talk.task("a2", "A", "te-1", number=2)


def a_first_attempt_is_not_the_zeroth(talk: LogBuilder) -> None:
    talk.task("b1", "A", "te-1", vertex_id="w", number=1)


def an_attempt_is_submitted_into_a_slot_that_is_not_there(talk: LogBuilder) -> None:
    talk.task("b0", "B", "te-2", vertex_id="w")


def two_subtasks_of_a_vertex_share_a_slot(talk: LogBuilder) -> None:
    talk.task("b0", "A", "te-1", index=1)


def a_task_state_follows_the_end(talk: LogBuilder) -> None:
    talk.report("a0", "FINISHED", "te-1")
    talk.report("a0", "RUNNING", "te-1")


def a_task_runs_twice(talk: LogBuilder) -> None:
    talk.report("a0", "RUNNING", "te-1")


def a_task_is_reported_by_another(talk: LogBuilder) -> None:
    talk.report("a0", "FINISHED", "te-2")


def a_task_is_reported_that_was_never_submitted(talk: LogBuilder) -> None:
    talk.report("zzz", "RUNNING", "te-1")


def a_deployment_is_never_whole(talk: LogBuilder) -> None:
    asked = talk.submit("b0", "A", "te-1", vertex_id="w", size=2)
    te = "task_executor/te-1"
    talk.append(te, "job_master/j", "job_master.TaskAcknowledged", cause=asked, execution_attempt_id="b0")


def a_job_ends_with_a_task_that_runs(talk: LogBuilder) -> None:
    talk.free("A", "te-1")
    talk.end()


def a_task_executor_parts_before_its_slots_are_free(talk: LogBuilder) -> None:
    talk.report("a0", "FINISHED", "te-1")
    talk.free("A", "te-1")
    talk.part("te-1")


def a_task_executor_parts_while_a_task_runs(talk: LogBuilder) -> None:
    talk.free("A", "te-1")
    talk.part("te-1")


def a_registration_is_not_answered(talk: LogBuilder) -> None:
    talk.lead("task_executor/te-3")
    te = "task_executor/te-3"
    talk.append(te, "resource_manager", "resource_manager.RegisterTaskExecutor", resource_id="te-3")


def a_job_master_is_not_registered(talk: LogBuilder) -> None:
    talk.append("job_master/k", "resource_manager", "resource_manager.RegisterJobManager", job_id="k")


def a_slot_request_is_forgotten(talk: LogBuilder) -> None:
    talk.append(
        "job_master/j", "resource_manager", "resource_manager.RequestSlot", job_id="j", allocation_id="B"
    )
    talk.now += 301 * SECOND
    talk.lead("task_executor/te-9")


def a_task_executor_does_not_answer_a_slot_request(talk: LogBuilder) -> None:
    talk.append(
        "resource_manager",
        "task_executor/te-2",
        "task_executor.RequestSlot",
        job_id="j",
        allocation_id="B",
        slot_id=slot_id("te-2", 0),
    )


def an_offer_is_not_answered(talk: LogBuilder) -> None:
    talk.request("B", "te-2")
    offer = {"allocation_id": "B", "slot_number": 0}
    te = "task_executor/te-2"
    talk.append(te, "job_master/j", "job_master.OfferSlots", job_id="j", resource_id="te-2", slots=[offer])


def a_task_is_not_acknowledged(talk: LogBuilder) -> None:
    talk.submit("b0", "A", "te-1", vertex_id="w")


def a_task_is_not_cancelled(talk: LogBuilder) -> None:
    te = "task_executor/te-1"
    talk.append("job_master/j", te, "task_executor.CancelTask", job_id="j", execution_attempt_id="a0")


def a_submission_is_not_answered(talk: LogBuilder) -> None:
    talk.append("client/you", "dispatcher", "dispatcher.SubmitJob", job_id="k")


def a_request_to_cancel_is_not_answered(talk: LogBuilder) -> None:
    talk.append("client/you", "dispatcher", "dispatcher.CancelJob", job_id="j")


def a_job_is_not_cancelled(talk: LogBuilder) -> None:
    talk.append("dispatcher", "job_master/j", "job_master.CancelJob", job_id="j")


def a_connection_is_not_answered(talk: LogBuilder) -> None:
    te = "task_executor/te-2"
    talk.append(te, "job_master/j", "job_master.RegisterTaskManager", job_id="j", resource_id="te-2")


def a_status_follows_that_can_not(talk: LogBuilder) -> None:
    talk.status("FAILED")


def a_status_follows_an_end(talk: LogBuilder) -> None:
    talk.report("a0", "FINISHED", "te-1")
    talk.status("FINISHED")
    talk.status("RUNNING")


def a_job_ends_otherwise_than_was_said(talk: LogBuilder) -> None:
    talk.append(
        "job_master/j", "dispatcher", "dispatcher.JobReachedTerminalState", job_id="j", status="CANCELED"
    )


def a_client_is_told_another_end(talk: LogBuilder) -> None:
    talk.append("dispatcher", "client/me", "client.JobFinished", job_id="j", status="FAILED")


def the_dispatcher_is_not_told(talk: LogBuilder) -> None:
    talk.report("a0", "FINISHED", "te-1")
    talk.status("FINISHED")


def the_client_is_not_told(talk: LogBuilder) -> None:
    talk.report("a0", "FINISHED", "te-1")
    talk.status("FINISHED")
    talk.append(
        "job_master/j", "dispatcher", "dispatcher.JobReachedTerminalState", job_id="j", status="FINISHED"
    )


def a_job_is_started_twice(talk: LogBuilder) -> None:
    graph = {"name": "Job", "vertices": [vertex("v")]}
    talk.append("dispatcher", "job_master/j", "job_master.StartJob", job_id="j", job_graph=graph)


def a_cause_is_not_there_yet(talk: LogBuilder) -> None:
    talk.append("job_master/j", "client", "client.Anything", cause=len(talk.events) + 1)


def a_cause_had_not_been_read(talk: LogBuilder) -> None:
    last = talk.append("dispatcher", "job_master/j", "job_master.Anything")
    talk.append("job_master/j", "client", "client.Anything", cause=last, at=last - 1)


def a_cause_is_none_of_its_business(talk: LogBuilder) -> None:
    last = talk.append("dispatcher", "client/me", "client.Anything")
    talk.append("job_master/j", "client", "client.Anything", cause=last)


def a_cause_was_fenced(talk: LogBuilder) -> None:
    talk.lead("dispatcher")
    last = talk.append("dispatcher", "job_master/j", "job_master.Anything", speaks_as=1)
    talk.append("job_master/j", "client", "client.Anything", cause=last)


def a_decision_was_made_before_its_time(talk: LogBuilder) -> None:
    talk.append("job_master/j", "client", "client.Anything", at=len(talk.events))


def a_leader_has_not_read_that_it_leads(talk: LogBuilder) -> None:
    claim = talk.lead("dispatcher")
    talk.append("dispatcher", "client/me", "client.Anything", at=claim - 1)


def a_job_is_led_by_one_who_has_not_read_so(talk: LogBuilder) -> None:
    claim = talk.lead("job_master/j")
    talk.append("job_master/j", "client", "client.Anything", at=claim - 1)


def somebody_leads_whom_the_log_does_not_name(talk: LogBuilder) -> None:
    talk.append("dispatcher", "client/me", "client.Anything", speaks_as=99)


def a_job_speaks_before_it_has_begun(talk: LogBuilder) -> None:
    talk.append("job_master/k", "client", "client.Anything")


def a_farewell_has_other_words(talk: LogBuilder) -> None:
    te = "task_executor/te-1"
    body = {"job_id": "j", "resource_id": "te-1", "reason": "bye"}
    talk.append(te, "job_master/j", "job_master.DisconnectTaskManager", **body)


def a_job_master_stops_with_other_words(talk: LogBuilder) -> None:
    body = {"job_id": "j", "reason": "Stopping JobMaster for job Other(j)."}
    talk.append("job_master/j", "task_executor/te-2", "task_executor.DisconnectJobManager", **body)


def a_job_master_parts_before_it_frees(talk: LogBuilder) -> None:
    talk.report("a0", "FINISHED", "te-1")
    talk.part("te-1")


def a_task_tells_what_it_has_counted_before_it_ends(talk: LogBuilder) -> None:
    talk.report("a0", "RUNNING", "te-1", counts={"n": 1})


def a_task_has_counted_what_is_no_number(talk: LogBuilder) -> None:
    talk.report("a0", "FINISHED", "te-1", counts={"n": float("inf")})


def a_job_has_counted_too_little(talk: LogBuilder) -> None:
    talk.report("a0", "FAILED", "te-1", counts={"n": 2})
    talk.task("a1", "A", "te-1", number=1)
    talk.report("a1", "FINISHED", "te-1", counts={"n": 5})
    talk.end(counts={"n": 2})


def a_job_has_counted_what_attempts_before_had_counted_twice(talk: LogBuilder) -> None:
    talk.report("a0", "FAILED", "te-1", counts={"n": 2})
    talk.task("a1", "A", "te-1", number=1)
    talk.report("a1", "FINISHED", "te-1", counts={"n": 5})
    talk.end(counts={"n": 7})


def a_job_has_forgotten_what_it_counted(talk: LogBuilder) -> None:
    talk.report("a0", "FINISHED", "te-1", counts={"n": 5})
    talk.end()


def a_client_is_told_other_counts(talk: LogBuilder) -> None:
    talk.append(
        "dispatcher", "client/me", "client.JobFinished", job_id="j", status="FINISHED", accumulators={"n": 1}
    )


BAD: dict[Callable[[LogBuilder], None], str] = {
    a_leader_has_not_read_that_it_leads: "by one who had not read that this begins at",
    a_job_is_led_by_one_who_has_not_read_so: "by one who had not read that this begins at",
    somebody_leads_whom_the_log_does_not_name: "under epoch 99, which nobody ever had",
    a_job_speaks_before_it_has_begun: "before the job has begun",
    a_slot_is_given_twice: "slot te-1/0 is given to allocation B of job k while allocation A of job j holds it since",
    an_allocation_is_requested_for_two_jobs: "allocation A is requested for job k and for job j",
    an_allocation_is_taken_at_two_task_executors: "job j takes allocation A at te-2 and has it at te-1",
    a_task_executor_speaks_of_the_slot_of_another: "task_executor/te-2 speaks of slot te-1/1",
    a_slot_is_leaked: "slot te-1/0 is held for allocation A of job j, which has ended",
    a_slot_is_held_that_nobody_has_taken: "slot te-2/0 is held for allocation B of job j, which has not taken it",
    a_slot_is_taken_that_nobody_holds: "has taken allocation B at te-2, which holds no slot for it",
    an_attempt_is_submitted_while_another_runs: "attempt 1 of j/v/0 at te-2 is submitted while attempt 0",
    an_attempt_is_submitted_twice: "attempt 0 of j/v/0 at te-1 is submitted again",
    attempts_are_not_counted_by_one: "attempt 2 of j/v/0 at te-1 is submitted where attempt 1 would be next",
    a_first_attempt_is_not_the_zeroth: "attempt 1 of j/w/0 at te-1 is submitted where attempt 0 would be next",
    an_attempt_is_submitted_into_a_slot_that_is_not_there: "into allocation B, which its job has not taken there",
    two_subtasks_of_a_vertex_share_a_slot: "shares its slot with attempt 0 of j/v/0 at te-1, of the same vertex",
    a_task_state_follows_the_end: "attempt 0 of j/v/0 at te-1 is reported RUNNING after it was FINISHED",
    a_task_runs_twice: "attempt 0 of j/v/0 at te-1 is reported RUNNING while it was RUNNING",
    a_task_is_reported_by_another: "task_executor/te-2 reports FINISHED of attempt 0 of j/v/0 at te-1",
    a_task_is_reported_that_was_never_submitted: "reports RUNNING of Execution zzz, which was never submitted",
    a_deployment_is_never_whole: "does not run but is DEPLOYING (1 of its deployment's 2 tasks were submitted)",
    a_job_ends_with_a_task_that_runs: "attempt 0 of j/v/0 at te-1 has not ended, but its job has",
    a_task_executor_parts_before_its_slots_are_free: "but did not say that te-1/0 is free",
    a_task_executor_parts_while_a_task_runs: "has no more slots, but attempt 0 of j/v/0 at te-1 runs",
    a_registration_is_not_answered: "was not answered by resource_manager",
    a_job_master_is_not_registered: "the registration of job k of offset",
    a_slot_request_is_forgotten: "the request for slot B of job j of offset",
    a_task_executor_does_not_answer_a_slot_request: "was not answered by task_executor/te-2",
    an_offer_is_not_answered: "the offer of slot 0 (B) to job j of offset",
    a_task_is_not_acknowledged: "the submission of task b0 of offset",
    a_task_is_not_cancelled: "the cancellation of task a0 of offset",
    a_submission_is_not_answered: "the submission of job k of offset",
    a_request_to_cancel_is_not_answered: "the request to cancel job j of offset",
    a_job_is_not_cancelled: "the cancellation of job j of offset",
    a_connection_is_not_answered: "the registration at job j of offset",
    a_status_follows_that_can_not: "job j becomes FAILED after RUNNING",
    a_status_follows_an_end: "job j becomes RUNNING after FINISHED",
    a_job_ends_otherwise_than_was_said: "job j ends as CANCELED, but its last status was RUNNING",
    a_client_is_told_another_end: "a client is told that job j is FAILED, but it is None",
    the_dispatcher_is_not_told: "job j is FINISHED, but the Dispatcher was not told",
    the_client_is_not_told: "job j has ended as FINISHED, but its client was not told",
    a_job_is_started_twice: "job j is started again",
    a_cause_is_not_there_yet: "which does not come before it",
    a_cause_had_not_been_read: "but was decided at",
    a_cause_is_none_of_its_business: "which dispatcher said to client/me",
    a_cause_was_fenced: "which no reader takes notice of",
    a_decision_was_made_before_its_time: "which it does not come after",
    a_farewell_has_other_words: "instead of 'TaskExecutor task_executor/te-1 has no more allocated slots for job j.'",
    a_job_master_stops_with_other_words: "instead of 'Stopping JobMaster for job Job(j).'",
    a_task_tells_what_it_has_counted_before_it_ends: "tells what a0 has counted, though it is RUNNING",
    a_task_has_counted_what_is_no_number: "tells that a0 has counted inf of n",
    a_job_has_counted_too_little: "job j has counted 2 of n, its tasks 5",
    a_job_has_counted_what_attempts_before_had_counted_twice: "job j has counted 7 of n, its tasks 5",
    a_job_has_forgotten_what_it_counted: "job j has counted [], its tasks ['n']",
    a_client_is_told_other_counts: "a client is told that job j has counted {'n': 1}, but it is {}",
    a_job_master_parts_before_it_frees: "disconnects from task_executor/te-1 before it frees allocation A",
}


@pytest.mark.parametrize("spoil", BAD, ids=lambda each: each.__name__)
def test_what_is_wrong_is_found_and_said(spoil: Callable[[LogBuilder], None]) -> None:
    talk = running()
    spoil(talk)
    (found, *more) = [each for each in said(talk) if BAD[spoil] in each]
    assert found.startswith("offset ")
    assert not more


SHOWS_AT_THE_END = {
    each for each, words in BAD.items() if "of offset" in words or "was not answered" in words
} | {
    a_slot_is_leaked,
    a_slot_is_held_that_nobody_has_taken,
    a_slot_is_taken_that_nobody_holds,
    a_deployment_is_never_whole,
    a_job_ends_with_a_task_that_runs,
    the_dispatcher_is_not_told,
    the_client_is_not_told,
}


@pytest.mark.parametrize("spoil", BAD, ids=lambda each: each.__name__)
def test_what_may_still_be_mended_is_wrong_only_at_the_end(spoil: Callable[[LogBuilder], None]) -> None:
    talk = running()
    spoil(talk)
    found = [each for each in said(talk, settled=False) if BAD[spoil] in each]
    assert bool(found) == (spoil not in SHOWS_AT_THE_END)


def test_a_job_is_led_with_the_dispatcher_until_it_is_claimed() -> None:
    talk = running()
    talk.lead("dispatcher")
    status = {"job_id": "j", "status": "FAILED"}
    talk.append("job_master/j", "client", "client.JobStatusChanged", speaks_as=1, **status)
    assert said(talk) == []
    talk.lead("job_master/j")
    talk.append("job_master/j", "client", "client.JobStatusChanged", speaks_as=2, **status)
    talk.lead("dispatcher")
    assert said(talk) == []
    talk.append("job_master/j", "client", "client.Anything")
    assert said(talk) == []


def test_what_a_deposed_leader_says_is_not_held_against_it() -> None:
    talk = running()
    talk.lead("resource_manager")
    status = {"role": "dispatcher", "epoch": 9}
    talk.append("resource_manager", "*", "everyone.LeaderElected", **status)
    talk.lead("job_master/j")
    talk.append("job_master/j", "client", "client.JobStatusChanged", speaks_as=1, job_id="j", status="FAILED")
    assert said(talk) == []


def test_an_event_that_is_there_twice_counts_once() -> None:
    talk = finished()
    again = next(each for each in talk.events if each.name == "job_master.UpdateTaskExecutionState")
    fields = {name: getattr(again, name) for name in Event.__slots__} | {"offset": len(talk.events)}
    talk.events.append(Event(**fields))
    assert said(talk) == []


def test_the_next_attempt_may_follow_a_loss() -> None:
    talk = running()
    talk.lose("te-1")
    talk.slot("B", "te-2")
    talk.task("a1", "B", "te-2", number=1)
    assert said(talk) == []


def test_the_next_attempt_may_follow_a_failed_slot() -> None:
    talk = running()
    talk.fail_slot("A", "te-1")
    talk.freed("A", "te-1")
    talk.slot("B", "te-2")
    talk.task("a1", "B", "te-2", number=1)
    assert said(talk) == []


def test_a_task_that_was_submitted_into_a_slot_just_lost_was_never_live() -> None:
    talk = running()
    before = len(talk.events) - 1
    talk.lose("te-1")
    talk.submit("b0", "A", "te-1", vertex_id="w", at=before)
    talk.slot("B", "te-2")
    talk.task("a1", "B", "te-2", number=1)
    talk.task("b1", "B", "te-2", vertex_id="w", number=1)
    assert said(talk) == []


def test_what_a_task_executor_says_before_it_reads_of_its_loss_counts_for_nothing() -> None:
    talk = running()
    before = len(talk.events) - 1
    talk.lose("te-1")
    slot = slot_id("te-1", 0)
    te = "task_executor/te-1"
    talk.append(
        te,
        "resource_manager",
        "resource_manager.SlotRequestAccepted",
        at=before,
        allocation_id="A",
        slot_id=slot,
    )
    talk.report("a0", "FINISHED", "te-1", at=before)
    talk.slot("B", "te-2")
    talk.task("a1", "B", "te-2", number=1)
    assert said(talk) == []


def test_a_task_executor_that_restarts_goes_on_and_says_so() -> None:
    talk = running()
    talk.register("te-1", slots=0)
    talk.report("a0", "RUNNING", "te-1")
    assert said(talk) == []


def test_co_located_subtasks_are_in_one_slot() -> None:
    talk = LogBuilder().cluster("te-1", "te-2")
    talk.start("j", vertex("v", co_location="x"), vertex("w", co_location="x"))
    talk.slot("A", "te-1")
    talk.slot("B", "te-2")
    talk.task("a0", "A", "te-1")
    talk.task("b0", "B", "te-2", vertex_id="w")
    talk.status("RUNNING")
    (found,) = said(talk)
    assert "attempt 0 of j/w/0 at te-2 is not in the slot of attempt 0 of j/v/0 at te-1" in found


def test_subtasks_without_a_group_are_alone_in_their_slots() -> None:
    talk = LogBuilder().cluster("te-1")
    talk.start("j", vertex("v", ""), vertex("w", ""))
    talk.slot("A", "te-1")
    talk.task("a0", "A", "te-1")
    talk.task("b0", "A", "te-1", vertex_id="w")
    talk.status("RUNNING")
    (found,) = said(talk)
    assert "which is in another group" in found


def test_what_a_job_has_counted_is_what_the_last_attempts_say() -> None:
    talk = running()
    talk.task("b0", "A", "te-1", vertex_id="w")
    talk.report("a0", "FAILED", "te-1", counts={"n": 2, "m": 1})
    talk.task("a1", "A", "te-1", number=1)
    talk.report("a1", "FINISHED", "te-1", counts={"n": 5})
    talk.report("b0", "FINISHED", "te-1", counts={"n": 0.5})
    talk.free("A", "te-1")
    talk.part("te-1", freed=["A"])
    talk.end(counts={"n": 5.5, "m": 1})
    assert said(talk) == []


def test_a_suspended_job_goes_on_where_it_was() -> None:
    talk = running()
    talk.append("dispatcher", "job_master/j", "job_master.SuspendJob", job_id="j", reason="later")
    talk.report("a0", "CANCELED", "te-1")
    talk.free("A", "te-1")
    talk.part("te-1", freed=["A"])
    talk.end("SUSPENDED")
    assert said(talk) == []
    talk.append("dispatcher", "job_master/j", "job_master.ResumeJob", job_id="j")
    talk.status("CREATED")
    talk.slot("B", "te-2")
    talk.task("a1", "B", "te-2", number=1)
    talk.status("RUNNING")
    assert said(talk) == []


def test_a_dump_is_read_again(tmp_path: Path) -> None:
    events = finished().events
    path = tmp_path / "dump"
    path.write_text("\n".join(dump(events)), "utf-8")
    assert load(path.read_text("utf-8").splitlines()) == events


def test_the_checker_knows_every_event_by_the_fingerprint_that_the_services_write() -> None:
    known = {fingerprint: name for fingerprint, (name, _) in _by_fingerprint().items()}
    for name in EVENTS:
        assert known[avro.fingerprint(name)] == name


def test_the_checker_shares_no_code_with_the_roles() -> None:
    for path in Path(__file__).parent.glob("*.py"):
        if not path.name.startswith("test_"):
            assert "tailrace" not in [
                word.split(".")[0]
                for line in path.read_text("utf-8").splitlines()
                if line.lstrip().startswith(("import ", "from "))
                for word in line.split()[1:2]
            ]
