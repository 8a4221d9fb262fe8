"""A sink that a user has written: pipelines/functions/transactional_sink.py has its contract.

A transaction is a file of the file sink (file_sink.py) in another place: its records are state (files/pending_files.py)
until they are published, which here is a call of the user's `commit`; its name is the transaction's id:
`<sink>-<subtask>-<number>`, and `-<generation>` after a rollback. `<sink>` is derived from the job and the operator. A
transaction that another subtask or job takes over keeps its id.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from ...functions import TransactionalSink
from ..records.batch import Batch, concatenate
from ..records.buffers import MAX_WATERMARK, BufferCodec
from ..state_backend.stateful import Origin
from .files.pending_files import PendingFile, PendingFiles
from .operator import Operator, OperatorSetup
from .user_functions import load, typed_by, user_code

ROLL_BYTES: Final = 64 << 20
"""The size of the encoded records of a transaction, which are in memory."""


class TransactionalSinkParameters(msgspec.Struct, frozen=True):
    """The parameters of the sink in OperatorConfig.parameters."""

    roll_records: int
    roll_ms: int


class TransactionalSinkOperator(Operator):
    """Commits the transactions of one subtask."""

    def __init__(self, setup: OperatorSetup) -> None:
        self._setup = setup
        self._parameters = msgspec.convert(dict(setup.parameters), TransactionalSinkParameters)
        self._sink: TransactionalSink[Any]
        (self._sink,) = load(setup.config)
        (record_type,) = setup.input_types
        self._codec = BufferCodec(record_type)
        names = f"{setup.cluster}/{setup.job_id}/{setup.config.operator_id}"
        sink = hashlib.sha256(names.encode()).hexdigest()[:16]
        self._beginning = f"{sink}-{setup.context.subtask_index}-"
        self._transactions = PendingFiles(self._name)
        self._origins: list[PendingFiles] = []
        self._from_origin = False
        self._gathered: list[Batch] = []
        self._gathered_records = 0
        self._opened_at = 0
        self._has_closed = False

    def restore(self, message: bytes) -> None:
        (self._origins[-1] if self._from_origin else self._transactions).restore(message)

    def restore_from(self, origin: Origin | None) -> None:
        self._from_origin = origin is not None
        if origin is not None:
            self._origins.append(PendingFiles(self._name))
        else:
            self._transactions.take_in(self._origins)
            self._origins.clear()

    def open(self) -> None:
        with user_code(self._setup.config):
            self._sink.open(self._setup.context)
        self._transactions.own()
        self._has_closed = bool(self._transactions.closed)

    def process(self, batch: Batch, input_index: int = 0) -> None:
        start = 0
        while start < len(batch):
            current = self._transactions.open_file
            if current is None and not self._gathered:
                self._opened_at = self._setup.wall_clock()
            filled = self._gathered_records + (0 if current is None else current.records)
            stop = min(len(batch), start + self._parameters.roll_records - filled)
            self._gathered.append(batch if stop - start == len(batch) else batch.slice(start, stop))
            self._gathered_records += stop - start
            if stop - start + filled == self._parameters.roll_records:
                self._close_transaction()
            start = stop

    @property
    def next_clock(self) -> int:
        current = self._transactions.open_file
        if current is None and not self._gathered:
            return MAX_WATERMARK
        return (self._opened_at if current is None else current.opened_at) + self._parameters.roll_ms - 1

    def advance_clock(self, clock: int) -> None:
        if self._is_old():
            self._close_transaction()

    def before_commit(self) -> None:
        self._fill()
        current = self._transactions.open_file
        if current is not None and (current.size >= ROLL_BYTES or self._is_old()):
            self._close_transaction()

    def finish(self) -> None:
        self._close_transaction()

    @property
    def wants_commit(self) -> bool:
        return self._has_closed

    def take_changes(self) -> Iterable[bytes]:
        self._has_closed = False
        return self._transactions.take_changes()

    def full(self, sections: Sequence[range]) -> Iterator[tuple[range | None, bytes]]:
        return ((None, message) for message in self._transactions.full())

    def committed(self) -> None:
        for transaction in self._transactions.closed:
            self._commit(transaction)
            self._transactions.published(transaction.number)

    def close(self) -> None:
        with user_code(self._setup.config):
            self._sink.close()

    def _name(self, number: int, bucket: str) -> str:
        del bucket
        generation = self._setup.generation
        return f"{self._beginning}{number}{f'-{generation}' if generation else ''}"

    def _is_old(self) -> bool:
        """Whether the open transaction has reached its maximum age."""
        return self._setup.wall_clock() > self.next_clock

    def _fill(self) -> None:
        """Encodes the collected records as a chunk."""
        if self._gathered:
            batch = concatenate(self._gathered)
            with typed_by(self._setup.config):
                chunk = self._codec.payload(batch)
            self._transactions.fill(len(batch), chunk, self._opened_at)
            self._gathered.clear()
            self._gathered_records = 0

    def _close_transaction(self) -> None:
        self._fill()
        if self._transactions.open_file is not None:
            self._transactions.close()
            self._has_closed = True

    def _commit(self, transaction: PendingFile) -> None:
        records = [value for chunk in transaction.chunks for value in self._codec.read_payload(chunk).values]
        place = f"transaction {transaction.name}, which is committed again when the task restarts"
        with user_code(self._setup.config, place=lambda: place):
            self._sink.commit(transaction.name, records)
