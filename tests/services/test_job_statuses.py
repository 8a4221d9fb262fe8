"""The events of a job's status are its statuses: a reader of JobStatusChanged knows each of them, in order."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tailrace.schemas.types import JobStatus
from tailrace.services.job_master.job_status import NEXT
from tailrace.services.job_master.state import NewJob, StartedJob

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
    """Those in the log and those that are owed: each is a legal transition, and the last is the status."""
    replica, said = create_quiet_replica(), dict[str, list[JobStatus]]()
    changes = 0
    for record in history(name):
        before = dict(replica.states)
        replica.apply(record)
        body: Any = record.body
        if body.AVRO_NAME == "tailrace.client.JobStatusChanged":
            address = f"job_master/{body.job_id}"
            if before[address] is not replica.states[address]:
                said.setdefault(address, [JobStatus.INITIALIZING]).append(body.status)
        for address, state in replica.states.items():
            if not address.startswith("job_master/") or before.get(address) is state:
                continue
            if isinstance(state, NewJob):
                continue
            owed = [each.status for each in getattr(state, "status_notifications", ())]
            statuses = [*said.get(address, [JobStatus.INITIALIZING]), *owed]
            assert statuses[-1] is state.status
            assert all(after in NEXT[status] for status, after in itertools.pairwise(statuses))
            previous = before.get(address)
            changes += isinstance(previous, StartedJob) and previous.status is not state.status
    assert changes or not said
