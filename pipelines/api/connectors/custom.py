"""Checks sources and sinks that users write."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from ...functions import Source, TransactionalSink
from ...graph.errors import ProgramError
from ..checks import is_whole
from ..source_location import caller_location


def check_custom_source(source: Source[Any], step: str) -> None:
    """Raises ProgramError."""
    name, interval = type(source).__name__, source.discovery_interval
    if not isinstance(source.bounded, bool):
        raise _refusal(step, f"{name}.bounded is {source.bounded!r}, not True or False")
    if interval is not None and not _is_duration(interval):
        raise _refusal(
            step, f"{name}.discovery_interval is {interval!r}, not a timedelta of 1 ms or more, or None"
        )


def check_custom_sink(sink: TransactionalSink[Any], step: str) -> None:
    """Raises ProgramError."""
    name = type(sink).__name__
    if not is_whole(sink.roll_records, 1):
        raise _refusal(step, f"{name}.roll_records is {sink.roll_records!r}, not an integer of 1 or more")
    if not _is_duration(sink.roll_interval):
        raise _refusal(
            step, f"{name}.roll_interval is {sink.roll_interval!r}, not a timedelta of 1 ms or more"
        )


def _is_duration(value: object) -> bool:
    return isinstance(value, timedelta) and value >= timedelta(milliseconds=1)


def _refusal(step: str, reason: str) -> ProgramError:
    return ProgramError(reason, operator=step, location=caller_location())
