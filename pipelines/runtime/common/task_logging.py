"""Formats the log lines of user functions that use `logging`: time, level, logger, job, vertex, subtask and attempt.

If log.format is json, a line is a JSON object with job_id, task_name, subtask_index and attempt_number. A StreamTask
process assigns its lines to the task that it works for. A Python worker of Spark serves several subtasks in turn, and
calls `serve` with the one whose records it processes. Lines go to stderr, which is the TaskExecutor's log, or to a file
of the job: all processes of the job on a machine append to it, and a process that finds it full renames it. Secrets are
redacted. Nothing here raises: a line that cannot be written is lost, and so is printed output. A full disk does not
fail a task.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import logging
import logging.handlers
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TextIO

import msgspec

from ....infra.logging_setup import JsonFormatter, LogFormat
from ....infra.redaction import redacted
from ...graph import job_options
from .deployment import VertexDeployment

MAX_FILE_BYTES: Final = 10 << 20
"""The size of a job's file; then it is renamed to `<job>.log.1`, and a new one begins."""
MAX_FILES: Final = 5
"""The number of older files."""

_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s [%(task)s] %(message)s"


class TaskLogging(msgspec.Struct, frozen=True):
    """Where a vertex logs, and its names."""

    job_id: str
    vertex: str
    parallelism: int
    level: str
    directory: str | None

    @classmethod
    def from_deployment(cls, deployment: VertexDeployment) -> TaskLogging:
        """Reads the job's options."""
        vertex, configuration = deployment.vertex, deployment.job_graph.configuration
        return cls(
            deployment.job_id,
            vertex.name,
            vertex.parallelism,
            job_options.LOGGING_LEVEL.of(configuration).value,
            job_options.LOGGING_DIRECTORY.of(configuration),
        )

    def begin(self) -> None:
        """Makes this process log for the vertex from now on."""
        global _current
        _current = self
        serve(None, 0)
        root = logging.getLogger()
        handler = self._handler()
        is_text = LogFormat.from_environment() is LogFormat.TEXT
        handler.setFormatter(_Redacting(_FORMAT) if is_text else JsonFormatter())
        handler.addFilter(_add_task)
        for task_handler in [handler for handler in root.handlers if getattr(handler, "of_tasks", False)]:
            root.removeHandler(task_handler)
            task_handler.close()
        handler.of_tasks = True  # type: ignore[attr-defined]
        root.addHandler(handler)
        root.setLevel(self.level)

    def attribute(self, subtask_index: int, attempt_number: int) -> None:
        """Assigns the next log lines to this subtask of the vertex. All vertices of a process are of one job."""
        global _current
        _current = self
        serve(subtask_index, attempt_number)

    def _handler(self) -> logging.Handler:
        if self.directory is not None:
            with contextlib.suppress(OSError):
                Path(self.directory).mkdir(parents=True, exist_ok=True)
                name = "".join(
                    character if character.isalnum() or character in "-_" else "_"
                    for character in self.job_id
                )
                return SharedFileHandler(Path(self.directory) / f"{name}.log")
        return logging.StreamHandler(sys.stderr)


class LossyFile(io.FileIO):
    """A file that drops what it cannot write."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def make_output_lossy() -> None:
    """Drops printed text that cannot be written, from now on. Lines are written whole."""
    sys.stdout, sys.stderr = _lossy(sys.stdout), _lossy(sys.stderr)


def _lossy(stream: TextIO) -> TextIO:
    file = io.BufferedWriter(LossyFile(stream.fileno(), "w", closefd=False))
    return io.TextIOWrapper(file, stream.encoding, errors="backslashreplace", line_buffering=True)


_current: TaskLogging | None = None
_subtask: tuple[int | None, int] = None, 0
"""The index of the subtask and the number of its attempt."""


def serve(subtask_index: int | None, attempt_number: int) -> None:
    """Assigns the next log lines to this subtask; None: to the vertex."""
    global _subtask
    _subtask = subtask_index, attempt_number


class SharedFileHandler(logging.handlers.WatchedFileHandler):
    """Appends to a file that other processes append to as well; a process that finds it full renames it, under a
    lock."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._lock_path = path.with_name(f"{path.name}.lock")

    def emit(self, record: logging.LogRecord) -> None:
        try:
            with self._alone():
                if self.stream is not None and os.fstat(self.stream.fileno()).st_size >= MAX_FILE_BYTES:
                    self.reopenIfNeeded()
                    if os.fstat(self.stream.fileno()).st_size >= MAX_FILE_BYTES:
                        self._rotate()
                super().emit(record)
        except Exception:
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """Drops the line."""

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        with self._lock_path.open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _rotate(self) -> None:
        path = Path(self.baseFilename)
        for number in range(MAX_FILES, 0, -1):
            older = path if number == 1 else path.with_name(f"{path.name}.{number - 1}")
            if older.exists():
                older.rename(path.with_name(f"{path.name}.{number}"))
        self.reopenIfNeeded()


class _Redacting(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return redacted(super().format(record))


def _add_task(record: logging.LogRecord) -> bool:
    if _current is not None:
        index, attempt = _subtask
        subtask = "" if index is None else f" ({index + 1}/{_current.parallelism}), attempt {attempt + 1}"
        record.task = f"{_current.job_id}, {_current.vertex}{subtask}"
        record.fields = {
            "job_id": _current.job_id,
            "task_name": _current.vertex,
            **({} if index is None else {"subtask_index": index, "attempt_number": attempt}),
        }
    return True
