"""The process that simulates for a REST server (services/rest/api/what_if.py).

It gets a request on stdin, and writes messages to stdout, each a line of JSON: how far it is, and at last the result or
an error. Its memory and its time of the processor are limited, and it is nicer than its server.
"""

from __future__ import annotations

import pickle
import sys
import time
from typing import Final, Never

import msgspec

from ...history.archive.errors import ArchiveError
from ...history.log_position import InvalidPosition, LogPosition, PositionOutOfRange
from ...log import LogUnavailable
from ...log.event_log import LogTruncated
from ...rest.api.what_if import INSTEAD, MAX_MEMORY_BYTES, MAX_SIMULATED_EVENTS, MAX_TIME_S, WhatIfRequest
from ...rest.api.what_if_result import WhatIfUpdate
from ...rest.errors import BadRequest, NotFound, Unavailable
from ...rest.process_stream import limit_process
from .result import create_result
from .scenario import ScenarioError
from .scenario_parser import parse_scenario
from .source_history import SourceHistory
from .what_if import simulate

_INTERVAL_S: Final = 0.25


class _TooLong(Exception):
    """The simulation has too many events."""


class _Progress:
    """Writes how far the simulation is, a few times a second."""

    def __init__(self) -> None:
        self.read = self.simulated = 0
        self._written_s = 0.0

    def on_read(self, count: int) -> None:
        """So many events have been read since the last part of the log began."""
        self.read = max(self.read, count)
        self._write_sometimes()

    def on_simulated(self, count: int) -> None:
        """So many events are simulated. Raises _TooLong."""
        self.simulated = count
        if count > MAX_SIMULATED_EVENTS:
            raise _TooLong
        self._write_sometimes()

    def write(self) -> None:
        """Writes it now."""
        self._written_s = time.monotonic()
        _write(WhatIfUpdate(read=self.read, simulated=self.simulated))

    def _write_sometimes(self) -> None:
        if time.monotonic() - self._written_s >= _INTERVAL_S:
            self.write()


def main() -> None:
    """Answers the request on stdin."""
    limit_process(MAX_MEMORY_BYTES, int(MAX_TIME_S))
    request: WhatIfRequest = pickle.load(sys.stdin.buffer)
    progress = _Progress()
    try:
        _write(_run(request, progress))
    except (ScenarioError, InvalidPosition) as error:
        _fail(progress, str(error), BadRequest.status)
    except PositionOutOfRange as error:
        _fail(progress, str(error), NotFound.status)
    except (LogUnavailable, LogTruncated, ArchiveError) as error:
        _fail(progress, str(error), Unavailable.status)
    except MemoryError:
        gib = MAX_MEMORY_BYTES >> 30
        _fail(progress, f"The simulation needs more than {gib} GiB: {INSTEAD}.", Unavailable.status)
    except _TooLong:
        count = f"{MAX_SIMULATED_EVENTS:,}"
        _fail(progress, f"The simulation has more than {count} events: {INSTEAD}.", Unavailable.status)


def _run(request: WhatIfRequest, progress: _Progress) -> WhatIfUpdate:
    scenario = parse_scenario(request.scenario)
    with request.open_source() as source:
        end = source.log.end() - 1
        offset = end if request.at is None else source.at(LogPosition.parse(request.at))
        # The server answers the request: what is wrong with it is known by now.
        progress.write()
        history = SourceHistory(source, offset, progress.on_read)
        found = simulate(history, scenario, progress.on_simulated)
    return WhatIfUpdate(read=progress.read, simulated=progress.simulated, result=create_result(found))


def _write(update: WhatIfUpdate) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(update) + b"\n")
    sys.stdout.buffer.flush()


def _fail(progress: _Progress, error: str, status: int) -> Never:
    _write(WhatIfUpdate(read=progress.read, simulated=progress.simulated, error=error, status=status))
    sys.exit(0)


if __name__ == "__main__":
    main()
