"""Replay checks: GET /api/v1/replay-check decides again what the log has, as `tailrace replay --check` does.

A check of a long log takes minutes, so it has a process (services/rest/replay_process.py). When its time is over, the
result says how far it has come, and another request continues from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from starlette.responses import Response

from ....infra.interpreter import module_command
from ...history.log_source import OpenSource
from ...history.replay import DecisionDifference, DifferenceKind, ReplayCounts
from ...history.replay.decision_difference import FieldDifference
from ..endpoint import Endpoint, Parameter, Parameters
from ..errors import NotFound
from ..process_stream import ProcessRunner, Update
from .events import TO

MAX_TIME_S: Final = 120.0
"""Of the check; its process may take a little longer."""
MAX_MEMORY_BYTES: Final = 2 << 30
INSTEAD: Final = "give a shorter part (from, to), or use `tailrace replay --check`"
MAX_DIFFERENCES: Final = 100
_DEFAULT_DIFFERENCES: Final = 20
_MORE_TIME_S: Final = 30.0
_PROCESS: Final = module_command("tailrace.services.rest.replay_process")


class ReplayRequest(msgspec.Struct, frozen=True):
    """What the process gets. `start`, `end`: offsets or times; None: of the whole log."""

    open_source: OpenSource
    start: str | None
    end: str | None
    most: int


class ReplayDifference(msgspec.Struct, frozen=True):
    """A difference, in one line as `text`. `offset`: of the event of the log; null if it is missing there. `time`: of
    the decision, in microseconds since the epoch."""

    kind: DifferenceKind
    text: str
    sender: str
    decided_at: int
    time: int
    offset: int | None
    fields: Sequence[FieldDifference]

    @classmethod
    def of(cls, found: DecisionDifference) -> ReplayDifference:
        """Describes a difference."""
        offset = None if found.recorded is None else found.recorded.offset
        return cls(
            found.kind, found.line(), found.sender, found.decided_at, found.time, offset, found.fields()
        )


class ReplayResult(msgspec.Struct, frozen=True):
    """What was decided again. `last`: the offset up to which it was; `is_complete`: there was time for the whole part,
    and it has no more differences. `state_hash`: of all states after `last`."""

    last: int
    is_complete: bool
    counts: ReplayCounts
    differences: Sequence[ReplayDifference]
    state_hash: str
    feature_level: int


class ReplayUpdate(Update, frozen=True):
    """A message of a running check: the offset that it has reached, and the end of the part."""

    offset: int = 0
    end: int = 0
    result: ReplayResult | None = None


def create_endpoint(open_source: OpenSource) -> Endpoint:
    """Returns the endpoint. `open_source` opens the log, and can be pickled."""
    runner = ProcessRunner("replay check", _PROCESS, ReplayUpdate, MAX_TIME_S + _MORE_TIME_S, INSTEAD)

    async def check(parameters: Parameters, _last_event_id: str | None) -> Response:
        """GET /replay-check: lets the roles decide again, and returns where the log has other decisions"""
        most = parameters.get("limit", _DEFAULT_DIFFERENCES)
        return await runner.open(
            ReplayRequest(open_source, parameters.get("from"), parameters.get("to"), most)
        )

    return Endpoint(
        "GET",
        "/replay-check",
        query=(
            Parameter("from", str, "The first offset or time; by default the beginning of the log."),
            TO,
            Parameter("limit", int, "The most differences.", minimum=1, maximum=MAX_DIFFERENCES),
        ),
        stream=check,
        stream_doc="Server-sent events: `progress` while it runs, and at last `result` or `error`.",
        response=ReplayUpdate,
        errors=(NotFound,),
    )
