"""The tasks of one process: Flink's lifecycle (initialize state, open, run, close) for all of them together.

One transaction has the work of all. So they begin together, and a failure of one ends all of them. Each may end alone.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Sequence

from ....graph.physical_plan import temporary_topics, transaction_vertex, transactional_id
from ...common.deployment import CheckpointTrigger
from ...common.failures import ProgressLostError, describe_failure
from ...common.kafka_clients import TRANSACTION_TIMEOUT_MS
from ...common.protocol import (
    OpenTasks,
    TaskCanceledNotice,
    TaskFailed,
    TaskFinished,
    TaskNotice,
    TaskOpened,
)
from ...common.settings import TaskSettings
from ...records.batch import Batch
from ...records.buffers import BufferHeader
from ..output.kafka_transaction import KafkaTransaction
from .active_task import ActiveTask
from .activity_timer import ActivityTimer
from .channel_input import ChannelInput
from .event_loop_thread import EventLoopThread
from .mailbox import Mailbox, TaskCanceled
from .mailbox_loop import MailboxLoop, WallClock
from .slot_commit import SlotCommit
from .stream_task import StreamTask
from .task_driver import TaskDriver

TaskNotifier = Callable[[int, TaskNotice], None]
"""Receives a notice of a task, by its index in OpenTasks."""


class TaskGroup:
    """The tasks of a process. Call `invoke` once. `notify` is called from the same thread, or from another one while
    that thread hangs."""

    def __init__(
        self,
        opening: OpenTasks,
        mailbox: Mailbox,
        notify: TaskNotifier,
        exit_lock: threading.Lock | None = None,
        transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS,
        timers: Sequence[ActivityTimer] | None = None,
        on_active: Callable[[int], None] = lambda _: None,
    ) -> None:
        """`exit_lock` and `transaction_timeout_ms`: see KafkaTransaction. `timers` measure the tasks. `on_active` is
        called with the task that the process works for."""
        self._opening = opening
        self._mailbox = mailbox
        self._notify = notify
        self._timers = timers or [ActivityTimer() for _ in opening.tasks]
        self._active = ActiveTask(self._timers, on_active)
        self._wall_clock = WallClock()
        self._event_loop = EventLoopThread()
        graph, first = opening.job_graph, opening.tasks[0]
        names = opening.cluster, opening.job_id
        self._transaction = KafkaTransaction(
            opening.kafka,
            transactional_id(*names, transaction_vertex(graph, first.vertex_id), first.subtask.subtask_index),
            self._hangs,
            exit_lock,
            transaction_timeout_ms,
            tuple(temporary_topics(*names, graph)),
            self._active,
        )
        self._unended = dict(enumerate(opening.tasks))
        """The tasks whose end is not reported."""

    def invoke(self) -> None:
        """Runs the attempts to their end, which is the last notice of each. Raises nothing."""
        last: TaskNotice | None = None
        try:
            self._run()
        except TaskCanceled:
            last = TaskCanceledNotice()
        except Exception as error:
            last = TaskFailed(describe_failure(error), isinstance(error, ProgressLostError))
        self._transaction.abort()
        if isinstance(last, TaskFailed):
            self._notify(self._active.index, last)
        elif last is not None:
            for number in self._unended:
                self._notify(number, last)

    def _run(self) -> None:
        tasks = [self._create_task(number) for number in self._unended]
        with contextlib.ExitStack() as closing:
            for task in tasks:
                closing.callback(task.close)
            self._transaction.open(tasks[0].assembly.changelog)
            for task in tasks:
                task.on_fenced()
            running = [task for task in tasks if not task.is_finished]
            drivers = []
            for task in tasks:
                self._active.enter(task.number)
                if task.is_finished:
                    task.send_end()
                    self._report_end(task.number)
                else:
                    drivers.append(task.restore())
            if running:
                self._work(running, drivers)

    def _work(self, tasks: Sequence[StreamTask], drivers: Sequence[TaskDriver]) -> None:
        subtasks = [task.subtask for task in tasks]
        self._connect(tasks)
        commits = SlotCommit(subtasks, self._transaction)
        settings = TaskSettings.from_configuration(self._opening.job_graph.configuration)
        by_number = {task.number: task for task in tasks}

        def on_ended(driver: TaskDriver) -> None:
            by_number[driver.number].close()
            self._report_end(driver.number)

        loop = MailboxLoop(drivers, self._mailbox, settings, commits, self._active, on_ended)
        loop.open()
        begins = []
        for task in tasks:
            self._active.enter(task.number)
            begins.append(task.begin_generation())
        if any(begins):
            commits.commit(always=True)
        for task in tasks:
            self._notify(task.number, TaskOpened())
        loop.run_until_ended()

    def _create_task(self, number: int) -> StreamTask:
        self._active.enter(number)
        return StreamTask(
            self._opening,
            number,
            self._transaction,
            self._mailbox,
            lambda notice: self._notify(number, notice),
            self._wall_clock,
            self._timers[number],
            self._event_loop,
        )

    def _connect(self, tasks: Sequence[StreamTask]) -> None:
        for receiver in tasks:
            if receiver.subtask.channel_input is None:
                continue
            called = CalledTask(receiver.subtask.channel_input, self._active, receiver.number)
            for sender in tasks:
                receiver.assembly.connect(
                    sender.assembly, sender.subtask, receiver.subtask, called, is_new=sender.is_new
                )

    def _report_end(self, number: int) -> None:
        del self._unended[number]
        self._notify(number, TaskFinished())

    def _hangs(self, reason: str) -> None:
        self._notify(self._active.index, TaskFailed(reason))
        os._exit(1)


class CalledTask:
    """A task as its senders in the same process call it (LocalReceiver): meanwhile it is the active one."""

    def __init__(self, receiver: ChannelInput, active: ActiveTask, number: int) -> None:
        self._receiver = receiver
        self._active = active
        self._number = number

    def _called(self) -> contextlib.AbstractContextManager[None]:
        return self._active.called(self._number)

    def takes_calls(self, input_index: int, sender: int) -> bool:
        """See ChannelInput."""
        return self._receiver.takes_calls(input_index, sender)

    def position(self, input_index: int) -> int:
        """See ChannelInput."""
        return self._receiver.position(input_index)

    def take_call(self, input_index: int, header: BufferHeader, batch: Batch) -> None:
        """See ChannelInput."""
        with self._called():
            self._receiver.take_call(input_index, header, batch)

    def take_barrier_call(self, input_index: int, sender: int, checkpoint: CheckpointTrigger) -> None:
        """See ChannelInput."""
        with self._called():
            self._receiver.take_barrier_call(input_index, sender, checkpoint)

    def take_marker_call(self, data: bytes) -> None:
        """See ChannelInput."""
        with self._called():
            self._receiver.take_marker_call(data)
