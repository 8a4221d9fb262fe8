"""Makes spans of the events of a log.

1. Each event is one span. Its parent is the span of its cause.
2. A trace begins with an event without a cause, with a periodic checkpoint, and with a restart: a job that runs for
   months would be one trace otherwise. A checkpoint and a restart have a link to the span that caused them.
3. A span begins at the event's time, but not before its parent: clocks of machines differ. The span of a request ends
   with its answer (rpcs.py), a Checkpoint with its end; other spans have no duration.
4. Two more spans belong to a job: JobInitialization, until all tasks run, and JobRunning, while they do.

Ids are derived from the events. So they do not depend on when, how often or by whom the spans are made.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from ...infra.version import __version__
from ...schemas import dispatcher, job_master
from ...schemas.types import SnapshotType
from ..core.role import Time, derive_id
from .rpcs import CLIENT_REQUESTS, RPCS
from .span import AttributeValue, Span, SpanEvent, SpanKind, SpanLink
from .traced_event import TracedEvent

SCOPE: Final = "tailrace"
SCOPE_VERSION: Final = __version__
CHECKPOINT_SCOPE: Final = "org.apache.flink.runtime.checkpoint.CheckpointStatsTracker"
"""Flink's scope of the spans Checkpoint and JobInitialization."""
OFFSET: Final = "tailrace.offset"
"""The attribute with the offset of the event that a span begins with."""
CHECKPOINT: Final = "Checkpoint"
JOB_INITIALIZATION: Final = "JobInitialization"
JOB_RUNNING: Final = "JobRunning"
_SPAN_ID_DIGITS: Final = 16
_MILLISECOND: Final = 1_000
_INITIALIZING: Final = (job_master.StartJob, job_master.RestartScheduled, job_master.ResumeJob)

Lookup = Callable[[int], TracedEvent | None]
"""(offset) -> the event there; None if the log does not have it."""


class _Place(msgspec.Struct, frozen=True):
    """Where an event is in its trace."""

    trace_id: str
    span_id: str
    time: Time
    """The beginning of its span."""
    request: int | None
    """The offset of the client's request at the root of the trace."""
    job_id: str | None
    parent_span_id: str | None = None
    link: SpanLink | None = None


class SpanBuilder:
    """Makes spans; the caller passes the events in the order of the log. Not thread-safe."""

    def __init__(
        self, lookup: Lookup = lambda _: None, *, most_places: int | None = None, most_open: int | None = None
    ) -> None:
        """`lookup` finds events that were not passed. `most_places`: how many events are remembered for their effects;
        a forgotten one is looked up. `most_open`: how many requests may wait for an answer; the oldest ends without one
        then. None: no limit."""
        self._lookup = lookup
        self._most_places = most_places
        self._most_open = most_open
        self._places: OrderedDict[int, _Place] = OrderedDict()
        self._open: OrderedDict[int, Span] = OrderedDict()
        """Offset -> span of a request without an answer, or of a checkpoint without an end."""
        self._checkpoints: dict[tuple[str, int], int] = {}
        """Job and checkpoint -> the offset that has triggered it, of the checkpoints in `_open`."""
        self._initializing: dict[str, Span] = {}
        """Job id -> its span JobInitialization, and below its span JobRunning."""
        self._running: dict[str, Span] = {}

    @property
    def remembered(self) -> int:
        """The number of events and checkpoints that it remembers; `most_places` and `most_open` bound it."""
        return len(self._places) + len(self._open) + len(self._checkpoints)

    def add(self, event: TracedEvent) -> list[Span]:
        """Returns the spans that have ended with this event."""
        place = self._remember(event.offset, self._find_place(event))
        ended = [*self._end_requests(event, place), *self._end_checkpoints(event, place)]
        span = _to_span(event, place)
        if event.kind in CLIENT_REQUESTS or event.kind in RPCS:
            self._open[event.offset] = span
        elif event.kind is job_master.CheckpointTriggered:
            self._checkpoints[_checkpoint_key(span)] = event.offset
            self._open[event.offset] = span
        else:
            ended.append(span)
        ended.extend(self._follow_job(event, place))
        while self._most_open is not None and len(self._open) > self._most_open:
            _, oldest = self._open.popitem(last=False)
            self._checkpoints.pop(_checkpoint_key(oldest), None)
            ended.append(oldest)
        return ended

    def close(self) -> list[Span]:
        """Returns the spans of the requests that have no answer, and of the checkpoints that have not ended: without a
        duration."""
        waiting = list(self._open.values())
        self._open.clear()
        self._checkpoints.clear()
        return waiting

    def _find_place(self, event: TracedEvent) -> _Place:
        """Returns the place of an event. Looks up the causes that are not remembered, up to one that is."""
        chain = [event]
        while (cause := chain[-1].cause) is not None and cause not in self._places:
            found = self._lookup(cause)
            if found is None or found.offset >= chain[-1].offset:
                break
            chain.append(found)
        while len(chain) > 1:
            last = chain.pop()
            self._remember(last.offset, self._place_below_cause(last))
        return self._place_below_cause(event)

    def _place_below_cause(self, event: TracedEvent) -> _Place:
        cause = None if event.cause is None else self._places.get(event.cause)
        span_id = _derive_span_id(event.id_seed, event.name)
        job_id = event.job_id
        if cause is None:
            root = event.context
            return _Place(
                trace_id=event.id_seed if root is None else root.trace_id,
                span_id=span_id,
                time=event.time,
                request=event.offset if event.is_request else None,
                job_id=job_id,
                parent_span_id=None if root is None else root.span_id,
            )
        time = max(event.time, cause.time)
        if _begins_trace(event):
            link = SpanLink(cause.trace_id, cause.span_id)
            return _Place(event.id_seed, span_id, time, None, job_id or cause.job_id, None, link)
        return _Place(cause.trace_id, span_id, time, cause.request, job_id or cause.job_id, cause.span_id)

    def _remember(self, offset: int, place: _Place) -> _Place:
        self._places[offset] = place
        while self._most_places is not None and len(self._places) > self._most_places:
            self._places.popitem(last=False)
        return place

    def _end_requests(self, event: TracedEvent, place: _Place) -> Iterator[Span]:
        for offset, answers in ((event.cause, RPCS), (place.request, CLIENT_REQUESTS)):
            waiting = None if offset is None else self._open.get(offset)
            if offset is None or waiting is None or event.offset == offset:
                continue
            if event.kind in answers.get(_kind_of(waiting), ()):
                del self._open[offset]
                yield _end(waiting, event, place.time)

    def _end_checkpoints(self, event: TracedEvent, place: _Place) -> Iterator[Span]:
        if event.kind not in _CHECKPOINT_EVENTS:
            return
        key = place.job_id or "", _number(event, "checkpoint_id")
        offset = self._checkpoints.get(key)
        waiting = None if offset is None else self._open.get(offset)
        if offset is None or waiting is None:
            return
        attributes = dict(waiting.attributes)
        if event.kind is job_master.AcknowledgeCheckpoint:
            attributes["checkpointedSize"] = _number(event, "bytes_written") + int(
                attributes.get("checkpointedSize", 0)
            )
            self._open[offset] = replace(waiting, attributes=attributes)
            return
        del self._open[offset], self._checkpoints[key]
        is_complete = event.kind is job_master.CheckpointCompleted
        attributes |= {
            "endTs": place.time // _MILLISECOND,
            "checkpointStatus": "COMPLETED" if is_complete else "FAILED",
        }
        if is_complete:
            attributes["fullSize"] = _number(event, "size")
        yield _end(replace(waiting, attributes=attributes), event, place.time)

    def _follow_job(self, event: TracedEvent, place: _Place) -> Iterator[Span]:
        job_id = place.job_id
        if job_id is not None and event.kind in _INITIALIZING and job_id not in self._initializing:
            self._initializing[job_id] = _job_span(event, place, job_id, JOB_INITIALIZATION)
        elif job_id in self._initializing and event.kind is job_master.CheckpointRestored:
            span = self._initializing[job_id]
            self._initializing[job_id] = replace(
                span,
                attributes={**span.attributes, "checkpointId": event.attributes.get("checkpoint_id", -1)},
            )
        elif job_id is not None and event.kind is dispatcher.JobReachedTerminalState:
            yield from self._end_job_spans(event, place, job_id)
        for changed, is_running in event.running.items():
            if is_running:
                initialization = self._initializing.pop(changed, None)
                if initialization is not None:
                    yield _end_job_span(initialization, place.time)
                self._running[changed] = _job_span(event, place, changed, JOB_RUNNING)
            elif (run := self._running.pop(changed, None)) is not None:
                yield _end_job_span(run, place.time)

    def _end_job_spans(self, event: TracedEvent, place: _Place, job_id: str) -> Iterator[Span]:
        initialization, run = self._initializing.pop(job_id, None), self._running.pop(job_id, None)
        if initialization is not None:
            yield _end_job_span(initialization, place.time, f"the job is {event.attributes.get('status')}")
        if run is not None:
            yield _end_job_span(run, place.time)


_CHECKPOINT_EVENTS: Final = (
    job_master.AcknowledgeCheckpoint,
    job_master.CheckpointCompleted,
    job_master.CheckpointAborted,
)
_KINDS_BY_NAME: Final = {kind.AVRO_NAME: kind for kind in (*RPCS, *CLIENT_REQUESTS)}
_EVENT_TYPE: Final = "tailrace.event"


def _kind_of(span: Span) -> type:
    return _KINDS_BY_NAME.get(f"tailrace.{span.attributes[_EVENT_TYPE]}", object)


def _begins_trace(event: TracedEvent) -> bool:
    if event.kind is job_master.CheckpointTriggered:
        return not event.attributes["is_requested"]
    return event.kind is job_master.RestartScheduled


def _to_span(event: TracedEvent, place: _Place) -> Span:
    attributes: dict[str, AttributeValue] = {
        **{f"tailrace.{name}": value for name, value in event.attributes.items()},
        _EVENT_TYPE: event.kind.AVRO_NAME.removeprefix("tailrace."),
        OFFSET: event.offset,
        "tailrace.recipient": event.recipient,
    }
    if event.cause is not None:
        attributes["tailrace.cause"] = event.cause
    if place.job_id is not None:
        attributes["tailrace.job_id"] = place.job_id
    name, scope = event.name, SCOPE
    if event.kind is job_master.CheckpointTriggered:
        name, scope = CHECKPOINT, CHECKPOINT_SCOPE
        attributes |= {
            "jobId": place.job_id or "",
            "startTs": place.time // _MILLISECOND,
            "checkpointId": _number(event, "checkpoint_id"),
            "checkpointStatus": "IN_PROGRESS",
            "checkpointType": _checkpoint_type(event.attributes),
        }
    kind = SpanKind.PRODUCER
    if event.kind in CLIENT_REQUESTS or event.kind in RPCS:
        kind = SpanKind.CLIENT
    elif event.sender == event.recipient:
        kind = SpanKind.INTERNAL
    return Span(
        trace_id=place.trace_id,
        span_id=place.span_id,
        parent_span_id=place.parent_span_id,
        name=name,
        scope=scope,
        sender=event.sender,
        kind=kind,
        start=place.time,
        end=place.time,
        attributes=attributes,
        events=() if event.error is None else (_exception(event, place.time),),
        links=() if place.link is None else (place.link,),
        error=event.error,
        job_id=place.job_id,
    )


def _end(span: Span, event: TracedEvent, time: Time) -> Span:
    """Returns the span of a request that ends with this answer; a failure fails it too."""
    ended = replace(
        span, end=max(time, span.start), attributes={**span.attributes, "tailrace.answer": event.offset}
    )
    if event.error is None:
        return ended
    return replace(ended, error=event.error, events=(*span.events, _exception(event, ended.end)))


def _exception(event: TracedEvent, time: Time) -> SpanEvent:
    """Returns a failure as OpenTelemetry's semantic conventions describe exceptions."""
    return SpanEvent(
        "exception", time, {"exception.type": event.name, "exception.message": event.error or ""}
    )


def _job_span(event: TracedEvent, place: _Place, job_id: str, name: str) -> Span:
    attributes: dict[str, AttributeValue] = {"tailrace.job_id": job_id, OFFSET: event.offset}
    scope = SCOPE
    if name == JOB_INITIALIZATION:
        scope = CHECKPOINT_SCOPE
        attributes |= {"jobId": job_id, "startTs": place.time // _MILLISECOND}
    return Span(
        trace_id=place.trace_id,
        span_id=_derive_span_id(event.id_seed, name, job_id),
        parent_span_id=place.span_id,
        name=name,
        scope=scope,
        sender=f"job_master/{job_id}",
        kind=SpanKind.INTERNAL,
        start=place.time,
        end=place.time,
        attributes=attributes,
        job_id=job_id,
    )


def _end_job_span(span: Span, time: Time, error: str | None = None) -> Span:
    ended = replace(span, end=max(time, span.start), error=error)
    if span.name != JOB_INITIALIZATION:
        return ended
    return replace(ended, attributes={**span.attributes, "endTs": ended.end // _MILLISECOND})


def _checkpoint_type(attributes: Mapping[str, AttributeValue]) -> str:
    return "Savepoint" if attributes.get("snapshot_type") == SnapshotType.SAVEPOINT.value else "Checkpoint"


def _checkpoint_key(span: Span) -> tuple[str, int]:
    """Returns job and checkpoint of a span; -1 if it is no checkpoint's."""
    return span.job_id or "", int(span.attributes.get("checkpointId", -1))


def _number(event: TracedEvent, name: str) -> int:
    return int(event.attributes.get(name, 0))


def _derive_span_id(*parts: str) -> str:
    return derive_id(*parts)[:_SPAN_ID_DIGITS]
