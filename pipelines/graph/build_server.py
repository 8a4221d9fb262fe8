"""A process that has the API imported, and forks a process for each program whose graph is to be built.

An interpreter that starts and imports the API takes a sixth of a second of a processor, a fork some milliseconds: a
queue of programs is built that much faster. A program never shares a process with another: what it changes is gone with
its fork, and every process that it started ends with it.

The server (pipelines/api/build_server.py) reads directories from its stdin, a line each. It answers on its stdout with
the pid of the fork and, when that has ended, with its exit status. In the directory the fork finds REQUEST, a
BuildRequest as JSON, and leaves RESULT, a BuildResult in MessagePack, and PRINTED, what the program has printed.
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
# By name: the graph does not know the API.
_MODULE: Final = f"{__package__.rpartition('.')[0]}.api.build_server"


class BuildTimeout(Exception):
    """The program did not end in time; it is killed."""


class BuildServerClosed(Exception):
    """The server was closed, or died, before the program had ended."""


class BuildServer:
    """Starts at the first `run`. One thread calls `run`, any thread `close`."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._unread = b""
        self._closed = threading.Event()

    def run(self, directory: Path, timeout_s: float) -> int:
        """Runs what a directory asks for; its exit status, negative for a signal.

        Raises OSError where no process can be started, BuildTimeout, BuildServerClosed.
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
        pid = int(self._line(process, deadline))
        try:
            return int(self._line(process, deadline))
        except BuildTimeout:
            _kill(pid)
            self._line(process, None)
            raise

    def close(self) -> None:
        """Ends the server and the program that it runs."""
        self._closed.set()
        self._end()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._closed.is_set():
            raise BuildServerClosed("no graphs are built any more")
        process = self._process
        if process is None or process.poll() is not None:
            self._end()
            process = self._process = subprocess.Popen(
                module_command(_MODULE), stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            if self._closed.is_set():
                # Meanwhile: `close` may not have seen it.
                self._end()
                raise BuildServerClosed("no graphs are built any more")
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
            # `close` has taken the pipe away.
            raise BuildServerClosed("no graphs are built any more") from None
        line, _, self._unread = self._unread.partition(b"\n")
        return line


def _kill(pid: int) -> None:
    """The program and all that it started; the server has not waited for it, so that the pid is its own."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError):
            kill(pid, signal.SIGKILL)
