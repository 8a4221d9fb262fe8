"""Offsets of a job by REST: shown, and reset while it is paused."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from tailrace.pipelines.checkpoint.source_positions import SourcePosition
from tailrace.schemas import dispatcher
from tailrace.schemas.types import PartitionOffset
from tailrace.services.client.offset_reset import (
    OffsetOutOfRange,
    ResetPosition,
    ResetTarget,
    ToEarliest,
    ToOffsets,
    ToTime,
)
from tailrace.services.client.source_offsets import SourceOffset
from tailrace.services.history import HistoryProjection
from tailrace.services.job_master.state import StartedJob
from tailrace.services.log import LogUnavailable
from tailrace.services.rest.api.job_offsets import JobOffsets, OffsetsBody
from tailrace.services.rest.errors import BadRequest, Conflict, NotFound, RestError, Unavailable
from tailrace.services.rest.moment import Moment

from ..scenarios import SCENARIOS

JOB = {"jobid": "j1"}


class RecordingClient:
    def __init__(self) -> None:
        self.sent: list[tuple[str, Sequence[PartitionOffset]]] = []

    def reset_offsets(self, job_id: str, offsets: Sequence[PartitionOffset]) -> None:
        self.sent.append((job_id, offsets))


class Server:
    """The commands of a server whose log is that of a scenario before an event."""

    def __init__(self, before: type[Any], fault: Exception | None = None) -> None:
        log = SCENARIOS["offsets_of_a_paused_job_are_reset"]().log
        self.records = list(itertools.takewhile(lambda record: not isinstance(record.body, before), log))
        self.fold = HistoryProjection()
        for record in self.records:
            self.fold.apply(record)
        self.client = RecordingClient()
        self.targets: list[tuple[ResetTarget, Sequence[str]]] = []
        self.fault = fault
        self.rejection = ""
        self.offsets = JobOffsets(self._read, self, self._read_offsets, self._find_reset)

    @contextmanager
    def _read(self) -> Iterator[Moment]:
        yield Moment(self.fold, 0)

    def _read_offsets(self, job: StartedJob) -> list[SourceOffset]:
        if self.fault is not None:
            raise self.fault
        return [SourceOffset("op", job.job_id, 1, "clicks", 0, 4, 9)]

    def _find_reset(
        self, _job: StartedJob, target: ResetTarget, topics: Sequence[str]
    ) -> list[ResetPosition]:
        if self.fault is not None:
            raise self.fault
        self.targets.append((target, topics))
        return [ResetPosition(SourcePosition("op", "source", "clicks", 0, None), 2)]

    def send(self, _requester: str, send: Callable[[Any], None], _find_outcome: object) -> tuple[str, int]:
        send(self.client)
        return self.rejection, 77

    def find_controlled_job_id(self, parameters: Any) -> str:
        return str(parameters["jobid"])

    def find_subtasks_of(self, job_id: str, vertex_id: str) -> tuple[str, int]:
        raise AssertionError

    def reset(self, **body: Any) -> Any:
        answer = self.offsets.reset(JOB, msgspec.convert(body, OffsetsBody), None)
        return answer.offset, msgspec.to_builtins(answer.body)


RUNNING, PAUSED = dispatcher.PauseJob, dispatcher.ResumeJob


def test_offsets_are_shown_with_lag() -> None:
    answer = Server(RUNNING).offsets.show(JOB, None, None)
    shown = {
        "source": "j1",
        "subtask": 1,
        "topic": "clicks",
        "partition": 0,
        "position": 4,
        "end": 9,
        "lag": 5,
    }
    assert msgspec.to_builtins(answer.body) == {"offsets": [shown]}


def test_offsets_of_paused_job_are_reset_and_dry_run_changes_nothing() -> None:
    server = Server(PAUSED)
    changed = {"offsets": [{"source": "source", "topic": "clicks", "partition": 0, "from": None, "to": 2}]}
    assert server.reset(to="earliest", topics=["clicks"], dryRun=True) == (None, changed)
    assert server.client.sent == []
    assert server.reset(to="earliest") == (77, changed)
    place = PartitionOffset(operator_id="op", topic="clicks", partition=0, offset=2)
    assert server.client.sent == [("j1", [place])]
    server.reset(timestamp=5)
    server.reset(offsets=[{"topic": "clicks", "partition": 0, "offset": 2}])
    assert server.targets == [
        (ToEarliest(), ["clicks"]),
        (ToEarliest(), ()),
        (ToTime(5), ()),
        (ToOffsets({("clicks", 0): 2}), ()),
    ]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"to": "earliest", "timestamp": 5},
        {"offsets": []},
        {"offsets": [{"topic": "clicks", "partition": 0, "offset": 2}], "topics": ["clicks"]},
    ],
)
def test_body_without_one_target_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(BadRequest):
        Server(PAUSED).reset(**body)


@pytest.mark.parametrize(
    ("before", "fault", "rejection", "error"),
    [
        (RUNNING, None, "", Conflict),
        (dispatcher.SubmitJob, None, "", NotFound),
        (PAUSED, OffsetOutOfRange("out of range"), "", BadRequest),
        (PAUSED, LogUnavailable("no broker"), "", Unavailable),
        (PAUSED, None, "it was resumed", Conflict),
    ],
)
def test_reset_that_is_not_possible_is_refused(
    before: type[Any], fault: Exception | None, rejection: str, error: type[RestError]
) -> None:
    server = Server(before, fault)
    server.rejection = rejection
    with pytest.raises(error):
        server.reset(to="latest")
