"""The laws of requests: one verdict on each, which the log has, whoever takes it and however many are read at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from tailrace.schemas import client, dispatcher, job_master
from tailrace.schemas.body import Body
from tailrace.schemas.types import EntryPoint, JobStatus, Origin
from tailrace.services.core.role import OutgoingEvent
from tailrace.services.dispatcher import submission_validation

from ..simulated_cluster.cluster import graph
from .log_builder import CLIENT, OWN, Driver, names

PROGRAM = EntryPoint(target="a:b", arguments=())
JOBS = st.sampled_from(["a", "b"])
REQUESTS: st.SearchStrategy[Body] = st.one_of(
    st.builds(dispatcher.SubmitJob, job_id=JOBS, job_graph=st.just(graph())),
    st.builds(
        dispatcher.SubmitJob,
        job_id=JOBS,
        job_graph=st.just(graph()),
        savepoint_path=st.sampled_from(["/s", "s"]),
    ),
    st.builds(dispatcher.SubmitJob, job_id=JOBS, job_graph=st.just(replace(graph(), vertices=()))),
    st.builds(dispatcher.SubmitJob, job_id=JOBS, entry_point=st.just(PROGRAM)),
    st.builds(dispatcher.CancelJob, job_id=JOBS),
    st.builds(dispatcher.TriggerCheckpoint, job_id=JOBS),
    st.builds(dispatcher.StopWithSavepoint, job_id=JOBS, directory=st.sampled_from([None, "/s", "s"])),
    st.builds(dispatcher.DisposeSavepoint, path=st.sampled_from(["/s", "s"])),
)
SHUTDOWNS = st.builds(dispatcher.ShutDownCluster, reason=st.just("r"), suspend=st.booleans())
CONVERSATIONS = st.lists(st.one_of(REQUESTS, REQUESTS, REQUESTS, SHUTDOWNS), max_size=12)
VERDICTS: dict[type[Body], tuple[type[Body], ...]] = {
    dispatcher.SubmitJob: (client.JobAccepted, client.JobRejected, dispatcher.ProgramAccepted),
    dispatcher.CancelJob: (job_master.CancelJob, client.CancelJobRejected),
    dispatcher.TriggerCheckpoint: (job_master.TriggerCheckpoint, client.CheckpointFailed),
    dispatcher.StopWithSavepoint: (job_master.TriggerCheckpoint, client.CheckpointFailed),
    dispatcher.DisposeSavepoint: (dispatcher.SavepointDisposalAccepted, client.SavepointDisposed),
}


SUBMIT = dispatcher.SubmitJob(job_id="a", job_graph=graph())
SUBMIT_PROGRAM = dispatcher.SubmitJob(job_id="a", entry_point=PROGRAM)
RESTORE = dispatcher.SubmitJob(job_id="a", job_graph=graph(), savepoint_path="/s/_metadata")
CANCEL = dispatcher.CancelJob(job_id="a")
DISPOSE = dispatcher.DisposeSavepoint(path="/s")


class Conversation:
    """A Dispatcher that records the verdicts on requests."""

    def __init__(self) -> None:
        self.driver = Driver()
        self.requests: dict[int, Body] = {}
        """Offset -> request."""
        self.verdicts: dict[int, str] = {}
        """Offset of the request -> the event of its verdict."""

    def ask(self, body: Body) -> None:
        self.requests[self.driver.receive(body)] = body

    def send(self, owed: Sequence[OutgoingEvent]) -> None:
        for event in owed:
            cause = event.cause
            assert cause is not None
            if isinstance(event.body, VERDICTS.get(type(self.requests.get(cause)), ())):
                assert cause not in self.verdicts
                self.verdicts[cause] = type(event.body).__name__
            self.driver.send(event)

    def settle(self) -> None:
        for _ in range(100):
            owed = self.driver.owed()
            if not owed:
                return
            self.send(owed)
        pytest.fail("it talks without end")

    def in_order(self) -> list[str | None]:
        """The verdicts in the order of the requests."""
        return [self.verdicts.get(offset) for offset in self.requests]


@given(bodies=CONVERSATIONS)
@example(bodies=[SUBMIT_PROGRAM, CANCEL, SUBMIT])
@example(bodies=[SUBMIT_PROGRAM, CANCEL, SUBMIT, CANCEL])
@example(bodies=[SUBMIT_PROGRAM, CANCEL, RESTORE, CANCEL, DISPOSE])
@example(bodies=[SUBMIT, RESTORE, DISPOSE, replace(RESTORE, job_id="b")])
def test_verdicts_are_the_same_one_by_one_and_all_at_once(bodies: list[Body]) -> None:
    """Except that a checkpoint may be requested too late: the cluster is shut down before its verdict."""
    single, batch = Conversation(), Conversation()
    for body in bodies:
        single.ask(body)
        single.settle()
        batch.ask(body)
    batch.settle()
    late = any(isinstance(body, dispatcher.ShutDownCluster) for body in bodies)
    for body, one, other in zip(bodies, batch.in_order(), single.in_order(), strict=True):
        is_snapshot = isinstance(body, dispatcher.TriggerCheckpoint | dispatcher.StopWithSavepoint)
        assert one == other or (is_snapshot and late and one == "CheckpointFailed")


@given(bodies=CONVERSATIONS, data=st.data())
def test_every_request_gets_one_verdict_though_leaders_die(bodies: list[Body], data: st.DataObject) -> None:
    talk = Conversation()
    for body in bodies:
        talk.ask(body)
        owed = talk.driver.owed()
        talk.send(owed[: data.draw(st.integers(0, len(owed)))])
        if data.draw(st.booleans()):
            talk.driver.lead()
    talk.settle()
    shutdowns = {
        offset for offset, body in talk.requests.items() if isinstance(body, dispatcher.ShutDownCluster)
    }
    assert talk.verdicts.keys() == talk.requests.keys() - shutdowns
    assert not talk.driver.state.requests


@given(bodies=CONVERSATIONS)
def test_request_changes_no_job_before_its_verdict(bodies: list[Body]) -> None:
    talk = Conversation()
    for body in bodies:
        if not isinstance(body, dispatcher.ShutDownCluster):
            before = talk.driver.state
            talk.ask(body)
            after = talk.driver.state
            assert replace(after, requests=before.requests) == before
            assert after.requests.delete(talk.driver.offset) == before.requests
            talk.settle()


def test_submission_is_validated_once_and_by_leader_only(monkeypatch: pytest.MonkeyPatch) -> None:
    validated: list[Any] = []

    def validate(wanted: Any) -> list[str]:
        validated.append(wanted)
        return []

    monkeypatch.setattr(submission_validation, "validate", validate)
    driver = Driver()
    for job_id in "abc":
        driver.submit(job_id)
    assert len(validated) == 0
    owed = driver.owed()
    # The small verdicts come first: a leader that can't append all events of a turn validates nothing again.
    assert names([event.body for event in owed]) == ["JobAccepted"] * 3 + ["StartJob"] * 3
    for event in owed[:4]:
        driver.send(event)
    driver.lead()
    assert names(driver.settle()) == ["StartJob"] * 2
    assert len(validated) == 3


def test_fault_of_validation_rejects_one_submission(monkeypatch: pytest.MonkeyPatch) -> None:
    def validate(wanted: Any) -> list[str]:
        return [] if wanted.name == "good" else 1 / 0  # type: ignore[return-value]

    monkeypatch.setattr(submission_validation, "validate", validate)
    driver = Driver()
    driver.submit("a")
    driver.submit("b", replace(graph(), name="good"))
    rejected, accepted, _ = driver.settle()
    assert isinstance(rejected, client.JobRejected)
    assert rejected.reason == "it cannot be checked: ZeroDivisionError: division by zero"
    assert accepted == client.JobAccepted(job_id="b", name="good")


def test_cancellation_before_verdict_cancels_accepted_job() -> None:
    driver = Driver()
    driver.submit()
    driver.cancel()
    assert names(driver.settle()) == ["JobAccepted", "StartJob", "CancelJob"]
    driver.reach(JobStatus.CANCELED)
    assert driver.settle() == [client.JobFinished(job_id="j", status=JobStatus.CANCELED)]


@pytest.mark.parametrize("suspend", [True, False])
def test_shutdown_before_verdict_accepts_job_and_ends_it(suspend: bool) -> None:
    driver = Driver()
    driver.submit("before")
    driver.shut_down(suspend=suspend)
    driver.submit("after")
    assert names(driver.settle()) == [
        "JobAccepted",
        "JobRejected",
        "StartJob",
        "SuspendJob" if suspend else "CancelJob",
    ]
    driver.reach(JobStatus.SUSPENDED if suspend else JobStatus.CANCELED, "before")
    assert names(driver.settle())[-1] == "ShutDownCluster"


def test_second_submission_with_id_of_rejected_one_is_accepted() -> None:
    driver = Driver()
    driver.submit("j", replace(graph(), vertices=()))
    driver.submit("j")
    driver.submit("j")
    assert names(driver.settle()) == ["JobRejected", "JobAccepted", "StartJob", "JobRejected"]


def test_refused_submission_is_answered_once() -> None:
    driver = Driver()
    source = Origin(topic="t", partition=0, offset=3)
    body = dispatcher.SubmissionRefused(source=source, reason="garbage", client=CLIENT, job_id="j")
    offset = driver.receive(body, OWN)
    assert driver.owed() == [OutgoingEvent(CLIENT, client.JobRejected(job_id="j", reason="garbage"), offset)]
    assert names(driver.settle()) == ["JobRejected"]


def test_verdict_on_requests_costs_what_is_owed() -> None:
    driver = Driver()
    for number in range(200):
        driver.submit(f"j{number}")
    driver.settle()
    assert driver.owed() == []
    driver.cancel("j7")
    assert names([event.body for event in driver.owed()]) == ["CancelJob"]
