"""The mailbox between the input thread and the task thread.

It is bounded by bytes: when it is full, the input thread stops reading and the sockets block the senders. Commands
overtake the data: a checkpoint does not wait for 8 MiB of records, and a cancellation arrives even if nothing is taken
out.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from ...common.protocol import AbortCheckpoint, ConfirmCheckpoint, SwitchQuery, TriggerCheckpoint

CAPACITY_BYTES: Final = 8 << 20
"""In bytes. Enough buffers for one commit, and little compared with the interpreter."""


class ForwardedMessage(msgspec.Struct, frozen=True, gc=False):
    """A message that Spark forwarded, as in protocol.HANDED_OVER."""

    kind: int
    input_index: int
    query: int
    partition: int
    first: int
    following: int
    content: bytes


class WakeUp(msgspec.Struct, frozen=True, gc=False):
    """The source has records. Several wake-ups before a `take` count once."""


Command = SwitchQuery | TriggerCheckpoint | ConfirmCheckpoint | AbortCheckpoint
Mail = ForwardedMessage | Command | WakeUp
_WAKE_UP: Final = WakeUp()


class TaskCanceled(Exception):
    """The task was told to end."""


class Mailbox:
    """Any thread may put; one thread takes."""

    def __init__(self) -> None:
        self._mail: deque[tuple[ForwardedMessage, int]] = deque()
        self._commands: deque[Command] = deque()
        self._changed = threading.Condition()
        self._size = 0
        self._canceled = False
        self._woken = False
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

    def command(self, command: Command) -> None:
        """Adds a command: it is taken before all data."""
        with self._changed:
            self._commands.append(command)
            self._changed.notify()

    def put(self, letters: list[tuple[ForwardedMessage, int]]) -> None:
        """Adds data, each with its size in bytes."""
        with self._changed:
            self._mail.extend(letters)
            self._size += sum(size for _, size in letters)
            self._changed.notify()

    def wake(self) -> None:
        """Makes the next `take` return at once, with a WakeUp."""
        with self._changed:
            self._woken = True
            self._changed.notify()

    def cancel(self) -> None:
        """Makes the next `take` raise TaskCanceled, whatever the mailbox contains."""
        with self._changed:
            self._canceled = True
            self._changed.notify()

    def take_commands(self) -> list[Command]:
        """Returns the commands that have arrived, also while the task works on what it took before."""
        if not self._commands:
            return []
        with self._changed:
            commands = list(self._commands)
            self._commands.clear()
        return commands

    def take(self, timeout_s: float) -> list[Mail]:
        """Returns all mail, commands first, or nothing if none arrives within the timeout. Raises TaskCanceled."""
        with self._changed:
            if self.is_empty and not self._canceled and timeout_s > 0:
                self._changed.wait(timeout_s)
            if self._canceled:
                raise TaskCanceled
            letters: list[Mail] = [*self._commands, *(letter for letter, _ in self._mail)]
            self._commands.clear()
            self._mail.clear()
            if self._woken:
                self._woken = False
                letters.append(_WAKE_UP)
            was_full, self._size = self.is_full, 0
        if was_full:
            self._drained()
        return letters
