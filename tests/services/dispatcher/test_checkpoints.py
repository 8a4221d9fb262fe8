"""Requests for checkpoints and savepoints: passed on once, or refused once, by whoever leads."""

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
from .log_builder import CLIENT, OWN, Talk, in_phase, names

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
    Phase.ADMITTED: "is not started yet: ask again when it runs",
    Phase.ACCEPTED: "is not started yet: ask again when it runs",
    Phase.CANCEL_REQUESTED: "is being cancelled",
    Phase.SUSPEND_REQUESTED: "is suspended: ask again when it runs",
    Phase.SUSPENDED: "is suspended: ask again when it runs",
    Phase.RESUME_REQUESTED: "is suspended: ask again when it runs",
    Phase.TERMINATED: "has ended already: FINISHED",
    Phase.ENDED: "has ended already: FINISHED",
}


@pytest.mark.parametrize(("request_", "passed_on"), REQUESTS)
def test_a_request_is_passed_on_to_the_job_master_once_with_the_request_as_its_cause(
    request_: Body, passed_on: job_master.TriggerCheckpoint
) -> None:
    talk = in_phase(Phase.RUNNING)
    offset = talk.hear(request_)
    assert talk.owed() == [OutgoingEvent("job_master/j", passed_on, offset)]
    talk.lead()
    assert talk.settle() == [passed_on]
    assert talk.settle() == []


@pytest.mark.parametrize(("phase", "asked"), list(product(Phase, range(len(REQUESTS)))))
def test_a_job_that_does_not_run_is_told_of_with_the_reason(phase: Phase, asked: int) -> None:
    talk = in_phase(phase)
    before = talk.settle() if phase is Phase.BUILDING else []
    assert before == []
    offset = talk.hear(REQUESTS[asked][0])
    said = [each for each in talk.owed() if each.cause == offset]
    if phase is Phase.RUNNING:
        assert names([each.body for each in said]) == ["TriggerCheckpoint"]
        return
    reason = f"job j {REFUSED_IN[phase]}"
    assert said == [OutgoingEvent(CLIENT, client.CheckpointFailed(job_id="j", reason=reason), offset)]
    talk.settle()
    assert offset not in talk.state.refusals


def test_a_job_that_nobody_knows_is_said_to_be_unknown() -> None:
    talk = Talk()
    talk.hear(dispatcher.TriggerCheckpoint(job_id="nobody"))
    (refused,) = talk.settle()
    assert refused == client.CheckpointFailed(
        job_id="nobody", reason="job nobody is unknown: `tailrace list` shows those there are"
    )


@pytest.mark.parametrize("directory", ["saved", "", "s3://", "x" * 5_000, "/a\x00b"])
def test_a_directory_that_would_be_another_one_elsewhere_is_refused_in_one_line(directory: str) -> None:
    talk = in_phase(Phase.RUNNING)
    talk.hear(dispatcher.TriggerSavepoint(job_id="j", directory=directory))
    talk.hear(dispatcher.SubmitJob(job_id="k", job_graph=graph(), savepoint_path=directory))
    talk.hear(dispatcher.DisposeSavepoint(path=directory))
    failed, rejected, kept = talk.settle()
    assert isinstance(failed, client.CheckpointFailed)
    assert isinstance(rejected, client.JobRejected)
    assert isinstance(kept, client.SavepointDisposed)
    for reason in (failed.reason, rejected.reason, kept.failure or ""):
        assert reason.endswith(
            "is not possible: give a URI such as s3://bucket/directory, or an absolute path"
        )
        assert len(reason) < 300
        assert reason.isprintable()
    assert talk.role.instructions(talk.state) == []


def test_who_asks_while_the_job_ends_is_answered_though_the_job_master_never_heard_of_it() -> None:
    talk = in_phase(Phase.RUNNING)
    asked = talk.hear(dispatcher.TriggerSavepoint(job_id="j"), "client/other")
    talk.reach(JobStatus.FINISHED)
    said = talk.owed()
    failed = client.CheckpointFailed(job_id="j", reason="job j has ended already: FINISHED")
    assert OutgoingEvent("client/other", failed, asked) in said
    assert "TriggerCheckpoint" not in names([each.body for each in said])
    talk.settle()
    assert talk.settle() == []


def test_who_asks_is_answered_once_though_the_job_ends_before_the_request_is_in_the_log() -> None:
    talk = in_phase(Phase.RUNNING)
    talk.hear(dispatcher.TriggerSavepoint(job_id="j"), "client/other")
    decided = talk.owed()
    talk.reach(JobStatus.FINISHED)
    for each in decided:
        talk.say(each)
    assert "CheckpointFailed" not in names(talk.settle())


def test_a_job_starts_with_its_savepoint_given_or_configured() -> None:
    recovery = {
        "execution.state-recovery.path": "/configured",
        "execution.state-recovery.ignore-unclaimed-state": "true",
    }
    talk = Talk()
    configured = replace(graph(), configuration=recovery)
    talk.hear(dispatcher.SubmitJob(job_id="a", job_graph=graph()))
    talk.hear(dispatcher.SubmitJob(job_id="b", job_graph=graph(), savepoint_path="/given/"))
    talk.hear(dispatcher.SubmitJob(job_id="c", job_graph=configured))
    talk.hear(dispatcher.SubmitJob(job_id="d", job_graph=configured, savepoint_path="hdfs://n/given"))
    talk.hear(
        dispatcher.SubmitJob(
            job_id="e", entry_point=EntryPoint(target="a:b", arguments=()), savepoint_path="/given"
        )
    )
    talk.hear(dispatcher.JobGraphBuilt(job_id="e", job_graph=graph()), OWN, OWN)
    started = {
        each.job_id: (each.savepoint_path, each.allow_non_restored_state)
        for each in talk.settle()
        if isinstance(each, job_master.StartJob)
    }
    assert started == {
        "a": (None, False),
        "b": ("file:///given", False),
        "c": ("file:///configured", True),
        "d": ("hdfs://n/given", True),
        "e": ("file:///given", False),
    }


def disposed(talk: Talk, request: int, failure: str | None = None) -> None:
    talk.hear(
        dispatcher.SavepointDisposed(path="file:///s", request=request, failure=failure, left=("x",)), OWN
    )


@pytest.mark.parametrize("failure", [None, "it is no savepoint"])
def test_a_savepoint_is_deleted_by_the_shell_of_whoever_leads_and_the_client_is_told(
    failure: str | None,
) -> None:
    talk = Talk()
    asked = talk.hear(dispatcher.DisposeSavepoint(path="/s"))
    instruction = DisposeSavepoint("file:///s", asked)
    assert talk.role.instructions(talk.state) == [instruction]
    assert talk.settle() == []
    talk.lead()
    assert talk.role.instructions(talk.state) == [instruction]
    disposed(talk, asked, failure)
    assert talk.role.instructions(talk.state) == []
    answer = client.SavepointDisposed(path="file:///s", failure=failure, left=("x",))
    assert talk.owed() == [OutgoingEvent(CLIENT, answer, asked)]
    with pytest.raises(IllegalEvent):
        disposed(talk, asked)
    talk.settle()
    with pytest.raises(IllegalEvent):
        disposed(talk, asked)
    assert talk.settle() == []


@pytest.mark.parametrize("status", [JobStatus.SUSPENDED, JobStatus.FINISHED])
def test_a_savepoint_that_a_job_began_with_is_kept_until_the_job_has_ended(status: JobStatus) -> None:
    talk = Talk()
    talk.hear(dispatcher.SubmitJob(job_id="j", job_graph=graph(), savepoint_path="/s"))
    talk.settle()
    talk.hear(dispatcher.DisposeSavepoint(path="/s/"))
    why = "job j began with it and may need it again: end the job first"
    assert talk.settle() == [client.SavepointDisposed(path="file:///s", failure=why)]
    talk.hear(dispatcher.DisposeSavepoint(path="/s/_metadata"))
    assert talk.settle() == [client.SavepointDisposed(path="file:///s", failure=why)]
    if status is JobStatus.SUSPENDED:
        talk.shut_down(suspend=True)
        talk.settle()
    talk.reach(status)
    talk.settle()
    talk.hear(dispatcher.DisposeSavepoint(path="/s"))
    assert len(talk.role.instructions(talk.state)) == (0 if status is JobStatus.SUSPENDED else 1)
