"""Debezium's envelope as JSON: `op`, `before`, `after` and `ts_ms`, alone or as the payload beside Connect's schema.

A writer of ChangeEvents needs no format of its own: their JSON is the envelope.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa

from ...functions.change_event import ChangeEvent
from ...types import RecordType
from ..common.failures import TaskError
from ..records.batch import Batch
from ..records.record_validation import create_validator
from .record_conversion import create_conversion

_FIELDS = ("op", "before", "after", "ts_ms")


class DebeziumReader:
    """Reads ChangeEvents."""

    def __init__(self, record_type: RecordType) -> None:
        columns = dict(record_type.columns())
        if tuple(columns) != _FIELDS:
            raise TaskError(
                f"Debezium's change events cannot be read into records of type {record_type}: declare"
                " output_type=ChangeEvent[T], where T is the type of a row"
            )
        row = create_conversion(columns["after"])
        self._to_row = row.to_record
        envelope = msgspec.defstruct(
            "Envelope",
            [
                ("op", str),
                ("before", row.type | None, None),
                ("after", row.type | None, None),
                ("ts_ms", int | None, None),
            ],
        )
        self._plain: msgspec.json.Decoder[Any] = msgspec.json.Decoder(envelope)
        self._wrapped: msgspec.json.Decoder[Any] = msgspec.json.Decoder(
            msgspec.defstruct("Message", [("payload", envelope)])
        )
        self._keys: msgspec.json.Decoder[Any] = msgspec.json.Decoder(dict[str, msgspec.Raw])
        self._validate = create_validator(record_type, decoded=True)

    def read(self, timestamps: pa.Int64Array, values: pa.BinaryArray) -> Batch:
        records = list(map(self._event, values.to_pylist()))
        if self._validate is not None:
            self._validate(records, "$")
        return Batch(timestamps.to_pylist(), records)

    def _event(self, value: bytes) -> ChangeEvent[Any]:
        keys = self._keys.decode(value).keys()
        found = self._wrapped.decode(value).payload if "payload" in keys else self._plain.decode(value)
        before, after = found.before, found.after
        if self._to_row is not None:
            before, after = self._to_row(before), self._to_row(after)
        return ChangeEvent(found.op, before, after, found.ts_ms)
