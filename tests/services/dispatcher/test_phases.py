"""The phases of a job: which may follow which, and what each event makes of a job in each of them."""

from __future__ import annotations

from itertools import product

import pytest

from tailrace.schemas import client, dispatcher, job_master
from tailrace.schemas.body import Body
from tailrace.schemas.types import JobStatus
from tailrace.services.core.role import IllegalEvent
from tailrace.services.dispatcher.state import TRANSITIONS, IllegalTransition, Job, Phase

from ..simulated_cluster.cluster import graph
from .log_builder import CLIENT, OWN, Talk, in_phase

JM = "job_master/j"
PAIRS = list(product(Phase, Phase))


@pytest.mark.parametrize(("before", "after"), PAIRS)
def test_a_job_goes_from_phase_to_phase_as_the_table_says_and_not_otherwise(
    before: Phase, after: Phase
) -> None:
    job = Job("j", CLIENT, before, 1)
    if after in TRANSITIONS[before]:
        assert job.transition(after).phase is after
    else:
        with pytest.raises(
            IllegalTransition, match=f"job j is {before.value} and can't become {after.value}"
        ):
            job.transition(after)


def test_every_phase_is_in_the_table_and_leads_to_the_end() -> None:
    assert set(TRANSITIONS) == set(Phase)
    for phase in Phase:
        reached = {phase}
        for _ in Phase:
            reached |= {after for before in reached for after in TRANSITIONS[before]}
        assert Phase.ENDED in reached


EVENTS: dict[str, tuple[Body, str, str]] = {
    "built": (dispatcher.JobGraphBuilt(job_id="j", job_graph=graph()), OWN, OWN),
    "accepted": (client.JobAccepted(job_id="j", name=""), OWN, CLIENT),
    "started": (job_master.StartJob(job_id="j", job_graph=graph()), OWN, JM),
    "cancel": (dispatcher.CancelJob(job_id="j"), CLIENT, OWN),
    "stop": (dispatcher.ShutDownCluster(reason="r"), CLIENT, OWN),
    "suspend": (dispatcher.ShutDownCluster(reason="r", suspend=True), CLIENT, OWN),
    "cancel said": (job_master.CancelJob(job_id="j"), OWN, JM),
    "suspend said": (job_master.SuspendJob(job_id="j", reason="r"), OWN, JM),
    "resume said": (job_master.ResumeJob(job_id="j"), OWN, JM),
    "finished": (
        dispatcher.JobReachedTerminalState(job_id="j", status=JobStatus.FINISHED),
        JM,
        OWN,
    ),
    "suspended": (
        dispatcher.JobReachedTerminalState(job_id="j", status=JobStatus.SUSPENDED),
        JM,
        OWN,
    ),
    "told": (client.JobFinished(job_id="j", status=JobStatus.FINISHED), OWN, CLIENT),
}
BECOMES: dict[tuple[Phase, str], Phase] = {
    (Phase.BUILDING, "built"): Phase.ADMITTED,
    (Phase.ADMITTED, "accepted"): Phase.ACCEPTED,
    (Phase.ACCEPTED, "started"): Phase.RUNNING,
    (Phase.RUNNING, "cancel"): Phase.CANCEL_REQUESTED,
    (Phase.RUNNING, "stop"): Phase.CANCEL_REQUESTED,
    (Phase.RUNNING, "suspend"): Phase.SUSPEND_REQUESTED,
    (Phase.RUNNING, "finished"): Phase.TERMINATED,
    (Phase.RUNNING, "suspended"): Phase.SUSPENDED,
    (Phase.CANCEL_REQUESTED, "cancel said"): Phase.RUNNING,
    (Phase.CANCEL_REQUESTED, "finished"): Phase.TERMINATED,
    (Phase.SUSPEND_REQUESTED, "suspend said"): Phase.RUNNING,
    (Phase.SUSPEND_REQUESTED, "cancel"): Phase.CANCEL_REQUESTED,
    (Phase.SUSPEND_REQUESTED, "stop"): Phase.CANCEL_REQUESTED,
    (Phase.SUSPEND_REQUESTED, "finished"): Phase.TERMINATED,
    (Phase.SUSPENDED, "cancel"): Phase.CANCEL_REQUESTED,
    (Phase.SUSPENDED, "stop"): Phase.CANCEL_REQUESTED,
    (Phase.SUSPENDED, "finished"): Phase.TERMINATED,
    (Phase.RESUME_REQUESTED, "resume said"): Phase.RUNNING,
    (Phase.RESUME_REQUESTED, "finished"): Phase.TERMINATED,
    (Phase.TERMINATED, "told"): Phase.ENDED,
}
"""In all other phases an event leaves the job where it is, or is illegal."""
ILLEGAL = {"built", "accepted", "started", "finished", "suspended", "told"}


@pytest.mark.parametrize(("phase", "event"), list(product(Phase, EVENTS)))
def test_what_an_event_makes_of_a_job(phase: Phase, event: str) -> None:
    talk = in_phase(phase)
    body, sender, recipient = EVENTS[event]
    after = BECOMES.get((phase, event))
    if after is None and event in ILLEGAL and (phase, event) != (Phase.CANCEL_REQUESTED, "suspended"):
        before = talk.state
        with pytest.raises(IllegalEvent):
            talk.hear(body, sender, recipient)
        assert talk.state is before
    else:
        talk.hear(body, sender, recipient)
        assert talk.phase() is (after or phase)
    check_indexes(talk)


def check_indexes(talk: Talk) -> None:
    jobs = talk.state.jobs
    silent = {Phase.BUILDING, Phase.RUNNING, Phase.SUSPENDED, Phase.ENDED}
    assert dict(talk.state.owing) == {
        each: job.cause for each, job in jobs.items() if job.phase not in silent
    }
    building = [job for job in jobs.values() if job.phase is Phase.BUILDING and not job.withdrawn]
    assert list(talk.state.building) == [job.job_id for job in sorted(building, key=lambda job: job.cause)]
    assert set(talk.state.suspended) == {each for each, job in jobs.items() if job.phase is Phase.SUSPENDED}
    over = {Phase.SUSPENDED, Phase.ENDED}
    assert set(talk.state.live) == {each for each, job in jobs.items() if job.phase not in over}
