"""Hands records to a keyed operator in the chain of its sender, as a channel between two tasks would.

A keyed operator keeps records in its state. So it gets records that nobody else holds, and that have exactly the
declared type of the stream. Otherwise results would depend on the parallelism. Records that are so already are passed
on as they are. Behind a channel, size is limited, too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

from ....schemas.types import OperatorConfig
from ...graph.chain import output_type
from ...types import PICKLED, RecordType
from ..records.batch import Batch
from ..records.buffers import BufferCodec
from ..records.record_copying import is_atom
from ..records.small_batches import MAX_SMALL_ROWS, SmallBatchCodec, create_value_check
from .user_functions import typed_by, within_limits

_BYTES_A_BYTE: Final = 2
"""The largest number of bytes that UTF-8 has for one byte of a string in memory."""


class LocalExchange:
    """Takes the records of one output of a sender."""

    def __init__(self, sender: OperatorConfig, output_tag: str | None, *, limits_size: bool = False) -> None:
        """`limits_size`: whether it refuses records that are too large for a channel."""
        self._sender = sender
        self._errors = within_limits if limits_size else typed_by
        self._record_type = output_type(sender, output_tag)
        self._codec = SmallBatchCodec(self._record_type)
        self._can_share = _sharing_check(self._record_type)
        self._limit = BufferCodec(self._record_type) if limits_size else None

    def take(self, batch: Batch) -> Batch:
        """Returns the records as the receiver takes them. Raises UserCodeError of the sender for a value of another
        type, and TaskError for a record that is too large."""
        with self._errors(self._sender):
            if not batch.is_columnar:
                values = batch.values
                if self._can_share is not None and all(map(self._can_share, values)):
                    if self._limit is not None:
                        self._limit.check_sizes(batch, _BYTES_A_BYTE * _memory_bytes(values))
                    return batch
                if len(values) <= MAX_SMALL_ROWS:
                    encoded = self._codec.encode(batch.timestamps, values)
                    if encoded is not None:
                        if self._limit is not None:
                            self._limit.check_sizes(batch, len(encoded))
                        return Batch(*self._codec.decode(encoded))
            columns = batch.columns(self._record_type)
            if self._limit is not None:
                self._limit.check_sizes(batch, sum(column.nbytes for column in columns))
        return Batch.from_columns(batch.timestamp_column(), columns, self._record_type)


def _sharing_check(record_type: RecordType) -> Callable[[Any], bool] | None:
    """Returns a check whether a record can be shared; None if no record of the type can."""
    if record_type is PICKLED:
        return is_atom
    return create_value_check(record_type) if record_type.immutable else None


def _memory_bytes(values: Sequence[Any]) -> int:
    """Returns the size of immutable records in memory."""
    size = 0
    while values:
        size += sum(map(sys.getsizeof, values))
        values = [part for value in values if type(value) is tuple for part in value]
    return size
