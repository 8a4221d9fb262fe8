"""The mailbox between the input thread and the task thread of a process.

Each item is for one task, by its index in the process. The mailbox is bounded by bytes: when it is full, the input
thread stops reading and the sockets block the senders. Commands overtake the data: a checkpoint does not wait for 8 MiB
of records, and a cancellation arrives even if nothing is taken out.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from ...common.protocol import (
    AbortCheckpoint,
    ConfirmCheckpoint,
    QueryConnected,
    SwitchQuery,
    TriggerCheckpoint,
)

CAPACITY_BYTES: Final = 8 << 20
"""In bytes. Enough buffers for one commit, and little compared with the interpreter."""


class ForwardedMessage(msgspec.Struct, frozen=True, gc=False):
    """A message that Spark forwarded, as in protocol.FORWARDED."""

    kind: int
    input_index: int
    query: int
    partition: int
    first: int
    following: int
    content: bytes


class DirectMessage(msgspec.Struct, frozen=True, gc=False):
    """What the StreamTask has read itself, in the form in which Spark forwards it."""

    reader: int
    """The number of the reader. What a closed reader has read does not count."""
    message: ForwardedMessage


class ConnectionsClosed(msgspec.Struct, frozen=True, gc=False):
    """No worker of Spark is connected any more: a query has ended, or begins a new batch."""


class WakeUp(msgspec.Struct, frozen=True, gc=False):
    """The source has records. Several wake-ups before a `take` count once."""


Command = SwitchQuery | QueryConnected | TriggerCheckpoint | ConfirmCheckpoint | AbortCheckpoint
Data = ForwardedMessage | DirectMessage | ConnectionsClosed
Mail = Data | Command | WakeUp
_WAKE_UP: Final = WakeUp()


class TaskCanceled(Exception):
    """The task was told to end."""


class Mailbox:
    """Any thread may put; one thread takes."""

    def __init__(self) -> None:
        self._mail: deque[tuple[int, Data, int]] = deque()
        """Task, data, and their size."""
        self._commands: deque[tuple[int, Command]] = deque()
        lock = threading.Lock()
        self._changed = threading.Condition(lock)
        self._has_room = threading.Condition(lock)
        self._size = 0
        self._canceled = False
        self._woken: set[int] = set()
        self._drained: Callable[[], None] = lambda: None

    def on_drained(self, callback: Callable[[], None]) -> None:
        """Sets what to call when there is room again after the mailbox was full."""
        self._drained = callback

    @property
    def is_full(self) -> bool:
        """Whether the input thread should stop reading."""
        return self._size >= CAPACITY_BYTES

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits to be taken."""
        return not self._mail and not self._commands and not self._woken

    def command(self, command: Command, task: int = 0) -> None:
        """Adds a command: it is taken before all data."""
        with self._changed:
            self._commands.append((task, command))
            self._changed.notify()

    def put(self, letters: Sequence[tuple[Data, int]], task: int = 0) -> None:
        """Adds data for a task, each with its size in bytes."""
        with self._changed:
            self._mail.extend((task, letter, size) for letter, size in letters)
            self._size += sum(size for _, size in letters)
            self._changed.notify()

    def wait_for_room(self, timeout_s: float) -> bool:
        """Waits until the mailbox is not full; returns whether it is not."""
        with self._has_room:
            return self._has_room.wait_for(lambda: not self.is_full, timeout_s)

    def wake(self, task: int = 0) -> None:
        """Makes the next `take` return at once, with a WakeUp for the task."""
        with self._changed:
            self._woken.add(task)
            self._changed.notify()

    def cancel(self) -> None:
        """Makes the next `take` raise TaskCanceled, whatever the mailbox contains."""
        with self._changed:
            self._canceled = True
            self._changed.notify()

    def pause(self, timeout_s: float) -> None:
        """Waits for this time. Raises TaskCanceled."""
        with self._changed:
            if self._changed.wait_for(lambda: self._canceled, timeout_s):
                raise TaskCanceled

    def take_commands(self) -> list[tuple[int, Command]]:
        """Returns the commands that have arrived, also while the task works on what it took before."""
        if not self._commands:
            return []
        with self._changed:
            commands = list(self._commands)
            self._commands.clear()
        return commands

    def wait_woken(self, task: int) -> None:
        """Waits until the task is woken, and takes the WakeUp. Raises TaskCanceled."""
        with self._changed:
            self._changed.wait_for(lambda: self._canceled or task in self._woken)
            if self._canceled:
                raise TaskCanceled
            self._woken.discard(task)

    def take(self, timeout_s: float, most: int | None = None) -> list[tuple[int, Mail]]:
        """Returns all mail, commands first, or nothing if none arrives within the timeout. Raises TaskCanceled.

        `most`: the largest number of data to take; None: all.
        """
        with self._changed:
            waits = not (self._commands or self._woken or (self._mail and most != 0))
            if waits and not self._canceled and timeout_s > 0:
                self._changed.wait(timeout_s)
            if self._canceled:
                raise TaskCanceled
            count = len(self._mail) if most is None else min(most, len(self._mail))
            letters: list[tuple[int, Mail]] = [*self._commands]
            self._commands.clear()
            was_full = self.is_full
            for _ in range(count):
                task, letter, size = self._mail.popleft()
                self._size -= size
                letters.append((task, letter))
            letters += [(task, _WAKE_UP) for task in sorted(self._woken)]
            self._woken.clear()
            self._has_room.notify_all()
        if was_full and not self.is_full:
            self._drained()
        return letters
