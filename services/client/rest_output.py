"""Reads the output of a job's print sinks by REST, in pages."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from ..configuration import Configuration
from ..configuration.options.rest import REST_URL
from ..log import LogUnavailable
from ..log.rest_log import PATIENCE_S, RequestRefused, RestConnection
from .print_output import OutputDenied, OutputRecord, ReadOutput, read_output

_PAGE: Final = 1_000
_POLL_S: Final = 0.5
_NOT_ALLOWED: Final = frozenset({401, 403})


def output_reader(configuration: Configuration) -> ReadOutput:
    """Returns the function that reads the output of jobs from Kafka, or by REST if a server is configured."""
    return read_output_by_rest if configuration.get(REST_URL) else read_output


def read_output_by_rest(
    configuration: Configuration, job_id: str, *, over: Callable[[], bool] = lambda: True
) -> Iterator[OutputRecord]:
    """Like `read_output`. Records have no `record`. Raises RequestRefused besides."""
    connection = RestConnection(configuration)
    position, answered_at = 0, None
    while True:
        is_last_round = over()
        try:
            page = _read_page(connection, job_id, position)
        except OutputDenied:
            raise
        except LogUnavailable:
            if answered_at is None or time.monotonic() > answered_at + PATIENCE_S:
                raise
            time.sleep(_POLL_S)
            continue
        answered_at = time.monotonic()
        if page is not None:
            for line in page["lines"]:
                yield OutputRecord(
                    line["offset"],
                    line["timestamp"],
                    line["subtask"],
                    line["identifier"],
                    line["text"],
                    None,
                )
            if page["next"] > position:
                # The last round ends only where nothing follows.
                position = page["next"]
                continue
        if is_last_round:
            return
        time.sleep(_POLL_S)


def _read_page(connection: RestConnection, job_id: str, position: int) -> Any:
    """Returns None if the job has no topic of output, or not yet."""
    try:
        page, _ = connection.get(f"/api/v1/jobs/{job_id}/output", {"from": position, "limit": _PAGE})
    except RequestRefused as error:
        if error.status == 404:
            return None
        raise OutputDenied(str(error)) if error.status in _NOT_ALLOWED else error from None
    return page
