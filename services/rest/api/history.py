"""One event, its causes and effects, the story of an entity, and what changed between two moments.

They are what `tailrace story` and `tailrace diff` print as JSON. Each reads the log, so one such request is answered at
a time.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum

import msgspec

from ...history.entity_history import reader
from ...history.entity_history.cause_chains import CauseChain, Effect
from ...history.entity_history.entity_lookup import AmbiguousEntity, EntityQuery, UnknownEntity
from ...history.entity_history.timeline import EntityHistory
from ...history.log_position import LogExtent, LogPosition, PositionOutOfRange
from ...history.log_source import LogSource, OpenSource
from ...history.state_diff import StateDifference, diff_states
from ...history.state_tree import state_path
from ...history.time_travel import replica_at
from ...log.event_log import read_to_end
from ..endpoint import Answer, Endpoint, Parameter, Parameters
from ..errors import BadRequest, NotFound
from ..turns import Turns
from .events import FROM, TO, EventEntry, encode_event, find_end, find_start, log_errors

MOST_WAITING = 3
_MAX_EFFECT_EVENTS = 100_000
"""Effects are looked for in so many events after their cause."""
_MAX_OFFSET = 2**63 - 1


class Detail(StrEnum):
    """Whether similar events are one line."""

    GROUPED = "grouped"
    """Similar events are one line."""
    ALL = "all"
    """Each event is a line."""


class Effects(msgspec.Struct, frozen=True):
    """The effects of an event. `count`: their number. `last`: the time of the last one in microseconds since the epoch.
    `until`: the last offset up to which they were looked for."""

    count: int
    last: int | None
    until: int
    tree: Effect


_OFFSET = Parameter("offset", int, "The offset of the event.", minimum=0, maximum=_MAX_OFFSET)
_DETAIL = Parameter(
    "detail", Detail, "Whether similar events are one line, as by default, or each is its own."
)


class HistoryReader:
    """Answers from the log. `open_source` opens it."""

    def __init__(self, open_source: OpenSource) -> None:
        self._open_source = open_source
        self._turns = Turns("read the history", at_once=1, waiting=MOST_WAITING)

    def event(self, parameters: Parameters, _body: object, _key: str | None) -> Answer:
        """GET /events/:offset: the event at an offset"""
        offset = parameters["offset"]
        with log_errors(), self._open_source() as source:
            _check_offset(source, offset)
            for batch in read_to_end(source.log, offset, end=offset + 1):
                return Answer(msgspec.Raw(encode_event(batch[0]).data), 200, offset)
        raise NotFound(f"There is no event at offset {offset}: its record can't be read.")

    def causes(self, parameters: Parameters, _body: object, _key: str | None) -> Answer:
        """GET /events/:offset/causes: the causes of an event, back to the first one"""
        offset = parameters["offset"]
        with self._open() as source:
            _check_offset(source, offset)
            return Answer(reader.trace_causes(source, offset), 200, offset)

    def effects(self, parameters: Parameters, _body: object, _key: str | None) -> Answer:
        """GET /events/:offset/effects: the effects of an event, as a tree"""
        offset = parameters["offset"]
        with self._open() as source:
            _check_offset(source, offset)
            end = min(find_end(source, parameters.get("to")), offset + _MAX_EFFECT_EVENTS)
            if end <= offset:
                raise BadRequest(f"offset {offset} is after to={parameters['to']}.")
            found = reader.trace_effects(source, offset, end, everything=_is_all(parameters))
            return Answer(Effects(found.count, found.last, end - 1, found.tree()), 200, end - 1)

    def story(self, parameters: Parameters, _body: object, _key: str | None) -> Answer:
        """GET /story: the history of a job, task, slot, TaskExecutor, checkpoint, role or client"""
        with self._open() as source:
            start, end = find_start(source, parameters.get("from")), find_end(source, parameters.get("to"))
            entity = parameters.get("entity")
            if not entity:
                raise BadRequest("The request needs the parameter entity: the id or name of one, or KIND:ID.")
            wanted = EntityQuery(entity, parameters.get("job"))
            timeline, _, _ = reader.build_entity_history(
                source, wanted, start, end, everything=_is_all(parameters)
            )
            return Answer(timeline.build(), 200, end - 1)

    def diff(self, parameters: Parameters, _body: object, _key: str | None) -> Answer:
        """GET /diff: the differences between the states at two moments, which turn the first into the second"""
        begin = parameters.get("from")
        if begin is None:
            raise BadRequest("The request needs the parameter from: an offset or time.")
        with self._open() as source:
            first = source.at(LogPosition.parse(begin))
            last = find_end(source, parameters.get("to")) - 1
            before, after = replica_at(source, first), replica_at(source, last)
            found = diff_states(before, after)
            address = parameters.get("address")
            if address is not None:
                paths = {
                    state_path(each)
                    for each in {*before.states, *after.states}
                    if fnmatch.fnmatchcase(each, address)
                }
                changes = tuple(
                    change for change in found.changes if {change.path[:1], change.path[:2]} & paths
                )
                found = msgspec.structs.replace(found, changes=changes)
            return Answer(found, 200, last)

    @contextmanager
    def _open(self) -> Iterator[LogSource]:
        """Yields the log when it is this request's turn, and turns errors into those of a request."""
        try:
            with self._turns.take(), log_errors(), self._open_source() as source:
                yield source
        except AmbiguousEntity as error:
            raise BadRequest(str(error)) from None
        except (UnknownEntity, LookupError) as error:
            raise NotFound(str(error)) from None


def create_endpoints(open_source: OpenSource) -> list[Endpoint]:
    """Returns the endpoints."""
    history = HistoryReader(open_source)
    event = "/events/{offset}"
    return [
        Endpoint("GET", event, (_OFFSET,), command=history.event, response=EventEntry, errors=(NotFound,)),
        Endpoint(
            "GET",
            f"{event}/causes",
            (_OFFSET,),
            command=history.causes,
            response=CauseChain,
            errors=(NotFound,),
        ),
        Endpoint(
            "GET",
            f"{event}/effects",
            (_OFFSET,),
            (TO, _DETAIL),
            command=history.effects,
            response=Effects,
            errors=(NotFound,),
        ),
        Endpoint(
            "GET",
            "/story",
            query=(
                Parameter("entity", str, "An id, a prefix of one, a name, or KIND:ID. Required."),
                Parameter("job", str, "The job of a task or checkpoint: its id, or a prefix of it."),
                FROM,
                TO,
                _DETAIL,
            ),
            command=history.story,
            response=EntityHistory,
            errors=(NotFound,),
        ),
        Endpoint(
            "GET",
            "/diff",
            query=(
                Parameter("from", str, "The first moment: an offset or time. Required."),
                TO,
                Parameter("address", str, "Only the states of these addresses: dispatcher, job_master/*."),
            ),
            command=history.diff,
            response=StateDifference,
            errors=(NotFound,),
        ),
    ]


def _check_offset(source: LogSource, offset: int) -> None:
    extent = LogExtent.from_log(source.log)
    if not extent.first <= offset < extent.end:
        raise PositionOutOfRange(f"offset {offset} is outside {extent.format_extent(source.log)}")


def _is_all(parameters: Parameters) -> bool:
    return parameters.get("detail") is Detail.ALL
