"""Requests for checkpoints and savepoints: the leader forwards or rejects each of them once."""

from __future__ import annotations

from itertools import product

import pytest
from msgspec.structs import replace

from tailrace.schemas import client, dispatcher, job_master
from tailrace.schemas.body import Body
from tailrace.schemas.types import EntryPoint, JobStatus, SnapshotType
from tailrace.services.core.role import IllegalEvent, OutgoingEvent
from tailrace.services.dispatcher.checkpoints import DisposeSavepoint
from tailrace.services.dispatcher.state import Phase

from ..simulated_cluster.cluster import graph
from .log_builder import CLIENT, OWN, Driver, in_phase, names

REQUESTS: list[tuple[Body, job_master.TriggerCheckpoint]] = [
    (
        dispatcher.TriggerCheckpoint(job_id="j"),
        job_master.TriggerCheckpoint(job_id="j", snapshot_type=SnapshotType.CHECKPOINT, requester=CLIENT),
    ),
    (
        dispatcher.TriggerSavepoint(job_id="j"),
        job_master.TriggerCheckpoint(job_id="j", snapshot_type=SnapshotType.SAVEPOINT, requester=CLIENT),
    ),
    (
        dispatcher.TriggerSavepoint(job_id="j", directory="/data/../saved/"),
        job_master.TriggerCheckpoint(
            job_id="j", snapshot_type=SnapshotType.SAVEPOINT, requester=CLIENT, directory="file:///saved"
        ),
    ),
    (
        dispatcher.StopWithSavepoint(job_id="j", directory="s3://bucket/saved", drain=True),
        job_master.TriggerCheckpoint(
            job_id="j",
            snapshot_type=SnapshotType.SAVEPOINT,
            requester=CLIENT,
            directory="s3://bucket/saved",
            stops=True,
            drains=True,
        ),
    ),
]
REFUSED_IN = {
    Phase.BUILDING: "is not started yet: ask again when it runs",
    Phase.BUILD_FAILED: "is not started yet: ask again when it runs",
    Phase.CANCELLING: "is being cancelled",
    Phase.SUSPENDING: "is suspended: ask again when it runs",
    Phase.SUSPENDED: "is suspended: ask again when it runs",
    Phase.TERMINATED: "has ended already: FINISHED",
    Phase.ENDED: "has ended already: FINISHED",
}


@pytest.mark.parametrize(("request_", "passed_on"), REQUESTS)
def test_request_is_forwarded_once_to_job_master_with_request_as_cause(
    request_: Body, passed_on: job_master.TriggerCheckpoint
) -> None:
    driver = in_phase(Phase.RUNNING)
    offset = driver.receive(request_)
    assert driver.owed() == [OutgoingEvent("job_master/j", passed_on, offset)]
    driver.lead()
    assert driver.settle() == [passed_on]
    assert driver.settle() == []


@pytest.mark.parametrize(("phase", "asked"), list(product(Phase, range(len(REQUESTS)))))
def test_request_for_job_that_does_not_run_is_rejected_with_reason(phase: Phase, asked: int) -> None:
    driver = in_phase(phase)
    offset = driver.receive(REQUESTS[asked][0])
    if phase in (Phase.BUILT, Phase.ACCEPTED):
        # The job starts in this turn, and the request waits for that.
        assert offset not in {event.cause for event in driver.owed()}
        for event in driver.owed():
            driver.send(event)
    events = [event for event in driver.owed() if event.cause == offset]
    if phase in REFUSED_IN:
        failed = client.CheckpointFailed(job_id="j", reason=f"job j {REFUSED_IN[phase]}")
        assert events == [OutgoingEvent(CLIENT, failed, offset)]
    else:
        assert [event.body for event in events] == [REQUESTS[asked][1]]
    driver.settle()
    assert not driver.state.requests


@pytest.mark.parametrize("suspend", [True, False])
def test_request_after_shutdown_is_rejected(suspend: bool) -> None:
    driver = in_phase(Phase.RUNNING)
    driver.shut_down(suspend=suspend)
    driver.receive(REQUESTS[0][0])
    (failed,) = (event for event in driver.settle() if isinstance(event, client.CheckpointFailed))
    assert ("suspended" if suspend else "cancelled") in failed.reason


def test_request_for_unknown_job_is_rejected() -> None:
    driver = Driver()
    driver.receive(dispatcher.TriggerCheckpoint(job_id="nobody"))
    (refused,) = driver.settle()
    assert refused == client.CheckpointFailed(
        job_id="nobody", reason="job nobody is unknown: `tailrace list` shows those there are"
    )


@pytest.mark.parametrize("directory", ["saved", "", "s3://", "x" * 5_000, "/a\x00b"])
def test_relative_directory_is_rejected_in_one_line(directory: str) -> None:
    driver = in_phase(Phase.RUNNING)
    driver.receive(dispatcher.TriggerSavepoint(job_id="j", directory=directory))
    driver.receive(dispatcher.SubmitJob(job_id="k", job_graph=graph(), savepoint_path=directory))
    driver.receive(dispatcher.DisposeSavepoint(path=directory))
    failed, rejected, event = driver.settle()
    assert isinstance(failed, client.CheckpointFailed)
    assert isinstance(rejected, client.JobRejected)
    assert isinstance(event, client.SavepointDisposed)
    for reason in (failed.reason, rejected.reason, event.failure or ""):
        assert reason.endswith(
            "is not possible: give a URI such as s3://bucket/directory, or an absolute path"
        )
        assert len(reason) < 300
        assert reason.isprintable()
    assert driver.role.instructions(driver.state) == []


def test_request_during_job_termination_is_answered_without_job_master() -> None:
    driver = in_phase(Phase.RUNNING)
    request = driver.receive(dispatcher.TriggerSavepoint(job_id="j"), "client/other")
    driver.reach(JobStatus.FINISHED)
    events = driver.owed()
    failed = client.CheckpointFailed(job_id="j", reason="job j has ended already: FINISHED")
    assert OutgoingEvent("client/other", failed, request) in events
    assert "TriggerCheckpoint" not in names([event.body for event in events])
    driver.settle()
    assert driver.settle() == []


def test_request_is_answered_once_if_job_ends_before_request_is_in_log() -> None:
    driver = in_phase(Phase.RUNNING)
    driver.receive(dispatcher.TriggerSavepoint(job_id="j"), "client/other")
    decided = driver.owed()
    driver.reach(JobStatus.FINISHED)
    for event in decided:
        driver.send(event)
    assert "CheckpointFailed" not in names(driver.settle())


def test_job_starts_from_given_or_configured_savepoint() -> None:
    recovery = {
        "execution.state-recovery.path": "/configured",
        "execution.state-recovery.ignore-unclaimed-state": "true",
    }
    driver = Driver()
    configured = replace(graph(), configuration=recovery)
    driver.receive(dispatcher.SubmitJob(job_id="a", job_graph=graph()))
    driver.receive(dispatcher.SubmitJob(job_id="b", job_graph=graph(), savepoint_path="/given/"))
    driver.receive(dispatcher.SubmitJob(job_id="c", job_graph=configured))
    driver.receive(dispatcher.SubmitJob(job_id="d", job_graph=configured, savepoint_path="hdfs://n/given"))
    driver.receive(
        dispatcher.SubmitJob(
            job_id="e", entry_point=EntryPoint(target="a:b", arguments=()), savepoint_path="/given"
        )
    )
    events = driver.settle()
    driver.built("e")
    started = {
        event.job_id: (event.savepoint_path, event.allow_non_restored_state)
        for event in [*events, *driver.settle()]
        if isinstance(event, job_master.StartJob)
    }
    assert started == {
        "a": (None, False),
        "b": ("file:///given", False),
        "c": ("file:///configured", True),
        "d": ("hdfs://n/given", True),
        "e": ("file:///given", False),
    }


def disposed(driver: Driver, request: int, failure: str | None = None) -> None:
    driver.receive(
        dispatcher.SavepointDisposed(path="file:///s", request=request, failure=failure, left=("x",)), OWN
    )


@pytest.mark.parametrize("failure", [None, "it is not a savepoint"])
def test_shell_of_leader_deletes_savepoint_and_client_is_answered(
    failure: str | None,
) -> None:
    driver = Driver()
    request = driver.receive(dispatcher.DisposeSavepoint(path="/s"))
    instruction = DisposeSavepoint("file:///s", request)
    assert driver.role.instructions(driver.state) == []
    assert driver.settle() == [dispatcher.SavepointDisposalAccepted(path="file:///s", request=request)]
    assert driver.role.instructions(driver.state) == [instruction]
    driver.lead()
    assert driver.role.instructions(driver.state) == [instruction]
    disposed(driver, request, failure)
    assert driver.role.instructions(driver.state) == []
    answer = client.SavepointDisposed(path="file:///s", failure=failure, left=("x",))
    assert driver.owed() == [OutgoingEvent(CLIENT, answer, request)]
    with pytest.raises(IllegalEvent):
        disposed(driver, request)
    driver.settle()
    with pytest.raises(IllegalEvent):
        disposed(driver, request)
    assert driver.settle() == []


@pytest.mark.parametrize("status", [JobStatus.SUSPENDED, JobStatus.FINISHED])
def test_savepoint_that_job_started_from_is_kept_until_job_has_ended(status: JobStatus) -> None:
    driver = Driver()
    driver.receive(dispatcher.SubmitJob(job_id="j", job_graph=graph(), savepoint_path="/s"))
    driver.settle()
    driver.receive(dispatcher.DisposeSavepoint(path="/s/"))
    why = "job j started from it and may need it again: end the job first"
    assert driver.settle() == [client.SavepointDisposed(path="file:///s", failure=why)]
    driver.receive(dispatcher.DisposeSavepoint(path="/s/_metadata"))
    assert driver.settle() == [client.SavepointDisposed(path="file:///s", failure=why)]
    if status is JobStatus.SUSPENDED:
        driver.shut_down(suspend=True)
        driver.settle()
    driver.reach(status)
    driver.settle()
    driver.receive(dispatcher.DisposeSavepoint(path="/s"))
    driver.settle()
    assert len(driver.role.instructions(driver.state)) == (0 if status is JobStatus.SUSPENDED else 1)
