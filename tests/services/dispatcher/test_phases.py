"""The phases of a job: their transitions, and the effect of each event in each phase."""

from __future__ import annotations

from itertools import product

import pytest

from tailrace.schemas import client, dispatcher, job_master
from tailrace.schemas.body import Body
from tailrace.schemas.types import JobStatus
from tailrace.services.core.role import IllegalEvent, IllegalTransition
from tailrace.services.dispatcher.index_validation import index_errors
from tailrace.services.dispatcher.state import TRANSITIONS, Job, Phase

from ..simulated_cluster.cluster import graph
from .log_builder import CLIENT, OWN, in_phase

JM = "job_master/j"
PAIRS = list(product(Phase, Phase))


@pytest.mark.parametrize(("before", "after"), PAIRS)
def test_phase_transitions_follow_table(before: Phase, after: Phase) -> None:
    job = Job("j", CLIENT, before, 1)
    if after in TRANSITIONS[before]:
        assert job.transition(after).phase is after
    else:
        with pytest.raises(
            IllegalTransition, match=f"job j is {before.value} and can't become {after.value}"
        ):
            job.transition(after)


def test_every_phase_is_in_table_and_leads_to_end() -> None:
    assert set(TRANSITIONS) == set(Phase)
    for phase in Phase:
        reached = {phase}
        for _ in Phase:
            reached |= {after for before in reached for after in TRANSITIONS[before]}
        assert Phase.ENDED in reached or phase is Phase.BUILD_FAILED


EVENTS: dict[str, tuple[Body, str, str]] = {
    "built": (dispatcher.JobGraphBuilt(job_id="j", job_graph=graph()), OWN, OWN),
    "failed": (dispatcher.JobGraphFailed(job_id="j", reason="r"), OWN, OWN),
    "accepted": (client.JobAccepted(job_id="j", name=""), OWN, CLIENT),
    "rejected": (client.JobRejected(job_id="j", reason="r"), OWN, CLIENT),
    "started": (job_master.StartJob(job_id="j", job_graph=graph()), OWN, JM),
    "cancel": (dispatcher.CancelJob(job_id="j"), CLIENT, OWN),
    "submit": (dispatcher.SubmitJob(job_id="j", job_graph=graph()), CLIENT, OWN),
    "stop": (dispatcher.ShutDownCluster(reason="r"), CLIENT, OWN),
    "suspend": (dispatcher.ShutDownCluster(reason="r", suspend=True), CLIENT, OWN),
    "cancel sent": (job_master.CancelJob(job_id="j"), OWN, JM),
    "suspend sent": (job_master.SuspendJob(job_id="j", reason="r"), OWN, JM),
    "resume sent": (job_master.ResumeJob(job_id="j"), OWN, JM),
    "finished": (dispatcher.JobReachedTerminalState(job_id="j", status=JobStatus.FINISHED), JM, OWN),
    "suspended": (dispatcher.JobReachedTerminalState(job_id="j", status=JobStatus.SUSPENDED), JM, OWN),
    "informed": (client.JobFinished(job_id="j", status=JobStatus.FINISHED), OWN, CLIENT),
}
BECOMES: dict[tuple[Phase, str], Phase | None] = {
    (Phase.BUILDING, "built"): Phase.BUILT,
    (Phase.BUILDING, "failed"): Phase.BUILD_FAILED,
    (Phase.BUILT, "accepted"): Phase.ACCEPTED,
    (Phase.BUILT, "rejected"): None,
    (Phase.BUILD_FAILED, "rejected"): None,
    (Phase.ACCEPTED, "started"): Phase.RUNNING,
    (Phase.RUNNING, "cancel sent"): Phase.CANCELLING,
    (Phase.RUNNING, "suspend sent"): Phase.SUSPENDING,
    (Phase.RUNNING, "finished"): Phase.TERMINATED,
    (Phase.RUNNING, "suspended"): Phase.SUSPENDED,
    (Phase.SUSPENDING, "cancel sent"): Phase.CANCELLING,
    (Phase.SUSPENDING, "finished"): Phase.TERMINATED,
    (Phase.SUSPENDING, "suspended"): Phase.SUSPENDED,
    (Phase.SUSPENDED, "cancel sent"): Phase.CANCELLING,
    (Phase.SUSPENDED, "resume sent"): Phase.RUNNING,
    (Phase.SUSPENDED, "finished"): Phase.TERMINATED,
    (Phase.CANCELLING, "finished"): Phase.TERMINATED,
    (Phase.TERMINATED, "informed"): Phase.ENDED,
}
"""The phase after an event; None: there is no such job any more. In all other phases an event leaves the job where it
is, or is illegal. No request is in the table: only its verdict changes the phase."""
ILLEGAL = {"built", "failed", "accepted", "started", "finished", "suspended", "informed"}


@pytest.mark.parametrize(("phase", "event"), list(product(Phase, EVENTS)))
def test_event_moves_job_to_next_phase(phase: Phase, event: str) -> None:
    driver = in_phase(phase)
    body, sender, recipient = EVENTS[event]
    job = driver.state.jobs["j"]
    cause = job.submission if event in ("built", "failed") else job.cause
    after = BECOMES.get((phase, event), phase)
    if after is phase and event in ILLEGAL and (phase, event) != (Phase.CANCELLING, "suspended"):
        before = driver.state
        with pytest.raises(IllegalEvent):
            driver.receive(body, sender, recipient, cause)
        assert driver.state is before
    else:
        driver.receive(body, sender, recipient, cause)
        assert (driver.phase() if driver.state.jobs else None) is after
    assert [*index_errors(driver.state)] == []
