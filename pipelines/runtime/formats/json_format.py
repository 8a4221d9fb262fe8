"""JSON: one value in each message. An object becomes a dict, or the declared dataclass or NamedTuple."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa

from ...types import RecordType
from ..records.batch import Batch
from ..records.record_validation import create_validator
from .record_conversion import RecordConversion, create_conversion


class JsonReader:
    """Decodes a batch in one call if no value contains a line break, else value by value."""

    def __init__(self, record_type: RecordType) -> None:
        self._shape = create_conversion(record_type)
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(self._shape.type)
        self._validate = create_validator(record_type, decoded=True)

    def read(self, timestamps: pa.Int64Array, values: pa.BinaryArray) -> Batch:
        texts: list[bytes] = values.to_pylist()
        joined = b"" if len(texts) == 1 else b"\n".join(texts)  # one alone has a path without an index
        if len(texts) > 1 and joined.count(b"\n") == len(texts) - 1 and all(texts):
            records = self._decoder.decode_lines(joined)
            if len(records) != len(texts):
                raise ValueError("a value is not JSON")
        else:
            records = list(map(self._decoder.decode, texts))
        convert = self._shape.to_record
        if convert is not None:
            records = list(map(convert, records))
        if self._validate is not None:
            self._validate(records, "$")
        return Batch(timestamps.to_numpy().tolist(), records)


class JsonWriter:
    """Writes dataclasses and NamedTuples as objects, other tuples as arrays."""

    def __init__(self, record_type: RecordType) -> None:
        self._shape: RecordConversion = create_conversion(record_type)
        self._encoder = msgspec.json.Encoder()

    def write(self, batch: Batch) -> list[bytes]:
        encode = self._encoder.encode
        convert = self._shape.of_record
        if convert is not None:
            return [encode(convert(value)) for value in batch.values]
        if self._shape.type is Any:
            return [encode(_as_object(value)) for value in batch.values]
        return list(map(encode, batch.values))


def _as_object(value: Any) -> Any:
    return value._asdict() if isinstance(value, tuple) and hasattr(value, "_asdict") else value
