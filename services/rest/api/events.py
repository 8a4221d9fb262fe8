"""The events of the log: GET /api/v1/events, in pages. It reads the log, and no replica."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from ....schemas.event import Record
from ...history.log_position import InvalidPosition, LogPosition, PositionOutOfRange
from ...history.log_source import LogSource
from ...history.to_builtins import to_builtins
from ...log import LogUnavailable
from ...log.event_log import LogTruncated, read_to_end
from ..endpoint import Answer, Endpoint, Parameter, Parameters
from ..errors import BadRequest, NotFound, Unavailable

_MAX_EVENTS = 1_000
_DEFAULT_EVENTS = 100
_MAX_READ = 20_000
"""The number of events that one request reads; the next page continues."""


class EventEntry(msgspec.Struct, frozen=True):
    """An event: its offset, its type, the fields of its header, and its own."""

    offset: int
    type: str
    header: Mapping[str, Any]
    fields: Mapping[str, Any]


class EventPage(msgspec.Struct, frozen=True):
    """Events in the order of the log. `next`: the offset to continue from."""

    events: Sequence[EventEntry]
    next: int


def create_endpoint(open_source: Callable[[], LogSource]) -> Endpoint:
    """Returns the endpoint. `open_source` opens the log."""

    def events(parameters: Parameters, _body: object, _key: str | None) -> Answer:
        """GET /events: the events from an offset or time on"""
        try:
            with open_source() as source:
                start = source.start(LogPosition.parse(parameters.get("from", "0")))
                page = read_page(
                    source, start, parameters.get("limit", _DEFAULT_EVENTS), parameters.get("type")
                )
                return Answer(page, 200, page.next - 1)
        except InvalidPosition as error:
            raise BadRequest(str(error)) from None
        except PositionOutOfRange as error:
            raise NotFound(str(error)) from None
        except (LogUnavailable, LogTruncated) as error:
            raise Unavailable(str(error), {"Retry-After": "5"}) from None

    return Endpoint(
        "GET",
        "/events",
        query=(
            Parameter(
                "from", str, "The first offset or time: 4711, 2026-11-22T08:30:00, -10m (10 minutes ago)."
            ),
            Parameter("limit", int, "The maximum number of events.", minimum=1, maximum=_MAX_EVENTS),
            Parameter("type", str, "Only events of this type: SubmitTask, or task_executor.SubmitTask."),
        ),
        command=events,
        response=EventPage,
        errors=(NotFound,),
    )


def read_page(source: LogSource, start: int, limit: int, wanted: str | None) -> EventPage:
    """Returns up to `limit` events of the wanted type from `start` on."""
    found: list[EventEntry] = []
    end = min(source.log.end(), start + _MAX_READ)
    for batch in read_to_end(source.log, start, end=end):
        for record in batch:
            name = record.body.AVRO_NAME.removeprefix("tailrace.")
            if wanted is None or wanted in (name, name.rpartition(".")[2]):
                found.append(_entry(record, name))
                if len(found) == limit:
                    return EventPage(found, record.offset + 1)
    return EventPage(found, max(start, end))


def _entry(record: Record, name: str) -> EventEntry:
    return EventEntry(record.offset, name, to_builtins(record.header), to_builtins(record.body))
