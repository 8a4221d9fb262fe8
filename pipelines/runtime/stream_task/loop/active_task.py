"""Which task of a process its task thread works for: the time is that of this task, and so is a failure."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

from .activity_timer import Activity, ActivityTimer


class ActiveTask:
    """The active task of one process. Tasks are named by their index in it. Belongs to the task thread."""

    def __init__(
        self, timers: Sequence[ActivityTimer], on_changed: Callable[[int], None] = lambda _: None
    ) -> None:
        """`timers`: those of the tasks. `on_changed` is called with the task that becomes active."""
        self._timers = timers
        self._on_changed = on_changed
        self._is_resting = False
        self.index = 0
        """The task that was active last."""

    def start(self) -> None:
        """Begins to measure. No task is active yet."""
        for timer in self._timers:
            timer.start()
        self.rest()

    def enter(self, index: int) -> None:
        """Makes a task the active one."""
        if index == self.index and not self._is_resting:
            return
        if index != self.index:
            self._timers[self.index].switch(Activity.IDLE)
            self.index = index
            self._on_changed(index)
        self._is_resting = False
        self._timers[index].switch(Activity.BUSY)

    @contextlib.contextmanager
    def called(self, index: int) -> Iterator[None]:
        """A context in which the active task has called another one. If that fails, it stays the active one."""
        caller = self.index
        self.enter(index)
        yield
        self.enter(caller)

    def rest(self) -> None:
        """All tasks wait for input or for a time."""
        self._is_resting = True
        for timer in self._timers:
            timer.switch(Activity.IDLE)

    @contextlib.contextmanager
    def waiting_for_kafka(self) -> Iterator[None]:
        """A context in which all tasks wait for Kafka.

        A task that has processed its input would wait anyway: only if more waits, Kafka holds it up.
        """
        for timer in self._timers:
            timer.switch(Activity.BACK_PRESSURED if timer.has_input() else Activity.IDLE)
        try:
            yield
        finally:
            for timer in self._timers:
                timer.switch(Activity.IDLE)
            self._is_resting = True
            self.enter(self.index)
