"""A sink that a user has written: pipelines/functions/transactional_sink.py has its contract.

A transaction is a file of the rolling sink (rolling_sink.py), which is published by a call of the user's `commit`. The
file's name is the transaction's id: `<sink>-<subtask>-<number>`, and `-<generation>` after a rollback. `<sink>` is
derived from the job and the operator. A transaction that another subtask or job takes over keeps its id.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from ...functions import TransactionalSink
from ..common.failures import TaskError
from ..records.batch import Batch
from ..records.buffers import BufferCodec
from ..records.older_records import OlderRecordReader
from ..records.type_evolution import TypeMismatch, from_layout, to_layout
from .files.pending_files import PendingFile
from .operator import OperatorSetup
from .rolling_sink import ROLL_BYTES, RollingSink, RollLimits, name_sink
from .user_functions import load, typed_by, user_code


class TransactionalSinkParameters(msgspec.Struct, frozen=True):
    """The parameters of the sink in OperatorConfig.parameters."""

    roll_records: int
    roll_ms: int


class TransactionalSinkOperator(RollingSink):
    """Commits the transactions of one subtask."""

    def __init__(self, setup: OperatorSetup) -> None:
        parameters = msgspec.convert(dict(setup.parameters), TransactionalSinkParameters)
        (record_type,) = setup.input_types
        limits = RollLimits(parameters.roll_records, ROLL_BYTES, parameters.roll_ms)
        super().__init__(setup, limits, msgspec.json.encode(to_layout(record_type)))
        self._sink: TransactionalSink[Any]
        (self._sink,) = load(setup.config)
        self._record_type = record_type
        self._codec = BufferCodec(record_type)
        self._beginning = f"{name_sink(setup, 16)}-{setup.context.subtask_index}-"

    def open(self) -> None:
        with user_code(self._setup.config):
            self._sink.open(self._setup.context)
        super().open()

    def process(self, batch: Batch, input_index: int = 0) -> None:
        self._gather(batch)

    def close(self) -> None:
        with user_code(self._setup.config):
            self._sink.close()

    def _name(self, number: int, bucket: str) -> str:
        del bucket
        generation = self._setup.generation
        return f"{self._beginning}{number}{f'-{generation}' if generation else ''}"

    def _encode(self, batch: Batch) -> bytes:
        with typed_by(self._setup.config):
            return self._codec.payload(batch)

    def _publish(self, file: PendingFile) -> None:
        is_own = file.form in (self._form, b"")
        read = self._codec.read_payload if is_own else self._reader_of(file.form)
        records = [value for chunk in file.chunks for value in read(chunk, 0).values]
        place = f"transaction {file.name}, which is committed again when the task restarts"
        with user_code(self._setup.config, place=lambda: place):
            self._sink.commit(file.name, records)

    def _reader_of(self, form: bytes) -> Callable[[bytes, int], Batch]:
        """Returns what reads chunks that an earlier program has written with another record type."""
        try:
            written = from_layout(msgspec.json.decode(form))
            return OlderRecordReader(written, self._record_type).read_payload
        except TypeMismatch as error:
            raise TaskError(
                f"transactional_sink {self._setup.config.name!r} has transactions of an earlier program, and cannot"
                f" read their records as {self._record_type}: {error}; go back to that type until they are committed"
            ) from error
