"""Submissions with shipped files, and the accumulators that the client gets."""

from __future__ import annotations

import pytest

from tailrace.pipelines.graph.python_files import MAX_BYTES
from tailrace.schemas import client, dispatcher
from tailrace.schemas.types import EntryPoint, JobStatus, PythonFile
from tailrace.services.dispatcher.role import BuildJobGraph
from tailrace.services.dispatcher.state import Phase

from .log_builder import Driver, in_phase

TO_REFUSE = {
    "../up.py": b"",
    "/etc/passwd": b"",
    "json.py": b"",
    "model.bin": bytes(MAX_BYTES + 1),
}


def program(*files: PythonFile) -> EntryPoint:
    return EntryPoint(target="mine:main", arguments=(), python_files=files)


@pytest.mark.parametrize("path", TO_REFUSE)
def test_invalid_files_are_rejected_with_reason_and_nothing_is_built(path: str) -> None:
    driver = Driver()
    file = PythonFile(path=path, content=TO_REFUSE[path])
    driver.receive(dispatcher.SubmitJob(job_id="j", entry_point=program(file)))
    (refused,) = driver.settle()
    assert isinstance(refused, client.JobRejected)
    assert "shipped file" in refused.reason or "files that it ships" in refused.reason
    assert len(refused.reason) < 300
    assert driver.role.instructions(driver.state) == []


def test_program_is_built_for_savepoint_of_its_job() -> None:
    driver = Driver()
    driver.receive(dispatcher.SubmitJob(job_id="j", entry_point=program(), savepoint_path="/given"))
    driver.settle()
    (build,) = driver.role.instructions(driver.state)
    assert isinstance(build, BuildJobGraph)
    assert build.savepoint_path == "file:///given"


def test_program_is_built_with_its_files() -> None:
    driver = Driver()
    files = (PythonFile(path="mine.py", content=b""), PythonFile(path="pipelines/x.py", content=b""))
    driver.receive(dispatcher.SubmitJob(job_id="j", entry_point=program(*files)))
    driver.settle()
    (build,) = driver.role.instructions(driver.state)
    assert isinstance(build, BuildJobGraph)
    assert build.entry_point.python_files == files


def test_client_gets_accumulators_of_last_end() -> None:
    driver = Driver()
    driver.submit()
    driver.settle()
    driver.shut_down(suspend=True)
    driver.settle()
    driver.reach(JobStatus.SUSPENDED, accumulators={"n": 1.0})
    assert driver.state.jobs["j"].accumulators == {"n": 1.0}
    driver.terminate()
    driver.lead()
    driver.settle()
    driver.reach(JobStatus.FINISHED, accumulators={"n": 2.5, "m": 0.0})
    (finished,) = driver.settle()
    assert finished == client.JobFinished(
        job_id="j", status=JobStatus.FINISHED, accumulators={"n": 2.5, "m": 0.0}
    )


@pytest.mark.parametrize(
    ("status", "how"),
    [(JobStatus.FINISHED, "finished"), (JobStatus.FAILED, "failed"), (JobStatus.CANCELED, "was cancelled")],
)
@pytest.mark.parametrize("is_notified", [True, False])
def test_ended_job_is_never_run_again_and_client_learns_where_it_ended(
    status: JobStatus, how: str, is_notified: bool
) -> None:
    driver = in_phase(Phase.RUNNING)
    driver.reach(status)
    offset = driver.offset
    if is_notified:
        driver.settle()
    driver.lead()
    driver.submit()
    answers = [event for event in driver.settle() if not isinstance(event, client.JobFinished)]
    assert answers == [
        client.JobRejected(job_id="j", reason=f"job j {how} at offset {offset}: choose another job id")
    ]
