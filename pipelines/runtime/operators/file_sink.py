"""file_sink: writes files into a directory. A file is complete when it appears, and each record is in exactly one of
them.

Records that are not in a published file are state (files/pending_files.py): the task's transaction writes them to the
changelog. After the file is closed and that is committed, the sink writes the file from the changelog's bytes. After a
crash in between, the next attempt writes it at its first commit; an attempt with a successor publishes nothing more
(files/output_directory.py). The cost: records travel through Kafka once more, and stay in memory until their file is
closed.

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

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from ..common.failures import TaskError
from ..records.batch import Batch, concatenate
from ..records.buffers import MAX_WATERMARK, NO_WATERMARK
from ..state_backend.stateful import Origin
from .files.bucket import BucketAssigner
from .files.commit_markers import CommitMarkers
from .files.file_writer import SinkFormat, file_writer
from .files.output_directory import AttemptSuperseded, create_output_directory
from .files.pending_files import PendingFiles
from .operator import Operator, OperatorSetup
from .user_functions import load, user_code

ROLL_BYTES: Final = 64 << 20
"""The default of `roll_bytes`: the size of the encoded records of a file, which are in memory."""
MOST_OPEN_BYTES: Final = 128 << 20
"""The encoded records of all open files of a subtask."""
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


class _OpenFile:
    """What fills the open file of a bucket."""

    def __init__(self, opened_at: int, records: int = 0) -> None:
        self.opened_at = opened_at
        self.last_at = opened_at
        self.records = records
        """With those that are only gathered."""
        self.gathered: list[Batch] = []


class FileSinkOperator(Operator):
    """Writes the files of one subtask."""

    def __init__(self, setup: OperatorSetup) -> None:
        self._setup = setup
        self._parameters = parameters = msgspec.convert(dict(setup.parameters), FileSinkParameters)
        (record_type,) = setup.input_types
        functions = load(setup.config)
        self._buckets = (
            BucketAssigner(parameters.bucket, record_type, *functions)
            if parameters.bucket or functions
            else None
        )
        self._writer = file_writer(
            parameters.format,
            record_type,
            parameters.options,
            setup.spark,
            () if self._buckets is None else self._buckets.fields,
            parameters.message,
        )
        self._roll_bytes = parameters.roll_bytes or ROLL_BYTES
        self._directory = create_output_directory(parameters.path)
        # The number of hexadecimal digits that distinguishes the sinks of one directory.
        names = f"{setup.cluster}/{setup.job_id}/{setup.config.operator_id}"
        sink = hashlib.sha256(names.encode()).hexdigest()[:8]
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
        self._files = PendingFiles(self._name)
        self._origins: list[PendingFiles] = []
        self._from_origin = False
        self._open: dict[str, _OpenFile] = {}
        """By bucket, the one that was written last at the end."""
        self._rolled = False
        self._watermark = NO_WATERMARK
        self._is_idle = False
        self._has_finished = False

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
            if self._setup.is_rescaled:
                self._files.skip_to(self._setup.generation * _NUMBERS)
            self._remove_superseded()
        except OSError as error:
            raise self._failed("could not be used", error) from error
        self._files.own()
        self._rolled = bool(self._files.closed)
        for bucket, file in self._files.open_files.items():
            self._open[bucket] = _OpenFile(file.opened_at, file.records)

    def process(self, batch: Batch, input_index: int = 0) -> None:
        if self._buckets is None:
            self._gather("", batch)
            return
        with user_code(self._setup.config):
            parts = list(self._buckets.divide(batch))
        for part in parts:
            self._gather(part.bucket, part.batch)
            if self._markers is not None and part.end is not None:
                self._files.date(part.bucket, part.end)
        while len(self._open) > self._parameters.most_open:
            self._close(next(iter(self._open)))

    @property
    def next_clock(self) -> int:
        return min(map(self._due_at, self._open.values()), default=MAX_WATERMARK)

    def advance_clock(self, clock: int) -> None:
        self._close_old()

    def advance_watermark(self, watermark: int) -> None:
        self._watermark = watermark
        self.output.emit_watermark(watermark)

    def set_idle(self, idle: bool) -> None:
        self._is_idle = idle
        self.output.emit_idle(idle)

    def before_commit(self) -> None:
        for bucket in self._open:
            self._fill(bucket)
        files = self._files.open_files
        for bucket in [bucket for bucket, file in files.items() if file.size >= self._roll_bytes]:
            self._close(bucket)
        self._close_old()
        while sum(file.size for file in files.values()) > MOST_OPEN_BYTES:
            self._close(max(files, key=lambda bucket: files[bucket].size))
        self._pass_time()

    def finish(self) -> None:
        for bucket in list(self._open):
            self._close(bucket)
        self._has_finished = True

    @property
    def wants_commit(self) -> bool:
        return self._rolled or self._has_passed

    def take_changes(self) -> Iterable[bytes]:
        self._rolled = False
        return self._files.take_changes()

    def full(self, sections: Sequence[range]) -> Iterator[tuple[range | None, bytes]]:
        return ((None, message) for message in self._files.full())

    def committed(self) -> None:
        self._publish()
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

    def _due_at(self, file: _OpenFile) -> int:
        """Returns the last moment at which an open file is not old (ms)."""
        roll_ms, inactivity_ms = self._parameters.roll_ms, self._parameters.inactivity_ms
        by_age = MAX_WATERMARK if roll_ms is None else file.opened_at + roll_ms - 1
        by_rest = MAX_WATERMARK if inactivity_ms is None else file.last_at + inactivity_ms - 1
        return min(by_age, by_rest)

    def _close_old(self) -> None:
        now = self._setup.wall_clock()
        for bucket in [bucket for bucket, file in self._open.items() if now > self._due_at(file)]:
            self._close(bucket)

    def _gather(self, bucket: str, batch: Batch) -> None:
        """Takes records of one bucket."""
        start, now, most = 0, self._setup.wall_clock(), self._parameters.roll_records
        while start < len(batch):
            file = self._open.pop(bucket, None) or _OpenFile(now)
            self._open[bucket] = file
            # A savepoint may be of a job with larger files.
            stop = len(batch) if most is None else min(len(batch), start + max(1, most - file.records))
            file.gathered.append(batch if stop - start == len(batch) else batch.slice(start, stop))
            file.records += stop - start
            file.last_at = now
            if most is not None and file.records >= most:
                self._close(bucket)
            start = stop

    def _fill(self, bucket: str) -> None:
        """Encodes the gathered records of a bucket as a chunk."""
        file = self._open[bucket]
        if file.gathered:
            batch = concatenate(file.gathered)
            with user_code(self._setup.config):
                chunk = self._writer.chunk(batch)
            self._files.fill(len(batch), chunk, file.opened_at, bucket)
            file.gathered.clear()

    def _close(self, bucket: str) -> None:
        self._fill(bucket)
        del self._open[bucket]
        self._files.close(bucket)
        self._rolled = True

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
