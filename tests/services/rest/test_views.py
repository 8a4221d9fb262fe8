"""Every view answers at every prefix of every golden log, in the form that the OpenAPI document declares."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from tailrace.schemas.event import Record
from tailrace.services.history import HistoryProjection
from tailrace.services.history.archive.file_log import FileLog
from tailrace.services.log.event_log import read_to_end
from tailrace.services.rest.application import create_application
from tailrace.services.rest.errors import NotFound, RestError
from tailrace.services.rest.flink.endpoints import READS
from tailrace.services.rest.moment import Moment
from tailrace.services.rest.openapi import create_document

from .views import VIEWS, parameters_of, view

GOLDEN = Path(__file__).parents[2] / "golden"
FILES = sorted(path.relative_to(GOLDEN).as_posix() for path in GOLDEN.glob("*/*.avro"))
DOCUMENT = create_document([("/v1", endpoint) for endpoint in READS])
HEX = 32


@functools.cache
def records_of(name: str) -> tuple[Record, ...]:
    with closing(FileLog.open(GOLDEN / name)) as log:
        return tuple(record for batch in read_to_end(log) for record in batch)


def prefixes(name: str) -> Iterator[Moment]:
    fold = HistoryProjection()
    for record in records_of(name):
        fold.apply(record)
        yield Moment(fold, record.header.time // 1000)


def last(name: str) -> Moment:
    *_, moment = prefixes(name)
    return moment


def validator(path: str) -> jsonschema.Draft202012Validator:
    content = DOCUMENT["paths"][f"/v1{path}"]["get"]["responses"]["200"]["content"]
    schema = {**content["application/json"]["schema"], "components": DOCUMENT["components"]}
    return jsonschema.Draft202012Validator(schema)


VALIDATORS = {path: validator(path) for path in VIEWS}


@pytest.mark.parametrize("name", FILES)
def test_every_view_answers_for_every_prefix_of_golden_log(name: str) -> None:
    """Every prefix gets a sample of all requests; the last one gets all of them."""
    chosen = random.Random(name)
    answers = 0
    for moment in prefixes(name):
        for path in chosen.sample(sorted(VIEWS), 6):
            requests = list(parameters_of(moment, VIEWS[path]))
            answers += check(moment, path, chosen.choice(requests))
    for path, endpoint in VIEWS.items():
        for parameters in parameters_of(moment, endpoint):
            answers += check(moment, path, parameters)
    assert answers > len(VIEWS) // 2


def check(moment: Moment, path: str, parameters: Any) -> bool:
    try:
        answer = data(view(moment, path, **parameters))
    except NotFound as error:
        assert "\n" not in error.message
        return False
    VALIDATORS[path].validate(answer)
    return True


@pytest.mark.soak
@pytest.mark.parametrize("name", FILES)
def test_every_view_answers_every_request_for_every_prefix(name: str) -> None:
    for moment in prefixes(name):
        for path, endpoint in VIEWS.items():
            for parameters in parameters_of(moment, endpoint):
                check(moment, path, parameters)


def test_application_has_a_route_for_every_endpoint_with_and_without_version() -> None:
    application = create_application(lambda *_: pytest.fail("no request is sent"), READS)
    paths = {getattr(route, "path", None) for route in application.routes}
    assert {prefix + endpoint.path for endpoint in READS for prefix in ("", "/v1")} <= paths


JOB = "0.1.0/a_job_finishes.avro"
SAVEPOINT = "0.1.0/a_savepoint_is_taken.avro"
# Keys and types as Flink 2.3 answers.
JOB_KEYS = {
    "jid": str,
    "application-id": str,
    "name": str,
    "isStoppable": bool,
    "state": str,
    "job-type": str,
    "schedulerType": str,
    "start-time": int,
    "end-time": int,
    "duration": int,
    "maxParallelism": int,
    "now": int,
    "timestamps": dict,
    "vertices": list,
    "status-counts": dict,
    "plan": dict,
    "pending-operators": int,
}
IO_KEYS = {
    "read-bytes": int,
    "read-bytes-complete": bool,
    "write-bytes": int,
    "write-bytes-complete": bool,
    "read-records": int,
    "read-records-complete": bool,
    "write-records": int,
    "write-records-complete": bool,
    "accumulated-backpressured-time": int,
    "accumulated-idle-time": int,
    "accumulated-busy-time": float,
}
VERTEX_KEYS = {
    "id": str,
    "slotSharingGroupId": str,
    "name": str,
    "maxParallelism": int,
    "parallelism": int,
    "status": str,
    "start-time": int,
    "end-time": int,
    "duration": int,
    "tasks": dict,
    "metrics": dict,
}
SUBTASK_KEYS = {
    "subtask": int,
    "status": str,
    "attempt": int,
    "endpoint": str,
    "start-time": int,
    "end-time": int,
    "duration": int,
    "metrics": dict,
    "taskmanager-id": str,
    "status-duration": dict,
    "start_time": int,
}
CHECKPOINT_KEYS = {
    "className": str,
    "id": int,
    "status": str,
    "is_savepoint": bool,
    "savepointFormat": str,
    "trigger_timestamp": int,
    "latest_ack_timestamp": int,
    "checkpointed_size": int,
    "state_size": int,
    "end_to_end_duration": int,
    "alignment_buffered": int,
    "processed_data": int,
    "persisted_data": int,
    "num_subtasks": int,
    "num_acknowledged_subtasks": int,
    "checkpoint_type": str,
    "tasks": dict,
    "external_path": str,
    "discarded": bool,
}
STATES = {
    "CREATED",
    "SCHEDULED",
    "DEPLOYING",
    "INITIALIZING",
    "RUNNING",
    "FINISHED",
    "CANCELING",
    "CANCELED",
    "FAILED",
    "RECONCILING",
}


def data(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def types(value: dict[str, Any]) -> dict[str, type]:
    return {key: type(each) for key, each in value.items()}


def test_job_has_the_shape_of_flink_before_and_after_its_end() -> None:
    for moment in (next(each for each in prefixes(JOB) if has_running_task(each)), last(JOB)):
        (job,) = view(moment, "/jobs").jobs
        found = data(view(moment, "/jobs/{jobid}", jobid=job.id))
        assert types(found) == JOB_KEYS
        assert len(job.id) == HEX
        assert found["jid"] == job.id == found["plan"]["jid"]
        vertex = found["vertices"][0]
        assert types(vertex) == VERTEX_KEYS
        assert types(vertex["metrics"]) == IO_KEYS
        assert set(vertex["tasks"]) == STATES
        subtask = data(view(moment, "/jobs/{jobid}/vertices/{vertexid}", jobid=job.id, vertexid=vertex["id"]))
        assert types(subtask["subtasks"][0]) == SUBTASK_KEYS


def has_running_task(moment: Moment) -> bool:
    return any(job.tasks.running for job in view(moment, "/jobs/overview").jobs)


def test_ended_job_keeps_its_vertices_and_times() -> None:
    moment = last(JOB)
    (job,) = view(moment, "/jobs/overview").jobs
    assert (job.state, job.tasks.finished) == ("FINISHED", job.tasks.total)
    found = view(moment, "/jobs/{jobid}", jobid=job.jid)
    assert found.vertices
    assert {vertex.status for vertex in found.vertices} == {"FINISHED"}
    assert all(job.start_time <= vertex.start_time <= vertex.end_time for vertex in found.vertices)
    assert found.timestamps["FINISHED"] >= found.timestamps["RUNNING"] > 0


def test_history_that_continues_from_stored_part_gives_the_same_views() -> None:
    records = records_of(JOB)
    for cut in range(0, len(records), 7):
        first = HistoryProjection()
        for record in records[:cut]:
            first.apply(record)
        second = first.copy()
        for record in records[cut:]:
            second.apply(record)
        now = records[-1].header.time // 1000
        assert view(Moment(second, now), "/jobs/overview") == view(last(JOB), "/jobs/overview")
        (job,) = view(last(JOB), "/jobs").jobs
        assert view(Moment(second, now), "/jobs/{jobid}", jobid=job.id) == view(
            last(JOB), "/jobs/{jobid}", jobid=job.id
        )


def test_savepoint_has_the_shape_of_flink() -> None:
    moment = last(SAVEPOINT)
    (job,) = view(moment, "/jobs").jobs
    found = data(view(moment, "/jobs/{jobid}/checkpoints", jobid=job.id))
    assert set(found) == {"counts", "summary", "latest", "history"}
    assert found["latest"]["savepoint"]["status"] == "COMPLETED"
    assert types(found["latest"]["savepoint"]) == CHECKPOINT_KEYS
    number = found["latest"]["savepoint"]["id"]
    details = view(
        moment, "/jobs/{jobid}/checkpoints/details/{checkpointid}", jobid=job.id, checkpointid=number
    )
    assert sum(task.num_subtasks for task in details.tasks.values()) == details.num_subtasks > 0


def test_both_forms_of_ids_are_accepted() -> None:
    moment = last(JOB)
    (job,) = view(moment, "/jobs").jobs
    (own,) = moment.fold.submitted
    assert view(moment, "/jobs/{jobid}", jobid=own) == view(moment, "/jobs/{jobid}", jobid=job.id)
    with pytest.raises(RestError) as refused:
        view(moment, "/jobs/{jobid}", jobid="../etc")
    assert refused.value.status == 400


def test_application_is_its_job_at_every_prefix() -> None:
    for moment in prefixes(JOB):
        found = data(view(moment, "/jobs/overview"))["jobs"]
        applications = data(view(moment, "/applications/overview"))["applications"]
        assert [each["id"] for each in applications] == [job["jid"] for job in found]
        for each, job in zip(applications, found, strict=True):
            assert each["jobs"] == {job["state"]: 1}
            assert (each["start-time"], each["end-time"]) == (job["start-time"], job["end-time"])
            details = data(view(moment, "/applications/{applicationid}", applicationid=each["id"]))
            assert (details["jobs"], details["status"]) == ([job], each["status"])
            assert details["timestamps"].keys() >= {"CREATED", details["status"]}


def test_job_is_up_while_all_its_tasks_run_and_down_from_a_failure_on() -> None:
    """At every prefix at most one of the two times grows, and both are -1 after the end."""
    seen = set()
    for name in (JOB, SAVEPOINT, "0.1.0/one_task_fails_and_is_restarted_alone.avro"):
        for prefix in prefixes(name):
            moment = replace(prefix, now=prefix.now + 1_000)
            for job in view(moment, "/jobs").jobs:
                found = view(moment, "/jobs/{jobid}/metrics", jobid=job.id, get="uptime,downtime,numRestarts")
                up, down, restarts = (int(each.value) for each in found)
                counts = view(moment, "/jobs/{jobid}", jobid=job.id).status_counts
                has_ended = job.status in ("FINISHED", "CANCELED", "FAILED")
                assert (up, down) == (-1, -1) if has_ended else 0 in (up, down)
                if up > 0:
                    assert job.status == "RUNNING"
                    assert counts["RUNNING"] + counts["FINISHED"] == sum(counts.values())
                seen.add((has_ended, up > 0, restarts > 0))
    for index in range(3):
        assert {each[index] for each in seen} == {True, False}
