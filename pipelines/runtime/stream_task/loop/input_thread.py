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
from functools import partial
from typing import Final

import msgspec

from .....infra import threads
from ...common.frames import FrameReader
from ...common.protocol import (
    FORWARDED,
    LISTEN_BACKLOG,
    WORK_TIME,
    WORKED,
    WORKING,
    AbortCheckpoint,
    CancelTask,
    CommandFrame,
    CommitStarted,
    ConfirmCheckpoint,
    OpenTasks,
    QueryConnected,
    SampleStacks,
    StacksSampled,
    SwitchQuery,
    TaskBeat,
    TaskNotice,
    TriggerCheckpoint,
    socket_path_of,
)
from .activity_timer import ActivityTimer
from .mailbox import ConnectionsClosed, ForwardedMessage, Mailbox
from .stack_sampler import sample_stacks
from .worker_times import Place

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
        notify: Callable[[int, TaskNotice], None] = lambda *_: None,
        exit_lock: threading.Lock | None = None,
    ) -> None:
        """The task thread holds `exit_lock` while a transaction is open. `notify` sends notices of a task to the
        TaskExecutor."""
        super().__init__(target=self._read, name="input")
        self._mailbox = mailbox
        self._notify = notify
        self._exit_lock = exit_lock or threading.Lock()
        self._control = FrameReader(control)
        self._commands = msgspec.msgpack.Decoder(CommandFrame)
        self._listener = listener
        self._selector = selectors.DefaultSelector()
        self._workers: dict[socket.socket, tuple[FrameReader, int]] = {}
        """The connections of Spark's workers, each for one task."""
        self._working: dict[socket.socket, Place] = {}
        """Those whose workers have told of their work, and for what."""
        self._reading = True
        self.timers: list[ActivityTimer] = []
        """Those of the tasks."""
        self._beat_at = 0.0
        self._wake_in, self._wake_out = socket.socketpair()
        self.opened: OpenTasks | None = None
        self.open_arrived = threading.Event()
        mailbox.on_drained(self._wake)

    def _read(self) -> None:
        own: dict[socket.socket, Callable[[], object]] = {
            self._control.socket: self._perform,
            self._listener: partial(self._accept, self._listener, 0),
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
            for task, timer in enumerate(self.timers):
                self._notify(task, TaskBeat(timer.read()))

    def _wake(self) -> None:
        self._wake_out.send(b"w")

    def _perform(self) -> None:
        for data in self._control.receive():
            frame = self._commands.decode(data)
            command = frame.command
            match command:
                case OpenTasks():
                    self._open(command)
                case (
                    SwitchQuery()
                    | QueryConnected()
                    | TriggerCheckpoint()
                    | ConfirmCheckpoint()
                    | AbortCheckpoint()
                ):
                    self._mailbox.command(command, frame.task)
                case SampleStacks():
                    arguments = command, frame.task
                    threads.Thread(target=self._sample, name="stack sampler", args=arguments).start()
                case CancelTask():
                    self._mailbox.cancel()
                    threads.Timer(CANCEL_GRACE_S, self._exit, name="last resort").start()
        if self._control.ended:
            os._exit(1)

    def _open(self, opening: OpenTasks) -> None:
        """Listens for each task, and begins the work."""
        self.timers += [ActivityTimer() for _ in opening.tasks]
        for task in range(1, len(opening.tasks)):
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(socket_path_of(self._listener.getsockname(), task))
            listener.listen(LISTEN_BACKLOG)
            listener.setblocking(False)
            self._selector.register(listener, selectors.EVENT_READ, partial(self._accept, listener, task))
        self.opened = opening
        self.open_arrived.set()

    def _sample(self, command: SampleStacks, task: int) -> None:
        stacks = sample_stacks(command.count, command.interval_s)
        # The process may be about to end.
        with contextlib.suppress(OSError):
            self._notify(task, StacksSampled(command.request, tuple(stacks)))

    def _exit(self) -> None:
        """Ends the process; if a transaction is open, after its end."""
        if not self._exit_lock.acquire(blocking=False):
            self._notify(0, CommitStarted())
            self._exit_lock.acquire(timeout=COMMIT_GRACE_S)
        os._exit(1)

    def _accept(self, listener: socket.socket, task: int) -> None:
        connection, _ = listener.accept()
        connection.setblocking(False)
        self._workers[connection] = FrameReader(connection), task
        if self._reading:
            self._resume(connection)

    def _resume(self, connection: socket.socket) -> None:
        self._selector.register(connection, selectors.EVENT_READ, lambda: self._receive(connection))

    def _receive(self, connection: socket.socket) -> None:
        reader, task = self._workers[connection]
        letters = []
        for data in reader.receive():
            letter = _to_mail(data)
            if letter.kind in (WORKING, WORKED):
                self._note_work(connection, task, letter)
            else:
                letters.append((letter, len(data)))
        if letters:
            self._mailbox.put(letters, task)
        if reader.ended:
            del self._workers[connection]
            self._selector.unregister(connection)
            connection.close()
            if (place := self._working.pop(connection, None)) is not None:
                self.timers[task].workers.end(place)
            if all(other != task for _, other in self._workers.values()):
                self._mailbox.put([(ConnectionsClosed(), 0)], task)

    def _note_work(self, connection: socket.socket, task: int, told: ForwardedMessage) -> None:
        place, workers = (told.input_index, told.partition), self.timers[task].workers
        self._working[connection] = place
        if told.kind == WORKING:
            workers.begin(place)
        else:
            workers.add(place, WORK_TIME.unpack_from(told.content)[0] / 1_000_000)

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
