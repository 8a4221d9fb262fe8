"""Warm StreamTask processes: forked before they are needed, each used for one attempt."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from collections import deque
from pathlib import Path
from types import TracebackType
from typing import Final

import msgspec

from ....infra.interpreter import module_command
from ..common.frames import FrameReader, encode_frame
from ..common.protocol import TaskCommand
from ..stream_task.loop import zygote

_CLOSE_TIMEOUT_S: Final = 5.0
# How many hand-overs may wait to be accepted: the workers of Spark that connect at once.
_LISTEN_BACKLOG: Final = 64


class TaskProcess:
    """A process that waits for its Open: `socket_path` is where Spark's workers reach it."""

    def __init__(self, token: int, control: socket.socket, socket_path: str) -> None:
        self.token = token
        self.control = control
        self.notices = FrameReader(control)
        self.socket_path = socket_path

    def send(self, command: TaskCommand) -> None:
        """Tells the process something; one that is gone does not hear it, and its end is seen elsewhere."""
        try:
            self.control.sendall(encode_frame(msgspec.msgpack.encode(command)))
        except ConnectionError:
            return

    def close_connection(self) -> None:
        """Has the process end by itself: it does as soon as nobody is at the other end."""
        with contextlib.suppress(OSError):
            self.control.shutdown(socket.SHUT_RDWR)


class ProcessPool:
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

    def __enter__(self) -> ProcessPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def fill(self) -> None:
        """Has processes forked until enough are warm."""
        with contextlib.suppress(ConnectionError):
            # That the zygote died is seen at `ends`.
            while len(self._warm) < self._size:
                self._warm.append(self._fork())

    def take(self) -> TaskProcess:
        """A process for one attempt; it may be on its way still, its sockets are there."""
        return self._warm.popleft() if self._warm else self._fork()

    def kill(self, process: TaskProcess) -> None:
        """SIGKILL, by the parent of the process, so that it cannot hit another of the same pid."""
        try:
            self.ends.sendall(zygote.REQUEST.pack(zygote.KILL, process.token))
        except ConnectionError:
            # Nobody is left to kill it; that the zygote died is seen at `ends`.
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
            # Made here, so that it can be connected to before the process has begun to listen.
            listener.bind(path)
            os.chmod(path, 0o600)
            listener.listen(_LISTEN_BACKLOG)
            request = zygote.REQUEST.pack(zygote.FORK, self._tokens)
            socket.send_fds(self.ends, [request], [control.fileno(), listener.fileno()])
        return TaskProcess(self._tokens, ours, path)
