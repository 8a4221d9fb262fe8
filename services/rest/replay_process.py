"""The process that checks a log for a REST server (api/replay.py)."""

from __future__ import annotations

import pickle
import sys
import time
from typing import Final

import msgspec

from ..history.archive.errors import ArchiveError
from ..history.log_position import InvalidPosition, PositionOutOfRange
from ..history.replay.log_check import check_log
from ..history.time_travel import state_hash
from ..log import LogUnavailable
from ..log.event_log import LogTruncated
from .api.events import find_end, find_start
from .api.replay import (
    INSTEAD,
    MAX_MEMORY_BYTES,
    MAX_TIME_S,
    ReplayDifference,
    ReplayRequest,
    ReplayResult,
    ReplayUpdate,
)
from .errors import BadRequest, NotFound, RestError, Unavailable
from .process_stream import limit_process

_INTERVAL_S: Final = 0.25


def main() -> None:
    """Answers the request on stdin."""
    limit_process(MAX_MEMORY_BYTES, int(2 * MAX_TIME_S))
    try:
        _check(pickle.load(sys.stdin.buffer))
    except (InvalidPosition, BadRequest) as error:
        _fail(str(error), BadRequest)
    except (PositionOutOfRange, NotFound) as error:
        _fail(str(error), NotFound)
    except (LogUnavailable, LogTruncated, ArchiveError) as error:
        _fail(str(error), Unavailable)
    except MemoryError:
        _fail(f"The replay check needs more than {MAX_MEMORY_BYTES >> 30} GiB: {INSTEAD}.", Unavailable)


def _check(request: ReplayRequest) -> None:
    deadline, written_s = time.monotonic() + MAX_TIME_S, 0.0
    with request.open_source() as source:
        end = find_end(source, request.end)
        start = None if request.start is None else find_start(source, request.start)
        if start is not None and start >= end:
            raise BadRequest(f"from={request.start} is after the end of the part.")

        def show(offset: int) -> None:
            nonlocal written_s
            now_s = time.monotonic()
            if now_s - written_s >= _INTERVAL_S:
                written_s = now_s
                _write(ReplayUpdate(offset=offset, end=end))

        # The server answers the request: what is wrong with it is known by now.
        show(start or 0)
        found = check_log(
            source,
            end,
            request.most,
            start=start,
            on_progress=show,
            is_over=lambda: time.monotonic() > deadline,
        )
    replica = found.check.replica
    result = ReplayResult(
        replica.offset,
        found.is_complete,
        found.check.counts,
        [ReplayDifference.of(each) for each in found.differences],
        state_hash(replica),
        replica.leadership.feature_level,
    )
    _write(ReplayUpdate(offset=replica.offset + 1, end=end, result=result))


def _fail(error: str, kind: type[RestError]) -> None:
    _write(ReplayUpdate(error=error, status=kind.status))


def _write(update: ReplayUpdate) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(update) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
