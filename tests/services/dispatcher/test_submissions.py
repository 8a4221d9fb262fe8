"""What the Dispatcher makes of a submission with shipped files, and what it tells of what a job has counted."""

from __future__ import annotations

import pytest

from tailrace.pipelines.graph.python_files import MAX_BYTES
from tailrace.schemas import client, dispatcher
from tailrace.schemas.types import EntryPoint, JobStatus, PythonFile
from tailrace.services.dispatcher.role import BuildJobGraph
from tailrace.services.dispatcher.state import Phase

from .log_builder import Talk, in_phase

TO_REFUSE = {
    "../up.py": b"",
    "/etc/passwd": b"",
    "json.py": b"",
    "model.bin": bytes(MAX_BYTES + 1),
}


def program(*files: PythonFile) -> EntryPoint:
    return EntryPoint(target="mine:main", arguments=(), python_files=files)


@pytest.mark.parametrize("path", TO_REFUSE)
def test_files_that_can_not_be_shipped_are_refused_with_the_reason_and_nothing_is_built(path: str) -> None:
    talk = Talk()
    file = PythonFile(path=path, content=TO_REFUSE[path])
    talk.hear(dispatcher.SubmitJob(job_id="j", entry_point=program(file)))
    (refused,) = talk.settle()
    assert isinstance(refused, client.JobRejected)
    assert "shipped file" in refused.reason or "files that it ships" in refused.reason
    assert len(refused.reason) < 300
    assert talk.role.instructions(talk.state) == []


def test_a_program_is_built_for_what_its_job_begins_with() -> None:
    talk = Talk()
    talk.hear(dispatcher.SubmitJob(job_id="j", entry_point=program(), savepoint_path="/given"))
    (build,) = talk.role.instructions(talk.state)
    assert isinstance(build, BuildJobGraph)
    assert build.savepoint_path == "file:///given"


def test_a_program_is_built_with_the_files_that_came_with_it() -> None:
    talk = Talk()
    files = (PythonFile(path="mine.py", content=b""), PythonFile(path="pipelines/x.py", content=b""))
    talk.hear(dispatcher.SubmitJob(job_id="j", entry_point=program(*files)))
    (build,) = talk.role.instructions(talk.state)
    assert isinstance(build, BuildJobGraph)
    assert build.entry_point.python_files == files


def test_the_client_is_told_what_the_job_has_counted_and_the_last_end_counts() -> None:
    talk = Talk()
    talk.submit()
    talk.settle()
    talk.shut_down(suspend=True)
    talk.settle()
    talk.reach(JobStatus.SUSPENDED, accumulators={"n": 1.0})
    assert talk.state.jobs["j"].accumulators == {"n": 1.0}
    talk.terminate()
    talk.lead()
    talk.settle()
    talk.reach(JobStatus.FINISHED, accumulators={"n": 2.5, "m": 0.0})
    (finished,) = talk.settle()
    assert finished == client.JobFinished(
        job_id="j", status=JobStatus.FINISHED, accumulators={"n": 2.5, "m": 0.0}
    )


@pytest.mark.parametrize(
    ("status", "how"),
    [(JobStatus.FINISHED, "finished"), (JobStatus.FAILED, "failed"), (JobStatus.CANCELED, "was cancelled")],
)
@pytest.mark.parametrize("told", [True, False])
def test_a_job_that_has_ended_is_never_run_again_and_who_asks_is_told_where_it_ended(
    status: JobStatus, how: str, told: bool
) -> None:
    talk = in_phase(Phase.RUNNING)
    talk.reach(status)
    offset = talk.offset
    if told:
        talk.settle()
    talk.lead()
    talk.submit()
    answers = [each for each in talk.settle() if not isinstance(each, client.JobFinished)]
    assert answers == [
        client.JobRejected(job_id="j", reason=f"job j {how} at offset {offset}: choose another job id")
    ]
