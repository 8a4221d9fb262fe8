"""The input thread: puts everything that arrives at a StreamTask into its mailbox, in order of arrival.

It reads two kinds of sockets: the control channel to the TaskExecutor, and the connections of Spark's Python workers.
When the TaskExecutor is gone, this process ends at once: the fencing of the next attempt aborts its open transaction.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import threading
import time
from collections.abc import Callable
from typing import Final

import msgspec

from .....infra import threads
from ...common.frames import FrameReader
from ...common.protocol import (
    FORWARDED,
    AbortCheckpoint,
    CancelTask,
    CommitStarted,
    ConfirmCheckpoint,
    OpenTask,
    QueryConnected,
    SampleStacks,
    StacksSampled,
    SwitchQuery,
    TaskBeat,
    TaskCommand,
    TaskNotice,
    TriggerCheckpoint,
)
from .activity_timer import ActivityTimer
from .mailbox import ConnectionsClosed, ForwardedMessage, Mailbox
from .stack_sampler import sample_stacks

CANCEL_GRACE_S: Final = 0.2
"""How long user code may stay busy after a CancelTask before the process exits."""
COMMIT_GRACE_S: Final = 5.0
"""How long a commit may continue after that: an open transaction blocks readers until it times out."""


class InputThread(threads.Thread):
    """Reads until the process ends. `control` and `listener` are already connected and listening."""

    def __init__(
        self,
        mailbox: Mailbox,
        control: socket.socket,
        listener: socket.socket,
        notify: Callable[[TaskNotice], None] = lambda _: None,
        exit_lock: threading.Lock | None = None,
        timer: ActivityTimer | None = None,
    ) -> None:
        """The task thread holds `exit_lock` while a transaction is open. `notify` sends notices to the TaskExecutor.
        `timer`: that of the task."""
        super().__init__(target=self._read, name="input")
        self._mailbox = mailbox
        self._notify = notify
        self._exit_lock = exit_lock or threading.Lock()
        self._control = FrameReader(control)
        self._commands = msgspec.msgpack.Decoder(TaskCommand)
        self._listener = listener
        self._selector = selectors.DefaultSelector()
        self._workers: dict[socket.socket, FrameReader] = {}
        self._reading = True
        self._timer = timer or ActivityTimer()
        self._beat_at = 0.0
        self._wake_in, self._wake_out = socket.socketpair()
        self.opened: OpenTask | None = None
        self.open_arrived = threading.Event()
        mailbox.on_drained(self._wake)

    def _read(self) -> None:
        own: dict[socket.socket, Callable[[], object]] = {
            self._control.socket: self._perform,
            self._listener: self._accept,
            self._wake_in: lambda: self._wake_in.recv(4096),
        }
        for source, handle in own.items():
            # The task writes whole frames to the control channel, which may have to wait for room in the socket.
            source.setblocking(source is self._control.socket)
            self._selector.register(source, selectors.EVENT_READ, handle)
        while True:
            for key, _ in self._selector.select(self._until_beat()):
                key.data()
            self._adjust()
            self._beat()

    def _until_beat(self) -> float | None:
        """Returns the seconds until the next beat; None if no beats are requested."""
        if self.opened is None or self.opened.beat_interval_s is None:
            return None
        return max(0.0, self._beat_at - time.monotonic())

    def _beat(self) -> None:
        """Sends a beat. Beats come from this thread, so that they continue while the task thread runs user code."""
        if self._until_beat() == 0.0:
            assert self.opened is not None
            assert self.opened.beat_interval_s is not None
            self._beat_at = time.monotonic() + self.opened.beat_interval_s
            self._notify(TaskBeat(self._timer.read()))

    def _wake(self) -> None:
        self._wake_out.send(b"w")

    def _perform(self) -> None:
        for data in self._control.receive():
            command: TaskCommand = self._commands.decode(data)
            match command:
                case OpenTask():
                    self.opened = command
                    self.open_arrived.set()
                case (
                    SwitchQuery()
                    | QueryConnected()
                    | TriggerCheckpoint()
                    | ConfirmCheckpoint()
                    | AbortCheckpoint()
                ):
                    self._mailbox.command(command)
                case SampleStacks():
                    threads.Thread(target=self._sample, name="stack sampler", args=(command,)).start()
                case CancelTask():
                    self._mailbox.cancel()
                    threads.Timer(CANCEL_GRACE_S, self._exit, name="last resort").start()
        if self._control.ended:
            os._exit(1)

    def _sample(self, command: SampleStacks) -> None:
        stacks = sample_stacks(command.count, command.interval_s)
        # The process may be about to end.
        with contextlib.suppress(OSError):
            self._notify(StacksSampled(command.request, tuple(stacks)))

    def _exit(self) -> None:
        """Ends the process; if a transaction is open, after its end."""
        if not self._exit_lock.acquire(blocking=False):
            self._notify(CommitStarted())
            self._exit_lock.acquire(timeout=COMMIT_GRACE_S)
        os._exit(1)

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        connection.setblocking(False)
        self._workers[connection] = FrameReader(connection)
        if self._reading:
            self._resume(connection)

    def _resume(self, connection: socket.socket) -> None:
        self._selector.register(connection, selectors.EVENT_READ, lambda: self._receive(connection))

    def _receive(self, connection: socket.socket) -> None:
        reader = self._workers[connection]
        letters = [(_to_mail(data), len(data)) for data in reader.receive()]
        if letters:
            self._mailbox.put(letters)
        if reader.ended:
            del self._workers[connection]
            self._selector.unregister(connection)
            connection.close()
            if not self._workers:
                self._mailbox.put([(ConnectionsClosed(), 0)])

    def _adjust(self) -> None:
        """Stops reading while the mailbox is full, and resumes afterwards."""
        if self._reading is not self._mailbox.is_full:
            return
        self._reading = not self._reading
        for connection in self._workers:
            if self._reading:
                self._resume(connection)
            else:
                self._selector.unregister(connection)


def _to_mail(data: bytes) -> ForwardedMessage:
    kind, input_index, query, partition, first, following = FORWARDED.unpack_from(data)
    return ForwardedMessage(kind, input_index, query, partition, first, following, data[FORWARDED.size :])
