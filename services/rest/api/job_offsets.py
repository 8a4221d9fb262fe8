"""The positions of a job's Kafka sources: GET and PATCH /api/v1/jobs/:jobid/offsets.

As in Kafka Connect (KIP-875), positions can change only while nothing reads: the job must be paused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Annotated

import msgspec

from ....schemas import dispatcher, job_master
from ....schemas.types import JobStatus
from ...client import job_offsets
from ...client.offset_reset import (
    OffsetOutOfRange,
    ResetPosition,
    ResetTarget,
    ToEarliest,
    ToLatest,
    ToOffsets,
    ToTime,
    UnknownPartition,
)
from ...client.source_offsets import SourceOffset
from ...configuration import Configuration
from ...history.cluster_view import find_started_job
from ...job_master.state import StartedJob
from ...log import LogUnavailable
from ..endpoint import Answer, Endpoint, Parameters
from ..errors import BadRequest, Conflict, Forbidden, NotFound, Unavailable
from ..flink.endpoints import path_parameters
from ..flink.lookup import find_job
from ..operator_requests import RequestSender, control_job
from ..principal import Role
from ..turns import Turns
from .topics import Read

_MOST_READERS = 2
_MOST_WAITING = 8
_WAIT_S = 5.0
_RETRY = {"Retry-After": "5"}

_Topic = Annotated[str, msgspec.Meta(min_length=1, max_length=249)]
_Number = Annotated[int, msgspec.Meta(ge=0)]

ReadOffsets = Callable[[StartedJob], Sequence[SourceOffset]]
FindReset = Callable[[StartedJob, ResetTarget, Sequence[str]], Sequence[ResetPosition]]


class ResetTo(StrEnum):
    """Where partitions are read from: their first record, or their end."""

    EARLIEST = "earliest"
    LATEST = "latest"


class NewOffset(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An offset of one partition, for all sources that read it."""

    topic: _Topic
    partition: _Number
    offset: _Number


class OffsetsBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """PATCH /jobs/:jobid/offsets: one of `to`, `timestamp` (ms) and `offsets`. `topics`: only these; without it all.
    `dryRun`: the answer says what would change, and nothing does."""

    to: ResetTo | None = None
    timestamp: _Number | None = None
    offsets: Sequence[NewOffset] | None = None
    topics: Sequence[_Topic] = ()
    dry_run: bool = False

    def to_target(self) -> ResetTarget:
        """Returns the only target that is named. Raises BadRequest."""
        if sum(each is not None for each in (self.to, self.timestamp, self.offsets)) != 1:
            raise BadRequest("Name one of to, timestamp and offsets.")
        if self.offsets is not None:
            if self.topics or not self.offsets:
                raise BadRequest("Offsets name their topics: give at least one, and no topics beside them.")
            return ToOffsets({(each.topic, each.partition): each.offset for each in self.offsets})
        if self.timestamp is not None:
            return ToTime(self.timestamp)
        return ToEarliest() if self.to is ResetTo.EARLIEST else ToLatest()


class PartitionPosition(msgspec.Struct, frozen=True):
    """The next offset that a source reads from a partition, and its end. `subtask` counts from 1."""

    source: str
    subtask: int
    topic: str
    partition: int
    position: int
    end: int
    lag: int


class PositionList(msgspec.Struct, frozen=True):
    """GET /api/v1/jobs/:jobid/offsets. Positions are up to 5 s old. Sources that read another Kafka are missing."""

    offsets: Sequence[PartitionPosition]


class PositionChange(msgspec.Struct, frozen=True, rename={"before": "from", "after": "to"}):
    """A position that changes. `from`: null if it is not known."""

    source: str
    topic: str
    partition: int
    before: int | None
    after: int


class PositionChanges(msgspec.Struct, frozen=True):
    """What PATCH /api/v1/jobs/:jobid/offsets has changed."""

    offsets: Sequence[PositionChange]


class JobOffsets:
    """The commands. Thread-safe."""

    def __init__(
        self, read: Read, sender: RequestSender, read_offsets: ReadOffsets, find_reset: FindReset
    ) -> None:
        self._read = read
        self._sender = sender
        self._read_offsets = read_offsets
        self._find_reset = find_reset
        self._turns = Turns("read offsets", at_once=_MOST_READERS, waiting=_MOST_WAITING, timeout_s=_WAIT_S)

    @classmethod
    def from_configuration(
        cls, configuration: Configuration, read: Read, sender: RequestSender
    ) -> JobOffsets:
        """Returns the offsets in the cluster's Kafka."""
        return cls(
            read,
            sender,
            lambda job: job_offsets.read_job_offsets(configuration, job),
            lambda job, target, topics: job_offsets.find_reset_positions(configuration, job, target, topics),
        )

    def show(self, parameters: Parameters, _body: object, _key: str | None) -> Answer:
        """GET /jobs/:jobid/offsets: the position, the end and the lag of each partition that a job reads"""
        job = self._find_started(parameters)
        with self._turns.take():
            try:
                found = self._read_offsets(job)
            except LogUnavailable as error:
                raise Unavailable(f"{error}.", _RETRY) from None
        positions = [
            PartitionPosition(
                each.source, each.subtask, each.topic, each.partition, each.position, each.end, each.lag
            )
            for each in found
        ]
        return Answer(PositionList(positions), 200)

    def reset(self, parameters: Parameters, body: OffsetsBody, _key: str | None) -> Answer:
        """PATCH /jobs/:jobid/offsets: gives the Kafka sources of a paused job other positions, from which it continues
        when it is resumed"""
        target = body.to_target()
        self._sender.find_controlled_job_id(parameters)
        job = self._find_started(parameters)
        if job.status is not JobStatus.SUSPENDED:
            raise Conflict(
                f"Job {job.job_id} is {job.status.value}, and only the offsets of a paused job can be reset: pause it."
            )
        with self._turns.take():
            try:
                found = self._find_reset(job, target, body.topics)
            except LogUnavailable as error:
                raise Unavailable(f"{error}.", _RETRY) from None
            except (UnknownPartition, OffsetOutOfRange) as error:
                raise BadRequest(f"{error}.") from None
        changes = PositionChanges(
            [
                PositionChange(
                    each.before.source,
                    each.before.topic,
                    each.before.partition,
                    each.before.position,
                    each.after,
                )
                for each in found
            ]
        )
        if body.dry_run:
            return Answer(changes, 200)
        offsets = [each.to_offset() for each in found]
        offset = control_job(
            self._sender,
            parameters,
            lambda client, job_id: client.reset_offsets(job_id, offsets),
            dispatcher.ResetOffsets,
            job_master.ResetOffsets,
        )
        return Answer(changes, 200, offset)

    def _find_started(self, parameters: Parameters) -> StartedJob:
        with self._read() as moment:
            _, view = find_job(moment, parameters)
            state = find_started_job(moment.fold.replica.states, view.job_id)
        if state is None:
            raise NotFound(
                f"Job {parameters['jobid']} has no positions: it has not started yet, or has ended."
            )
        return state


def job_offset_endpoints(offsets: JobOffsets) -> list[Endpoint]:
    """Returns the endpoints."""
    path = "/jobs/{jobid}/offsets"
    return [
        Endpoint(
            "GET",
            path,
            path_parameters(path),
            command=offsets.show,
            response=PositionList,
            errors=(NotFound,),
        ),
        Endpoint(
            "PATCH",
            path,
            path_parameters(path),
            command=offsets.reset,
            body=OffsetsBody,
            response=PositionChanges,
            errors=(NotFound, Conflict, Forbidden),
            needs_body=True,
            role=Role.SUBMITTER,
        ),
    ]
