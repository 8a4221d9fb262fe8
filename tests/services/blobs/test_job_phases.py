"""The Dispatcher's state decides, in every phase of a job, what happens to its blobs."""

from __future__ import annotations

import pytest
from immutables import Map

from tailrace.services.blobs.garbage_collector import JobPhase
from tailrace.services.core.replica import Replica
from tailrace.services.core.role import DISPATCHER
from tailrace.services.dispatcher.state import DispatcherState, Job, Phase
from tailrace.services.processes.blobs import _read_job_phases


@pytest.mark.parametrize("phase", Phase)
def test_blobs_are_needed_until_job_has_ended(phase: Phase) -> None:
    replica = Replica([])
    assert _read_job_phases(replica) is None
    job = Job(job_id="job", requester="client/me", phase=phase, cause=3)
    replica.states[DISPATCHER] = DispatcherState(jobs=Map({"job": job}))
    find_phase = _read_job_phases(replica)
    assert find_phase is not None
    assert find_phase("job") is (JobPhase.OVER if phase in (Phase.TERMINATED, Phase.ENDED) else JobPhase.LIVE)
    assert find_phase("another") is JobPhase.UNKNOWN
