"""The process of StreamTasks: it waits, with all modules imported, for its tasks, runs them, and ends."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from .....infra import threads
from ....graph.python_files import import_from
from ...common import task_logging
from ...common.frames import encode_frame
from ...common.protocol import NoticeFrame, TaskFailed, TaskNotice
from .input_thread import InputThread
from .mailbox import Mailbox
from .task_group import TaskGroup

_LAST_NOTICE_S: Final = 1.0
"""How long the last notice of a process that ends by an error may wait to be sent."""


def run(control: socket.socket, listener: socket.socket) -> None:
    """Never returns. `control` is the socket to the TaskExecutor; Spark's workers connect to `listener`."""
    mailbox = Mailbox()
    exit_lock = threading.Lock()
    speaking = threading.Lock()

    def notify(task: int, notice: TaskNotice) -> None:
        data = encode_frame(msgspec.msgpack.encode(NoticeFrame(task, notice)))
        with speaking:
            control.sendall(data)

    def on_failure(name: str, error: BaseException) -> None:
        _end(TaskFailed(str(threads.ThreadFailed(name, error))), control, speaking)
        threads.end_process(name, error)

    task_logging.make_output_lossy()
    threads.handle(on_failure)
    try:
        _run_task(control, listener, mailbox, notify, exit_lock)
    except BaseException as error:
        on_failure("main", error)


def _end(last: TaskFailed, control: socket.socket, speaking: threading.Lock) -> None:
    """Reports to the TaskExecutor why the process ends, unless another thread hangs while it sends."""
    if speaking.acquire(timeout=_LAST_NOTICE_S):
        with contextlib.suppress(OSError):
            control.sendall(encode_frame(msgspec.msgpack.encode(NoticeFrame(0, last))))


def _run_task(
    control: socket.socket,
    listener: socket.socket,
    mailbox: Mailbox,
    notify: Callable[[int, TaskNotice], None],
    exit_lock: threading.Lock,
) -> None:
    input_thread = InputThread(mailbox, control, listener, notify, exit_lock)
    input_thread.start()
    input_thread.open_arrived.wait()
    opening = input_thread.opened
    assert opening is not None

    logs = [
        task_logging.TaskLogging.from_deployment(opening.deployment(number))
        for number in range(len(opening.tasks))
    ]
    subtasks = [task.subtask for task in opening.tasks]

    def attribute_log(number: int) -> None:
        logs[number].attribute(subtasks[number].subtask_index, subtasks[number].attempt_number)

    logs[0].begin()
    attribute_log(0)
    if opening.python_path is not None:
        import_from(Path(opening.python_path))

    TaskGroup(
        opening, mailbox, notify, exit_lock, timers=input_thread.timers, on_active=attribute_log
    ).invoke()
    sys.stdout.flush()
    sys.stderr.flush()
    # Not exit(): the threads of librdkafka and of user code must not delay the end.
    os._exit(0)
