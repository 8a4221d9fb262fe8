"""The parameters of a Kafka sink."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from ....infra.kafka_connection import KafkaConnection
from ....schemas.types import OperatorConfig
from ...types import PICKLED, RecordType
from ..formats import ValueFormat


class KafkaSinkParameters(msgspec.Struct, frozen=True):
    """The parameters of an operator of kind KAFKA_SINK."""

    format: ValueFormat
    topic: str | None = None
    """None: a function of the record returns it."""
    key_format: ValueFormat | None = None
    """None: a key is bytes, str or None."""
    key_type: Any = None
    takes_kafka_records: bool = False
    """Whether the records are KafkaRecords."""
    connection: KafkaConnection | None = None
    """The cluster to write to; None: the job's own."""

    @classmethod
    def from_config(cls, config: OperatorConfig) -> KafkaSinkParameters:
        """Reads the operator's parameters. Raises msgspec.ValidationError."""
        return msgspec.convert(json.loads(config.parameters), cls)

    @property
    def record_type_of_keys(self) -> RecordType:
        """Returns the type of the keys."""
        return PICKLED if self.key_type is None else RecordType.from_json(self.key_type)
