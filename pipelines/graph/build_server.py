"""A process that has imported the API, and forks a process for each program whose graph is requested.

An interpreter that starts and imports the API takes a sixth of a second of CPU time, a fork some milliseconds: a queue
of programs is built that much faster. Programs never share a process: changes by one are gone with its fork, and every
process that it has started ends with the fork.

The server (pipelines/api/build_server.py) reads directories from its stdin, one per line. It answers on its stdout with
the pid of the fork, which waits for an empty line on the server's stdin before it runs the program: so no program runs
whose pid is unknown here. After the fork has ended, the server answers with its exit status. The directory contains
REQUEST, a BuildRequest as JSON. The fork writes RESULT, a BuildResult in MessagePack, and PRINTED, the output of the
program.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ...infra.interpreter import module_command

REQUEST: Final = "request.json"
RESULT: Final = "result.msgpack"
PRINTED: Final = "printed"
# By name: the graph does not import the API.
_MODULE: Final = f"{__package__.rpartition('.')[0]}.api.build_server"


class BuildTimeout(Exception):
    """The program did not end in time and was killed."""


class BuildServerClosed(Exception):
    """The server was closed, or died, before the program had ended."""


class BuildServer:
    """Starts at the first `run`. One thread calls `run`, any thread `cancel` and `close`."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        """`environment`: variables of the process, besides those of this one."""
        self._environment = None if environment is None else {**os.environ, **environment}
        self._process: subprocess.Popen[bytes] | None = None
        self._unread = b""
        self._closed = threading.Event()
        self._running = threading.Lock()

    def run(self, directory: Path, timeout_s: float) -> int:
        """Runs the request in a directory; returns its exit status, negative for a signal.

        Raises OSError if no process can be started, BuildTimeout, BuildServerClosed.
        """
        with self._running:
            return self._run(directory, time.monotonic() + timeout_s)

    def _run(self, directory: Path, deadline: float) -> int:
        process = self._started()
        pid = None
        try:
            self._send(process, f"{directory}\n")
            pid = int(self._line(process, deadline))
            self._send(process, "\n")
            return int(self._line(process, deadline))
        except BuildTimeout:
            if pid is None:
                self._end()
            else:
                _kill(pid)
                self._line(process, None)
            raise
        except BuildServerClosed:
            self._end()
            if pid is not None:
                _kill_group(pid)
            raise

    def cancel(self) -> None:
        """Ends the program that runs, and all processes that it has started; its `run` raises BuildServerClosed."""
        # `run` reads the end of the pipe. To close the pipe here would leave it waiting.
        process = self._process
        if process is not None:
            process.kill()

    def close(self) -> None:
        """Like `cancel`, for all programs to come as well; returns when `run` has ended."""
        self._closed.set()
        self.cancel()
        with self._running:
            self._end()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._closed.is_set():
            raise BuildServerClosed("the build server is closed")
        process = self._process
        if process is None or process.poll() is not None:
            self._end()
            process = self._process = subprocess.Popen(
                module_command(_MODULE),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=self._environment,
            )
            if self._closed.is_set():
                # A concurrent `close` may have missed it.
                self._end()
                raise BuildServerClosed("the build server is closed")
        return process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        # A fork dies with the server that it came from.
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self._unread = b""

    def _send(self, process: subprocess.Popen[bytes], text: str) -> None:
        assert process.stdin is not None
        try:
            process.stdin.write(text.encode())
            process.stdin.flush()
        except BrokenPipeError:
            raise BuildServerClosed("the process that builds graphs has ended") from None

    def _line(self, process: subprocess.Popen[bytes], deadline: float | None) -> bytes:
        stdout = process.stdout
        assert stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            while b"\n" not in self._unread:
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
                if not selector.select(left):
                    raise BuildTimeout
                received = os.read(stdout.fileno(), 4096)
                if not received:
                    raise BuildServerClosed("the process that builds graphs has ended")
                self._unread += received
        line, _, self._unread = self._unread.partition(b"\n")
        return line


def _kill(pid: int) -> None:
    """Kills the program and all processes that it has started. The server has not reaped it yet, so the pid is still
    valid."""
    _kill_group(pid)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _kill_group(pid: int) -> None:
    """Kills the processes that a program has started. The program itself ends with its server, and may be gone."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
