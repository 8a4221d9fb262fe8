"""file_sink: writes files into a directory. A file is complete when it appears, and each record is in exactly one of
them.

Records that are not in a published file are state (files/pending_files.py): the task's transaction writes them to the
changelog. After the file is closed and that is committed, the sink writes the file from the changelog's bytes. After a
crash in between, the next attempt writes it at its first commit; an attempt with a successor publishes nothing more
(files/output_directory.py). The cost: records travel through Kafka once more, and stay in memory until their file is
closed.

A file is closed when it has `roll_records` records, `roll_ms` after its first record by the wall clock, at the commit
at which it has reached ROLL_BYTES, and at the end. Its name has the sink (from job and operator), the subtask and the
number of the file: `<prefix>-<sink>-<subtask>-<number>.<suffix>`. So a later job writes beside the files of an earlier
one, never over them.

A job that rolls back to a checkpoint writes the later files again: first it removes those that it had published since,
and the names of new ones have the generation, `...-<number>-<generation>.<suffix>`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from ..common.failures import TaskError
from ..records.batch import Batch, concatenate
from ..records.buffers import MAX_WATERMARK
from ..state_backend.stateful import Origin
from .files.file_writer import SinkFormat, file_writer
from .files.output_directory import AttemptSuperseded, create_output_directory
from .files.pending_files import PendingFiles
from .operator import Operator, OperatorSetup
from .user_functions import user_code

ROLL_BYTES: Final = 64 << 20
"""The size of the encoded records of a file, which are in memory."""


class FileSinkParameters(msgspec.Struct, frozen=True):
    """The parameters of the sink in OperatorConfig.parameters."""

    path: str
    format: SinkFormat = "text"
    prefix: str = "part"
    roll_records: int | None = None
    roll_ms: int | None = None
    options: Mapping[str, str] | None = None
    """Of Spark's writer."""


class FileSinkOperator(Operator):
    """Writes the files of one subtask."""

    def __init__(self, setup: OperatorSetup) -> None:
        self._setup = setup
        self._parameters = parameters = msgspec.convert(dict(setup.parameters), FileSinkParameters)
        (record_type,) = setup.input_types
        self._writer = file_writer(parameters.format, record_type, parameters.options, setup.spark)
        self._directory = create_output_directory(parameters.path)
        # The number of hexadecimal digits that distinguishes the sinks of one directory.
        names = f"{setup.cluster}/{setup.job_id}/{setup.config.operator_id}"
        sink = hashlib.sha256(names.encode()).hexdigest()[:8]
        self._beginning = f"{parameters.prefix}-{sink}-{setup.context.subtask_index}-"
        self._files = PendingFiles(self._name)
        self._origins: list[PendingFiles] = []
        self._from_origin = False
        self._gathered: list[Batch] = []
        self._gathered_records = 0
        self._opened_at = 0
        self._rolled = False

    def restore(self, message: bytes) -> None:
        (self._origins[-1] if self._from_origin else self._files).restore(message)

    def restore_from(self, origin: Origin | None) -> None:
        self._from_origin = origin is not None
        if origin is not None:
            self._origins.append(PendingFiles(self._name))
        else:
            self._files.take_in(self._origins)
            self._origins.clear()

    def open(self) -> None:
        try:
            self._directory.begin(self._beginning, self._setup.generation, self._setup.context.attempt_number)
            self._remove_superseded()
        except OSError as error:
            raise self._failed("could not be used", error) from error
        self._files.own()
        self._rolled = bool(self._files.closed)

    def process(self, batch: Batch, input_index: int = 0) -> None:
        start = 0
        while start < len(batch):
            file = self._files.open_file
            if file is None and not self._gathered:
                self._opened_at = self._setup.wall_clock()
            stop = len(batch)
            if self._parameters.roll_records is not None:
                filled = self._gathered_records + (0 if file is None else file.records)
                stop = min(stop, start + self._parameters.roll_records - filled)
                full = stop - start + filled == self._parameters.roll_records
            else:
                full = False
            self._gathered.append(batch if stop - start == len(batch) else batch.slice(start, stop))
            self._gathered_records += stop - start
            if full:
                self._close()
            start = stop

    @property
    def next_clock(self) -> int:
        file = self._files.open_file
        if self._parameters.roll_ms is None or (file is None and not self._gathered):
            return MAX_WATERMARK
        return (self._opened_at if file is None else file.opened_at) + self._parameters.roll_ms - 1

    def advance_clock(self, clock: int) -> None:
        if self._is_old():
            self._close()

    def before_commit(self) -> None:
        self._fill()
        file = self._files.open_file
        if file is not None and (file.size >= ROLL_BYTES or self._is_old()):
            self._close()

    def finish(self) -> None:
        self._close()

    @property
    def wants_commit(self) -> bool:
        return self._rolled

    def take_changes(self) -> Iterable[bytes]:
        self._rolled = False
        return self._files.take_changes()

    def full(self, sections: Sequence[range]) -> Iterator[tuple[range | None, bytes]]:
        return ((None, message) for message in self._files.full())

    def committed(self) -> None:
        self._publish()

    def close(self) -> None:
        self._directory.close()

    def _name(self, number: int) -> str:
        generation = self._setup.generation
        behind = f"-{generation}" if generation else ""
        return f"{self._beginning}{number}{behind}{self._writer.suffix}"

    def _remove_superseded(self) -> None:
        """Removes files of older generations that were published after the checkpoint that the job rolled back to.

        Files that a later attempt finds existed at the checkpoint: the first attempt of the generation has removed the
        others.
        """
        if not self._setup.generation:
            return
        for name in self._directory.names(self._beginning):
            number, _, generation = name[len(self._beginning) :].partition(".")[0].partition("-")
            older = int(generation or 0) < self._setup.generation
            if older and int(number) >= self._files.first_unclosed:
                self._directory.remove(name)

    def _is_old(self) -> bool:
        """Whether the open file has reached its maximum age."""
        return self._setup.wall_clock() > self.next_clock

    def _fill(self) -> None:
        """Encodes the collected records as a chunk."""
        if self._gathered:
            batch = concatenate(self._gathered)
            with user_code(self._setup.config):
                chunk = self._writer.chunk(batch)
            self._files.fill(len(batch), chunk, self._opened_at)
            self._gathered.clear()
            self._gathered_records = 0

    def _close(self) -> None:
        self._fill()
        if self._files.open_file is not None:
            self._files.close()
            self._rolled = True

    def _publish(self) -> None:
        """Publishes the closed files, whose close is committed."""
        for file in self._files.closed:
            try:
                self._directory.publish(
                    file.name,
                    lambda out, file=file: self._writer.write(file.chunks, out),  # type: ignore[misc]
                )
            except AttemptSuperseded as error:
                raise TaskError(
                    f"file_sink {self._setup.config.name!r} was fenced: a newer attempt of this subtask writes to"
                    f" {self._parameters.path}, and has removed {error} there (if nobody else has)"
                ) from error
            except OSError as error:
                raise self._failed("could not be written to", error) from error
            self._files.published(file.number)

    def _failed(self, what: str, error: OSError) -> TaskError:
        return TaskError(
            f"file_sink {self._setup.config.name!r}: {self._parameters.path} {what}: {error.strerror or error};"
            " no record is lost: the missing files are written when the task restarts, so correct this first"
        )
