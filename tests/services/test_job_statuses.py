"""JobStatusChanged is the change of a job's status: a reader of these events alone knows each status."""

from __future__ import annotations

import pytest

from tailrace.schemas.client import JobStatusChanged
from tailrace.schemas.types import JobStatus

from .scenarios import SCENARIOS
from .snapshots.simulated_logs import HISTORIES, create_quiet_replica, history

STATUSES = {
    "a_job_finishes": "CREATED RUNNING FINISHED",
    "a_job_is_cancelled_during_its_deployment": "CREATED CANCELLING CANCELED",
    "one_task_fails_and_is_restarted_alone": "CREATED RUNNING FINISHED",
    "a_cluster_is_suspended_and_its_job_resumed": "CREATED RUNNING SUSPENDED CREATED RUNNING FINISHED",
    "a_job_wants_more_slots_than_there_are": "CREATED FAILING FAILED",
    "a_task_fails": "CREATED RUNNING FAILING FAILED",
    "a_task_executor_restarts_under_its_old_resource_id": "CREATED RUNNING FINISHED",
    "a_cluster_shuts_down_with_a_running_job": "CREATED RUNNING CANCELLING CANCELED",
}


@pytest.mark.parametrize(("story", "statuses"), STATUSES.items())
def test_clients_receive_every_status_of_job_in_order(story: str, statuses: str) -> None:
    records = SCENARIOS[story]().events_of("JobStatusChanged")
    assert [record.body.status for record in records] == statuses.split()  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", HISTORIES)
def test_status_events_are_statuses_of_states(name: str | int) -> None:
    """A reader who knows JobStatusChanged only, and who leads, has the status of each job at each offset."""
    replica, statuses = create_quiet_replica(), dict[str, JobStatus]()
    for record in history(name):
        before = dict(replica.states)
        is_heard = replica.accepts(record)
        replica.apply(record)
        if is_heard and isinstance(record.body, JobStatusChanged):
            address = f"job_master/{record.body.job_id}"
            if record.body.old_status is statuses.get(address, JobStatus.INITIALIZING):
                statuses[address] = record.body.status
        for address, state in replica.states.items():
            if address.startswith("job_master/") and before.get(address) is not state:
                assert statuses.get(address, JobStatus.INITIALIZING) is state.status
