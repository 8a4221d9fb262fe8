"""The process that StreamTask processes are forked from, with everything imported.

A fork takes milliseconds and shares memory; a new interpreter takes most of a second. The TaskExecutor sends requests
of fixed size over a socket, with the sockets of the new process attached, and receives a message for every process that
ends. When the TaskExecutor is gone, the zygote removes the directory of the sockets and ends; its children see the same
on their own control sockets.

Run as `python -m tailrace.pipelines.runtime.stream_task.loop.zygote FD DIRECTORY`.
"""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import socket
import struct
import sys
from typing import Final

REQUEST: Final = struct.Struct("<BQ")
"""The action, and the token of the process; FORK carries two descriptors: control and listener."""
FORK: Final = 1
KILL: Final = 2
ENDED: Final = struct.Struct("<Qi")
"""The token of a process that ended, and its exit status, negative for a signal."""


class Zygote:
    """Forks on request until the socket closes."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._children: dict[int, int] = {}
        self._wake_in, self._wake_out = socket.socketpair()

    def serve(self) -> None:
        """Returns when the TaskExecutor is gone. Forked children do not return."""
        for end in (self._wake_in, self._wake_out):
            end.setblocking(False)
        signal.set_wakeup_fd(self._wake_out.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        selector = selectors.DefaultSelector()
        selector.register(self._requests, selectors.EVENT_READ)
        selector.register(self._wake_in, selectors.EVENT_READ)
        try:
            self._listen(selector)
        finally:
            signal.set_wakeup_fd(-1)

    def _listen(self, selector: selectors.BaseSelector) -> None:
        while True:
            for key, _ in selector.select():
                if key.fileobj is self._wake_in:
                    self._wake_in.recv(4096)
                    self._reap()
                elif not self._perform(selector):
                    return

    def _perform(self, selector: selectors.BaseSelector) -> bool:
        data, descriptors, _, _ = socket.recv_fds(self._requests, REQUEST.size, 2)
        if len(data) < REQUEST.size:
            return False
        what, token = REQUEST.unpack(data)
        if what == FORK:
            self._fork(token, descriptors, selector)
        else:
            for pid, known in self._children.items():
                if known == token:
                    os.kill(pid, signal.SIGKILL)
        return True

    def _fork(self, token: int, descriptors: list[int], selector: selectors.BaseSelector) -> None:
        pid = os.fork()
        if pid:
            self._children[pid] = token
            for descriptor in descriptors:
                os.close(descriptor)
            return
        try:
            signal.set_wakeup_fd(-1)
            for signal_number in (signal.SIGCHLD, signal.SIGTERM):
                signal.signal(signal_number, signal.SIG_DFL)
            selector.close()
            for own in (self._requests, self._wake_in, self._wake_out):
                own.close()
            from .task_process import run

            run(*(socket.socket(fileno=descriptor) for descriptor in descriptors))
        finally:
            os._exit(70)

    def _reap(self) -> None:
        while self._children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            token = self._children.pop(pid)
            self._requests.sendall(ENDED.pack(token, os.waitstatus_to_exitcode(status)))


def main() -> None:
    """Imports what StreamTasks need, then serves requests."""
    descriptor, directory = int(sys.argv[1]), sys.argv[2]
    # Ctrl-C in a terminal and a service manager's stop reach every process: the TaskExecutor decides what happens,
    # and would report the zygote's end as a failure.
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signal_number, signal.SIG_IGN)
    from ...common.preloaded_modules import preload
    from . import task_process  # noqa: F401

    preload()
    try:
        Zygote(socket.socket(fileno=descriptor)).serve()
    except OSError:
        pass
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
