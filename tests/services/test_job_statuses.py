"""The status of a job, as its clients hear of it."""

from __future__ import annotations

import pytest

from .scenarios import SCENARIOS

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
def test_clients_hear_of_every_status_of_a_job_in_order(story: str, statuses: str) -> None:
    said = SCENARIOS[story]().said("JobStatusChanged")
    assert [record.body.status for record in said] == statuses.split()  # type: ignore[attr-defined]
