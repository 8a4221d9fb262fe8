"""Warm StreamTask processes: forked before they are needed, each used for one attempt."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from collections import deque
from pathlib import Path
from typing import Final

import msgspec

from ....infra.closing import Closeable
from ....infra.interpreter import module_command
from ..common.frames import FrameReader, encode_frame
from ..common.protocol import LISTEN_BACKLOG, CommandFrame, TaskCommand
from ..stream_task.loop import zygote

_CLOSE_TIMEOUT_S: Final = 5.0
_DEATH_TIMEOUT_S: Final = 1.0
"""A process that has closed its socket ends soon."""


class TaskProcess:
    """A process that waits for its OpenTasks. Spark's workers connect to `socket_path`."""

    def __init__(self, token: int, control: socket.socket, socket_path: str) -> None:
        self.token = token
        self.control = control
        self.notices = FrameReader(control)
        self.socket_path = socket_path

    def send(self, command: TaskCommand, task: int = 0) -> None:
        """Sends a command to a task of the process. A process that is gone does not receive it; its end is detected
        elsewhere."""
        try:
            self.control.sendall(encode_frame(msgspec.msgpack.encode(CommandFrame(task, command))))
        except ConnectionError:
            return

    def close_connection(self) -> None:
        """Closes the connection: the process then ends by itself."""
        with contextlib.suppress(OSError):
            self.control.shutdown(socket.SHUT_RDWR)


class ProcessPool(Closeable):
    """Keeps `size` processes warm. Used from one thread."""

    def __init__(self, directory: Path, size: int) -> None:
        self._directory = directory
        self._size = size
        self._warm: deque[TaskProcess] = deque()
        self._tokens = 0
        self.ends, theirs = socket.socketpair()
        with theirs:
            self._zygote = subprocess.Popen(
                module_command(zygote.__name__, str(theirs.fileno()), str(directory)),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )

    def fill(self) -> None:
        """Requests forks until enough processes are warm."""
        with contextlib.suppress(ConnectionError):
            # `ends` reports the death of the zygote.
            while len(self._warm) < self._size:
                self._warm.append(self._fork())

    def take(self) -> TaskProcess:
        """Returns a process, to be used once. It may still be starting; its sockets exist."""
        return self._warm.popleft() if self._warm else self._fork()

    @property
    def zygote_pid(self) -> int:
        """The pid of the zygote."""
        return self._zygote.pid

    def zygote_status(self) -> int | None:
        """The exit status of the zygote, as of a subprocess; None if it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._zygote.wait(_DEATH_TIMEOUT_S)
        return None

    def kill(self, process: TaskProcess) -> None:
        """Sends SIGKILL through the parent of the process, so that it cannot hit another process of the same pid."""
        try:
            self.ends.sendall(zygote.REQUEST.pack(zygote.KILL, process.token))
        except ConnectionError:
            # The zygote, which would kill it, is dead; `ends` reports that.
            process.close_connection()

    def close(self) -> None:
        """Ends the zygote; processes end as their control sockets close."""
        for process in self._warm:
            process.control.close()
        self._warm.clear()
        self.ends.close()
        try:
            self._zygote.wait(_CLOSE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._zygote.kill()
            self._zygote.wait()

    def _fork(self) -> TaskProcess:
        self._tokens += 1
        path = str(self._directory / f"{self._tokens}.sock")
        ours, control = socket.socketpair()
        with control, socket.socket(socket.AF_UNIX) as listener:
            # Created here, so that clients can connect before the process has begun to listen.
            listener.bind(path)
            os.chmod(path, 0o600)
            listener.listen(LISTEN_BACKLOG)
            request = zygote.REQUEST.pack(zygote.FORK, self._tokens)
            socket.send_fds(self.ends, [request], [control.fileno(), listener.fileno()])
        return TaskProcess(self._tokens, ours, path)
