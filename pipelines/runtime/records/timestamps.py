"""Timestamps that programs give: integers of 64 bits, in milliseconds since the epoch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from ...types import RecordType, RecordTypeError

_INT: Final = RecordType.of(int)


def encode_timestamps(giver: str, given: Sequence[Any]) -> pa.Int64Array:
    """Returns timestamps as a column. Raises TypeError, which names who gave the wrong one: `the assigner returned`."""
    try:
        return _INT.encode(given)
    except RecordTypeError as error:
        wrong = [each for each in given if not hasattr(each, "__index__")] or [max(given, key=abs)]
        raise TypeError(
            f"{giver} {wrong[0]!r}: a timestamp is an int, milliseconds since the epoch"
        ) from error
