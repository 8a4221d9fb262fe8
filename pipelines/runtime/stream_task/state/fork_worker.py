"""Runs work in a forked child: the child sees memory as of the fork, for as long as it needs, and the task continues.

Only the forking thread exists in the child. A lock that another thread held at that moment stays locked for ever, so
the child only computes and writes files. It collects no garbage (Kafka clients would wait for their threads) and exits
without clean-up. Arrow allocates by malloc, which is consistent after a fork. A child that hangs nevertheless is
detected by its missing messages and killed; it also ends itself if its parent is gone.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import time
import warnings
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Final, NoReturn

import pyarrow as pa

from .....infra import threads
from ...common.failures import TaskError

PROGRESS_TIMEOUT_S: Final = 60.0
"""The longest time between two progress reports of a child."""

ForkedWork = Callable[[Callable[[], None]], bytes]
"""Takes a function to call from time to time as a sign of progress; its result is sent to the parent."""

_PROGRESS: Final = b"."
_RESULT: Final = b"="
_ERROR: Final = b"!"
_READ: Final = 1 << 16


class ForkedWorker:
    """A forked child at work."""

    def __init__(self, work: ForkedWork, silence_s: float = PROGRESS_TIMEOUT_S) -> None:
        """Forks. If the fork fails, the result is the error."""
        self._progress_timeout_s = silence_s
        self.result: Final[Future[bytes]] = Future()
        """The result of the work; TaskError if the child failed, died, or hung and was killed."""
        self._pid = -1
        ends: tuple[int, ...] = ()
        try:
            ends = reader, writer = os.pipe()
            self._pid = _fork()
            if self._pid == 0:
                _be_child(work, writer, silence_s)
            ends = (reader,)
            os.close(writer)
            threads.Thread(target=self._wait, args=(reader,), name="forked-child").start()
        except (OSError, RuntimeError) as error:
            # No file descriptor, process, memory or thread is left.
            for end in ends:
                os.close(end)
            self._give_up(error)

    def kill(self) -> None:
        """Kills the child if it still runs."""
        if not self.result.done():
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)

    def _give_up(self, error: Exception) -> None:
        if self._pid > 0:
            os.kill(self._pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(self._pid, 0)
        message = error.strerror if isinstance(error, OSError) else str(error)
        self.result.set_exception(TaskError(f"state could not be written: no process: {message}"))

    def _wait(self, reader: int) -> None:
        message = bytearray()
        hung = False
        try:
            last_progress = time.monotonic()
            while True:
                left = last_progress + self._progress_timeout_s - time.monotonic()
                if left <= 0 or not select.select([reader], [], [], left)[0]:
                    hung = True
                    break
                data = os.read(reader, _READ)
                if not data:
                    break
                message += data if message else data.lstrip(_PROGRESS)
                last_progress = time.monotonic()
        finally:
            os.close(reader)
        if hung:
            os.kill(self._pid, signal.SIGKILL)
        try:
            _, status = os.waitpid(self._pid, 0)
            code = os.waitstatus_to_exitcode(status)
        except ChildProcessError:  # other code has already reaped all children
            code = 0 if message[:1] == _RESULT else -1
        kind, content = bytes(message[:1]), bytes(message[1:])
        if kind == _RESULT and code == 0:
            self.result.set_result(content)
        elif kind == _ERROR:
            self.result.set_exception(TaskError(f"state could not be written: {content.decode()}"))
        elif hung:
            self.result.set_exception(
                TaskError(
                    f"state could not be written: the writer made no progress for {self._progress_timeout_s:.0f} s"
                )
            )
        else:
            self.result.set_exception(
                TaskError(f"state could not be written: the writer exited with status {code}")
            )


def _fork() -> int:
    with warnings.catch_warnings():
        # Python warns about threads; the head of this module describes the precautions.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _be_child(work: ForkedWork, writer: int, silence_s: float) -> NoReturn:
    try:
        gc.disable()
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, 2 * silence_s)
        # A peer sees a closed connection only after every process that holds it has closed it.
        os.closerange(3, writer)
        os.closerange(writer + 1, os.sysconf("SC_OPEN_MAX"))
        pa.set_memory_pool(pa.system_memory_pool())

        def progress() -> None:
            os.write(writer, _PROGRESS)
            signal.setitimer(signal.ITIMER_REAL, 2 * silence_s)

        try:
            message = _RESULT + work(progress)
        except BaseException as error:
            message = _ERROR + f"{type(error).__name__}: {error}".encode(errors="replace")
        while message:
            message = message[os.write(writer, message) :]
        os._exit(0)
    finally:
        os._exit(70)
