"""The process of a StreamTask: waits, warm, for its one task; runs it; ends."""

from __future__ import annotations

import os
import socket
import sys
import threading
from pathlib import Path

import msgspec

from ....infra import threads
from ...graph.python_files import import_from
from .. import task_logging
from ..frames import frame
from ..protocol import Notice
from .input_thread import InputThread
from .mailbox import Mailbox
from .task import StreamTask


def run(control: socket.socket, listener: socket.socket) -> None:
    """Never returns. `control` leads to the TaskExecutor, `listener` is where Spark's workers connect."""
    threads.handle(threads.end_process)
    mailbox = Mailbox()
    exit_lock = threading.Lock()
    speaking = threading.Lock()

    def notify(notice: Notice) -> None:
        data = frame(msgspec.msgpack.encode(notice))
        with speaking:
            control.sendall(data)

    input_thread = InputThread(mailbox, control, listener, notify, exit_lock)
    input_thread.start()
    input_thread.open_arrived.wait()
    opening = input_thread.opened
    assert opening is not None

    task_logging.TaskLogging.from_deployment(opening.deployment).begin()
    task_logging.serve(opening.subtask_index, opening.attempt_number)
    if opening.python_path is not None:
        import_from(Path(opening.python_path))

    StreamTask(opening, mailbox, notify, exit_lock).invoke()
    sys.stdout.flush()
    sys.stderr.flush()
    # Not exit(): the threads of librdkafka and of user code have nothing left to say.
    os._exit(0)
