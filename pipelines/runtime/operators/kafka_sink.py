"""The sink into a Kafka topic: one message for each record, in the task's transaction.

So readers of committed records see each result once, together with the progress that it belongs to. A message with a
key goes to the partition that Java's clients would choose for it (murmur2), one without a key to any. It has the
record's timestamp, unless that is more than five minutes ahead: such a message has the time of writing. Brokers refuse
messages from the future (`message.timestamp.after.max.ms`, an hour by default; KIP-937), so the results of a window
that has not ended when the input ends could never be written.

The topic must exist when the task opens. A missing topic is refused, unless the broker creates it on request
(`auto.create.topics.enable`).
"""

from __future__ import annotations

from typing import Any, Final

from ..common.failures import RecordRejected, TaskError
from ..formats import ValueFormat, ValueWriter, create_writer
from ..records.batch import Batch
from .operator import Operator, OperatorSetup
from .user_functions import OrderedCalls, close_function, load, open_function, user_code

AHEAD_MS: Final = 300_000
"""How far ahead of this machine's clock a message's timestamp may be."""


class KafkaSinkOperator(Operator):
    """Writes values in a format; the key is the result of a function of the record (bytes, str or None)."""

    def __init__(self, setup: OperatorSetup) -> None:
        self._setup = setup
        self._topic: str = setup.parameters["topic"]
        self._format = ValueFormat.from_parameters(setup.parameters["format"])
        (self._key,) = load(setup.config) or (None,)
        self._writer: ValueWriter | None = None

    def open(self) -> None:
        setup = self._setup
        setup.require_topic(self._topic)
        self._writer = create_writer(self._format, setup.input_types[0], self._topic)
        with user_code(setup.config):
            open_function(self._key, setup.context)

    def process(self, batch: Batch, input_index: int = 0) -> None:
        values, keys = self._values(batch), self._keys(batch)
        send, topic = self._setup.send, self._topic
        now = self._setup.wall_clock()
        latest = now + AHEAD_MS
        for value, key, timestamp in zip(values, keys, batch.timestamps, strict=True):
            # Kafka has no times before 1970 (-1 means none), and for 0 the client takes the time of sending.
            at = max(1, timestamp) if timestamp <= latest else now
            send(topic, value, key=key, timestamp_ms=at)

    def close(self) -> None:
        with user_code(self._setup.config):
            close_function(self._key)

    def _values(self, batch: Batch) -> list[bytes]:
        assert self._writer is not None
        try:
            return self._writer.write(batch)
        except TaskError:
            raise
        except Exception as error:
            raise self._refusal(batch, error) from error

    def _refusal(self, batch: Batch, error: Exception) -> RecordRejected:
        """Returns the error that names the record."""
        assert self._writer is not None
        refused = None
        for index in range(len(batch)):
            one = batch.slice(index, index + 1)
            try:
                self._writer.write(one)
            except Exception as own:
                error, refused = own, index
                shown = f" the record {one.values[0]!r:.200}"
                break
        else:
            shown = " a record"
        config = self._setup.config
        at = f" ({config.location})" if config.location else ""
        refusal = RecordRejected(
            f"operator {config.name!r}{at} cannot write{shown} to {self._topic} as {self._format.kind}:"
            f" {type(error).__name__}: {' '.join(str(error).split())[:300]}"
        )
        refusal.index = refused
        return refusal

    def _keys(self, batch: Batch) -> list[bytes | None]:
        if self._key is None:
            return [None] * len(batch)
        records = OrderedCalls(batch)
        with user_code(self._setup.config, records):
            return [_as_bytes(key) for key in map(self._key, records)]


def _as_bytes(key: Any) -> bytes | None:
    match key:
        case None | bytes():
            return key
        case str():
            return key.encode()
        case _:
            raise TypeError(f"the key of a Kafka message is bytes, str or None, not {type(key).__name__}")
