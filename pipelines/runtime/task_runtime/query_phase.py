"""The phases of a deployment's queries, and their transitions.

    phase      watches    starts    connects  asks for a  has nothing  fails   meaning of the phase
               the lag    a query             switch      to read
    WAITING    MEASURING  STARTING  -         -           UNUSED       -       a subtask is not ready
    MEASURING  -          STARTING  -         SWITCHING   -            -       the lag decides the first query's mode
    STARTING   -          -         RUNNING   -           -            PAUSED  a query before this one may still deliver
    RUNNING    -          -         -         SWITCHING   -            PAUSED  the tasks of the query are connected
    SWITCHING  -          STARTING  -         -           -            -       subtasks report where a query begins
    PAUSED     -          -         -         SWITCHING   -            -       a query has failed, the next one follows
    UNUSED     -          -         -         SWITCHING   -            -       no query is needed, or not yet

Any phase becomes STOPPED when all attempts of the deployment have ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class QueryPhase(StrEnum):
    """The phase of the queries of a deployment."""

    WAITING = "WAITING"
    MEASURING = "MEASURING"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    SWITCHING = "SWITCHING"
    PAUSED = "PAUSED"
    UNUSED = "UNUSED"
    STOPPED = "STOPPED"


class QueryEvent(StrEnum):
    """The events of the queries of a deployment."""

    WATCH = "WATCH"
    START = "START"
    CONNECT = "CONNECT"
    SWITCH = "SWITCH"
    NOTHING_TO_READ = "NOTHING_TO_READ"
    FAIL = "FAIL"
    STOP = "STOP"


NEXT: Mapping[QueryPhase, Mapping[QueryEvent, QueryPhase]] = {
    QueryPhase.WAITING: {
        QueryEvent.WATCH: QueryPhase.MEASURING,
        QueryEvent.START: QueryPhase.STARTING,
        QueryEvent.NOTHING_TO_READ: QueryPhase.UNUSED,
    },
    QueryPhase.MEASURING: {
        QueryEvent.START: QueryPhase.STARTING,
        QueryEvent.SWITCH: QueryPhase.SWITCHING,
    },
    QueryPhase.STARTING: {QueryEvent.CONNECT: QueryPhase.RUNNING, QueryEvent.FAIL: QueryPhase.PAUSED},
    QueryPhase.RUNNING: {QueryEvent.SWITCH: QueryPhase.SWITCHING, QueryEvent.FAIL: QueryPhase.PAUSED},
    QueryPhase.SWITCHING: {QueryEvent.START: QueryPhase.STARTING},
    QueryPhase.PAUSED: {QueryEvent.SWITCH: QueryPhase.SWITCHING},
    QueryPhase.UNUSED: {QueryEvent.SWITCH: QueryPhase.SWITCHING},
    QueryPhase.STOPPED: {},
}


def transition(phase: QueryPhase, event: QueryEvent) -> QueryPhase:
    """Returns the next phase. Raises ValueError if the event is illegal."""
    if event is QueryEvent.STOP:
        return QueryPhase.STOPPED
    try:
        return NEXT[phase][event]
    except KeyError:
        raise ValueError(f"the queries of a deployment that are {phase.value} can't {event.value}") from None
