"""What a format is asked for, what it gives, and which values of a batch are bad."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Protocol

import msgspec
import pyarrow as pa

from ..common.failures import TaskError, one_line
from ..records.batch import EMPTY, Batch, concatenate


class FormatKind(StrEnum):
    """`kind` of a format."""

    TEXT = "text"
    """UTF-8."""
    RAW = "raw"
    """The bytes as they are."""
    JSON = "json"
    AVRO = "avro"


class Framing(StrEnum):
    """What stands before an Avro body."""

    SINGLE_OBJECT = "single-object"
    """The Avro specification's marker and schema fingerprint."""
    REGISTRY = "registry"
    """Confluent's wire format: a zero byte and the id of the schema in a registry."""
    NONE = "none"
    """Nothing: both sides know the schema."""


class ValueFormat(msgspec.Struct, frozen=True):
    """`format` among the parameters of a Kafka source or sink; `schema` is Avro's, as JSON text."""

    kind: FormatKind
    schema: str | None = None
    framing: Framing | None = None
    registry: str | None = None

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, Any]) -> ValueFormat:
        """Reads a parameter. Raises msgspec.ValidationError."""
        return msgspec.convert(parameters, cls)

    @property
    def framed(self) -> Framing:
        """The framing of an Avro format: through the registry where there is one, else single-object."""
        if self.framing is not None:
            return self.framing
        return Framing.SINGLE_OBJECT if self.registry is None else Framing.REGISTRY


class ValueReader(Protocol):
    """Records out of values."""

    def read(self, timestamps: pa.Int64Array, values: pa.BinaryArray) -> Batch:
        """The records of the values, none of which is null, in order.

        Raises TaskError where none can be read now, anything else where a value is bad.
        """


class ValueWriter(Protocol):
    """Values out of records."""

    def write(self, batch: Batch) -> list[bytes]:
        """The values of the records, in order. Raises anything where a record does not fit."""


class UnreadableValue(msgspec.Struct, frozen=True):
    """A value that is no record: its place in the batch, and why."""

    index: int
    why: str


def read_valid(
    reader: ValueReader, timestamps: pa.Int64Array, values: pa.BinaryArray
) -> tuple[Batch, list[UnreadableValue]]:
    """The records of the good values, and the bad ones. Raises TaskError.

    A batch is read as a whole; one with bad values in it is halved until they are alone.
    """
    if not len(values):
        return EMPTY, []
    try:
        return reader.read(timestamps, values), []
    except TaskError:
        raise
    except Exception as error:
        if len(values) == 1:
            return EMPTY, [UnreadableValue(0, one_line(error))]
    middle = len(values) // 2
    first, bad = read_valid(reader, timestamps[:middle], values[:middle])
    second, worse = read_valid(reader, timestamps[middle:], values[middle:])
    return concatenate([first, second]), [
        *bad,
        *(UnreadableValue(middle + each.index, each.why) for each in worse),
    ]
