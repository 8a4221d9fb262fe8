"""What a span needs of an event: a small copy without graphs and code, so that a queue of them stays small."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final

import msgspec

from ...infra.open_telemetry import TraceContext, parse_traceparent
from ...schemas import job_master
from ...schemas.body import Body
from ...schemas.event import Record
from ..core.role import JOB_MASTER, Time, derive_id, instance_of, kind_of
from ..history.entity_history.failure_chains import FAILURE_EVENTS, Severity, severity
from ..job_master.state import StartedJob
from .span import AttributeValue

_PREFIX: Final = "tailrace."
_LONGEST_TEXT: Final = 1_000
_SCALARS: Final = (str, int, float, Enum)
_NO_CHANGE: Mapping[str, bool] = {}


class TracedEvent(msgspec.Struct, frozen=True):
    """An event of the log, without what no span shows."""

    offset: int
    time: Time
    kind: type[Body]
    sender: str
    recipient: str
    cause: int | None
    id_seed: str
    """128 bits in hexadecimal that belong to this event only."""
    is_request: bool
    """Whether a client has sent it."""
    context: TraceContext | None
    """The span of the client that has sent it, if it names one."""
    job_id: str | None
    """The job that the event names, or whose JobMaster sends or receives it."""
    attributes: Mapping[str, AttributeValue]
    """The fields of the event with one value."""
    error: str | None
    """For a failure: the reason."""
    running: Mapping[str, bool] = _NO_CHANGE
    """Job id -> whether all its tasks run, for the jobs where this event has changed it."""

    @property
    def name(self) -> str:
        """The name of the type, such as RequestSlot."""
        return self.kind.AVRO_NAME.rpartition(".")[2]


class RunningJobs:
    """The jobs all of whose tasks run. The caller passes every event that changes a state.

    The first event of a job reports nothing: after a snapshot, it is unknown since when its tasks run.
    """

    def __init__(self) -> None:
        self._known: dict[str, bool] = {}
        """Job id -> whether all its tasks run, of jobs that have not ended."""

    def on_event(self, changed: Sequence[str], states: Mapping[str, object]) -> Mapping[str, bool]:
        """Adds an event that has changed the states of these addresses. Returns job id -> whether all its tasks run,
        for the jobs where that has changed."""
        found: dict[str, bool] | None = None
        for role_address in changed:
            if kind_of(role_address) != JOB_MASTER:
                continue
            job_id, state = instance_of(role_address), states.get(role_address)
            was_running = self._known.get(job_id)
            if isinstance(state, StartedJob) and not state.has_ended:
                is_running = self._known[job_id] = state.is_fully_running
            else:
                is_running = False
                self._known.pop(job_id, None)
            if was_running is not None and is_running is not was_running:
                found = {**(found or {}), job_id: is_running}
        return _NO_CHANGE if found is None else found


def from_record(record: Record, running: Mapping[str, bool] = _NO_CHANGE) -> TracedEvent:
    """Returns what a span needs of an event. `running`: as in TracedEvent."""
    header, body, origin = record.header, record.body, record.header.origin
    seed = (
        derive_id(header.event_id, header.time, record.offset)
        if origin is None
        else derive_id(origin.topic, origin.partition, origin.offset, header.event_id)
    )
    return TracedEvent(
        offset=record.offset,
        time=header.time,
        kind=type(body),
        sender=header.sender,
        recipient=header.recipient,
        cause=header.cause,
        id_seed=seed,
        is_request=origin is not None,
        context=None if origin is None else parse_traceparent(header.traceparent),
        job_id=_find_job(record),
        attributes={name: _to_attribute(value) for name, value in _find_values(body)},
        error=_find_error(body),
        running=running,
    )


def _find_job(record: Record) -> str | None:
    named = getattr(record.body, "job_id", None)
    if named:
        return str(named)
    for role_address in (record.header.sender, record.header.recipient):
        if kind_of(role_address) == JOB_MASTER:
            return instance_of(role_address)
    return None


def _find_values(body: Body) -> list[tuple[str, AttributeValue | Enum]]:
    found: list[tuple[str, AttributeValue | Enum]] = []
    for name in _field_names(type(body)):
        value = getattr(body, name)
        # An empty text says nothing.
        if isinstance(value, _SCALARS) and value != "":
            found.append((name, value))
    match body:
        case job_master.CheckpointTriggered(options=options):
            found.append(("snapshot_type", options.snapshot_type))
            found.append(("is_requested", bool(body.requests)))
        case job_master.CheckpointCompleted(checkpoint=checkpoint):
            found.append(("checkpoint_id", checkpoint.checkpoint_id))
            found.append(("size", checkpoint.size))
        case job_master.CheckpointRestored(checkpoint=checkpoint) if checkpoint is not None:
            found.append(("checkpoint_id", checkpoint.checkpoint_id))
        case job_master.AcknowledgeCheckpoint(acknowledgements=parts):
            found.append(("bytes_written", sum(part.metrics.bytes_written for part in parts)))
        case _:
            pass
    return found


@functools.cache
def _field_names(kind: type[Body]) -> tuple[str, ...]:
    return tuple(name for name in kind.__struct_fields__ if name != "job_id")


def _to_attribute(value: AttributeValue | Enum) -> AttributeValue:
    plain: AttributeValue = value.value if isinstance(value, Enum) else value
    return shorten(plain) if isinstance(plain, str) else plain


def shorten(text: str) -> str:
    """Returns the first thousand characters of a text. Secrets are still in it: otlp.py removes them."""
    return text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 3]}..."


def _find_error(body: Body) -> str | None:
    if type(body) not in FAILURE_EVENTS or severity(body, Severity.NONE, True) < Severity.FAILURE:
        return None
    for name in ("reason", "failure"):
        text = getattr(body, name, None)
        if isinstance(text, str) and text and not isinstance(text, Enum):
            return shorten(text)
    return body.AVRO_NAME.removeprefix(_PREFIX)
