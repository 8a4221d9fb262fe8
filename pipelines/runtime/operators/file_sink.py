"""file_sink: writes files into a directory. A file is complete when it appears, and each record is in exactly one of
them.

Records that are not in a published file are state (rolling_sink.py). An attempt with a successor publishes nothing more
(files/output_directory.py).

A record's file is in its bucket, a directory below the sink's (files/bucket.py). A file is closed when it has
`roll_records` records, `roll_ms` after its first record or `inactivity_ms` after its last one by the wall clock, at the
commit at which it has reached `roll_bytes`, and at the end. If there are too many open files, or too many bytes in all
of them, the one that was written longest ago, or the largest one, is closed.

A file's name has the sink (from job and operator), the subtask and the number of the file:
`<prefix>-<sink>-<subtask>-<number>.<suffix>`. So a later job writes beside the files of an earlier one, never over
them.

A job that rolls back to a checkpoint writes the later files again: first it removes those that it had published since,
and the names of new ones have the generation, `...-<number>-<generation>.<suffix>`. If the job was rescaled, earlier
files with the name of this subtask may be those of another one: none is removed, and numbers begin above all of theirs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from ...types import PICKLED, RecordType
from ..common.failures import TaskError
from ..records.batch import Batch
from ..records.buffers import MAX_WATERMARK, NO_WATERMARK
from ..records.type_evolution import from_layout, to_layout
from ..spark.file_requests import SparkFiles
from .files.bucket import BucketAssigner
from .files.commit_markers import CommitMarkers
from .files.file_writer import FileWriter, SinkFormat, file_writer
from .files.output_directory import AttemptSuperseded, create_output_directory
from .files.pending_files import PendingFile
from .operator import OperatorSetup
from .rolling_sink import ROLL_BYTES, RollingSink, RollLimits, name_sink
from .user_functions import load, user_code

MOST_OPEN_BYTES: Final = 128 << 20
"""The encoded records of all open files of a subtask."""
_WITHOUT_SCHEMA: Final = ("text", "json", "protobuf")
_NUMBERS: Final = 1_000_000_000
"""More files than a subtask writes in a generation."""


class FileSinkParameters(msgspec.Struct, frozen=True):
    """The parameters of the sink in OperatorConfig.parameters."""

    path: str
    format: SinkFormat = "text"
    prefix: str = "part"
    roll_records: int | None = None
    roll_ms: int | None = None
    options: Mapping[str, str] | None = None
    """Of CSV files (graph/csv_options.py), or of Spark's writer."""
    message: str | None = None
    """The message class of Protobuf files (graph/protobuf_classes.py)."""
    bucket: Sequence[str] = ()
    """Fields, and patterns of strftime; see files/bucket.py."""
    roll_bytes: int = 0
    """0: ROLL_BYTES."""
    inactivity_ms: int | None = None
    most_open: int = 100
    """The number of open files of a subtask."""
    success_files: bool = False


class _FileForm(msgspec.Struct, frozen=True):
    """What the writer of a file depends on."""

    format: SinkFormat
    layout: Any
    """Of the record type, without its classes; None for lines and messages, which say what is in them."""
    options: Mapping[str, str] | None
    named_above: Sequence[str]
    message: str | None

    def writer(self, record_type: RecordType, spark: SparkFiles | None) -> FileWriter:
        return file_writer(self.format, record_type, self.options, spark, self.named_above, self.message)


class FileSinkOperator(RollingSink):
    """Writes the files of one subtask."""

    def __init__(self, setup: OperatorSetup) -> None:
        self._parameters = parameters = msgspec.convert(dict(setup.parameters), FileSinkParameters)
        limits = RollLimits(
            parameters.roll_records,
            parameters.roll_bytes or ROLL_BYTES,
            parameters.roll_ms,
            parameters.inactivity_ms,
        )
        (record_type,) = setup.input_types
        functions = load(setup.config)
        self._buckets = (
            BucketAssigner(parameters.bucket, record_type, *functions)
            if parameters.bucket or functions
            else None
        )
        form = _FileForm(
            parameters.format,
            None if parameters.format in _WITHOUT_SCHEMA else to_layout(record_type),
            parameters.options,
            () if self._buckets is None else self._buckets.fields,
            parameters.message,
        )
        super().__init__(setup, limits, msgspec.json.encode(form))
        self._writer = form.writer(record_type, setup.spark)
        self._directory = create_output_directory(parameters.path)
        sink = name_sink(setup, 8)
        context = setup.context
        self._beginning = f"{parameters.prefix}-{sink}-{context.subtask_index}-"
        self._markers = (
            CommitMarkers(
                self._directory,
                f"{parameters.prefix}-{sink}-",
                context.subtask_index,
                context.parallelism,
                setup.generation,
            )
            if parameters.success_files
            else None
        )
        self._watermark = NO_WATERMARK
        self._is_idle = False
        self._has_finished = False

    def open(self) -> None:
        try:
            self._directory.begin(self._beginning, self._setup.generation, self._setup.context.attempt_number)
            if self._setup.is_rescaled:
                self._files.skip_to(self._setup.generation * _NUMBERS)
            self._remove_superseded()
        except OSError as error:
            raise self._failed("could not be used", error) from error
        super().open()

    def process(self, batch: Batch, input_index: int = 0) -> None:
        if self._buckets is None:
            self._gather(batch)
            return
        with user_code(self._setup.config):
            parts = list(self._buckets.divide(batch))
        for part in parts:
            self._gather(part.batch, part.bucket)
            if self._markers is not None and part.end is not None:
                self._files.date(part.bucket, part.end)
        while len(self._open) > self._parameters.most_open:
            self._close(next(iter(self._open)))

    def advance_watermark(self, watermark: int) -> None:
        self._watermark = watermark
        self.output.emit_watermark(watermark)

    def set_idle(self, idle: bool) -> None:
        self._is_idle = idle
        self.output.emit_idle(idle)

    def before_commit(self) -> None:
        super().before_commit()
        files = self._files.open_files
        while sum(file.size for file in files.values()) > MOST_OPEN_BYTES:
            self._close(max(files, key=lambda bucket: files[bucket].size))
        self._pass_time()

    def finish(self) -> None:
        super().finish()
        self._has_finished = True

    @property
    def wants_commit(self) -> bool:
        return super().wants_commit or self._has_passed

    def committed(self) -> None:
        super().committed()
        self._mark()

    def close(self) -> None:
        self._directory.close()

    def _name(self, number: int, bucket: str) -> str:
        generation = self._setup.generation
        behind = f"-{generation}" if generation else ""
        name = f"{self._beginning}{number}{behind}{self._writer.suffix}"
        return f"{bucket}/{name}" if bucket else name

    def _remove_superseded(self) -> None:
        """Removes files of older generations that were published after the checkpoint that the job rolled back to.

        Files that a later attempt finds existed at the checkpoint: the first attempt of the generation has removed the
        others.
        """
        if not self._setup.generation:
            return
        changed = set()
        for name in self._directory.names(self._beginning):
            bucket, _, own = name.rpartition("/")
            number, _, generation = own[len(self._beginning) :].partition(".")[0].partition("-")
            older = int(generation or 0) < self._setup.generation
            if older and not self._files.is_published(int(number)):
                self._directory.remove(name)
                changed.add(bucket)
        if changed and self._markers is not None:
            self._markers.withdraw(changed)

    def _encode(self, batch: Batch) -> bytes:
        with user_code(self._setup.config):
            return self._writer.chunk(batch)

    def _time(self) -> int:
        """Returns the time until which buckets are over (ms)."""
        if self._has_finished:
            return MAX_WATERMARK
        if self._buckets is None or self._buckets.unit is None or self._watermark == NO_WATERMARK:
            return self._files.passed
        return max(self._files.passed, self._buckets.begin_of(self._watermark + 1))

    @property
    def _has_passed(self) -> bool:
        """Whether others do not know yet that this subtask has passed buckets, or is idle."""
        if self._markers is None:
            return False
        return self._markers.would_tell(self._time(), is_idle=self._is_idle and not self._open)

    def _pass_time(self) -> None:
        """Closes the files of buckets that are over."""
        if self._markers is None:
            return
        time, ends = self._time(), self._files.unmarked
        for bucket in [bucket for bucket in self._open if ends.get(bucket, MAX_WATERMARK) <= time]:
            self._close(bucket)
        if self._has_passed:
            self._files.pass_time(time)

    def _mark(self) -> None:
        """Tells the other subtasks what is published, and writes commit markers."""
        if self._markers is None:
            return
        try:
            marked = self._markers.tell(
                self._files.passed,
                self._files.unmarked,
                is_idle=self._is_idle and not self._open,
                has_finished=self._has_finished,
            )
        except OSError as error:
            raise self._failed("could not be written to", error) from error
        for bucket in marked:
            self._files.mark(bucket)

    def _publish(self, file: PendingFile) -> None:
        writer = self._writer
        if file.form not in (self._form, b""):  # of an earlier program
            form = msgspec.json.decode(file.form, type=_FileForm)
            of = PICKLED if form.layout is None else from_layout(form.layout)
            writer = form.writer(of, self._setup.spark)
        try:
            self._directory.publish(file.name, lambda out: writer.write(file.chunks, out))
        except AttemptSuperseded as error:
            raise TaskError(
                f"file_sink {self._setup.config.name!r} was fenced: a newer attempt of this subtask writes to"
                f" {self._parameters.path}, and has removed {error} there (if nobody else has)"
            ) from error
        except OSError as error:
            raise self._failed("could not be written to", error) from error

    def _failed(self, what: str, error: OSError) -> TaskError:
        return TaskError(
            f"file_sink {self._setup.config.name!r}: {self._parameters.path} {what}: {error.strerror or error};"
            " no record is lost: the missing files are written when the task restarts, so correct this first"
        )
