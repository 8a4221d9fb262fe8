"""A process that has imported the API, and forks a process for each program whose graph is requested.

An interpreter that starts and imports the API takes a sixth of a second of CPU time, a fork some milliseconds: a queue
of programs is built that much faster. Programs never share a process: changes by one are gone with its fork, and every
process that it has started ends with the fork.

The server (pipelines/api/build_server.py) reads directories from its stdin, one per line. It answers on its stdout with
the pid of the fork and, after that has ended, with its exit status. The directory contains REQUEST, a BuildRequest as
JSON. The fork writes RESULT, a BuildResult in MessagePack, and PRINTED, the output of the program.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import threading
import time
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

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._unread = b""
        self._closed = threading.Event()
        self._program: int | None = None
        """The pid of the program that runs."""

    def run(self, directory: Path, timeout_s: float) -> int:
        """Runs the request in a directory; returns its exit status, negative for a signal.

        Raises OSError if no process can be started, BuildTimeout, BuildServerClosed.
        """
        deadline = time.monotonic() + timeout_s
        process = self._started()
        stdin = process.stdin
        assert stdin is not None
        try:
            stdin.write(f"{directory}\n".encode())
            stdin.flush()
        except BrokenPipeError:
            self._end()
            raise BuildServerClosed("the process that builds graphs has ended") from None
        pid = self._program = int(self._line(process, deadline))
        try:
            return int(self._line(process, deadline))
        except BuildTimeout:
            _kill(pid)
            self._line(process, None)
            raise
        finally:
            self._program = None

    def cancel(self) -> None:
        """Kills the program that runs, and all processes that it has started; its `run` raises BuildServerClosed."""
        program = self._program
        # Without the server nobody reaps the program, so its pid stays valid.
        self._end()
        if program is not None:
            _kill(program)

    def close(self) -> None:
        """Ends the server and the program that it runs."""
        self._closed.set()
        self._end()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._closed.is_set():
            raise BuildServerClosed("the build server is closed")
        process = self._process
        if process is None or process.poll() is not None:
            self._end()
            process = self._process = subprocess.Popen(
                module_command(_MODULE), stdin=subprocess.PIPE, stdout=subprocess.PIPE
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

    def _line(self, process: subprocess.Popen[bytes], deadline: float | None) -> bytes:
        stdout = process.stdout
        assert stdout is not None
        try:
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
        except (ValueError, OSError):
            # `close` has removed the pipe.
            raise BuildServerClosed("the build server is closed") from None
        line, _, self._unread = self._unread.partition(b"\n")
        return line


def _kill(pid: int) -> None:
    """Kills the program and all processes that it has started. The server has not reaped it yet, so the pid is still
    valid."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError):
            kill(pid, signal.SIGKILL)
