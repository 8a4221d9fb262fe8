"""A job that `run` waits for, without a cluster: the error when its output can't be read any more."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from tailrace.infra.threads import ThreadFailed
from tailrace.schemas.client import JobAccepted
from tailrace.schemas.event import Record
from tailrace.schemas.types import Header
from tailrace.services.cli.args.common_options import Format
from tailrace.services.cli.execution.program_run import RunScreen
from tailrace.services.cli.execution.submitted_job import SubmittedJob
from tailrace.services.client import OutputRecord, rest_output
from tailrace.services.configuration import Configuration
from tailrace.services.log import LogUnavailable


class Planted(BaseException):
    pass


class Silence:
    """A client and a subscription without events."""

    configuration = Configuration({"bootstrap.servers": "127.0.0.1:1"})

    def poll(self, timeout_s: float) -> list[Record]:
        time.sleep(min(timeout_s, 0.01))
        return []

    def disconnect(self) -> None: ...


@pytest.mark.parametrize(
    ("error", "kind", "says"),
    [
        (Planted("by a test"), ThreadFailed, "the thread 'output' of process .* failed: Planted: by a test"),
        (LogUnavailable("Kafka does not answer"), LogUnavailable, "Kafka does not answer"),
    ],
)
def test_job_with_unreadable_output_continues_and_run_exits_with_reason(
    error: BaseException,
    kind: type[Exception],
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def read_output(_: Configuration, __: str, *, over: Callable[[], bool]) -> Iterator[OutputRecord]:
        raise error
        yield

    monkeypatch.setattr(rest_output, "read_output", read_output)
    header = Header(event_id="0", time=0, sender="dispatcher", sender_epoch=1, recipient="client/run")
    silence, failures = Silence(), list[Exception]()
    job = SubmittedJob(
        silence,  # type: ignore[arg-type]
        silence,  # type: ignore[arg-type]
        Record(0, header, JobAccepted(job_id="j", name="job")),
        "job",
        RunScreen(detached=False, output=Format.TEXT),
        detached=False,
        give_up=failures.append,
    )
    with pytest.raises(kind, match=says) as raised:
        job.result()
    assert failures == [raised.value]
    job.close()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("job j runs on")
    assert "`tailrace output -f j`" in line
