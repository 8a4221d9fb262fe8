"""A cancelled process ends after its grace period, but not during a commit."""

from __future__ import annotations

import os
import socket
import threading

import msgspec
import pytest
from polling import TIMEOUT_S, wait_until

from tailrace.pipelines.runtime.common.frames import encode_frame
from tailrace.pipelines.runtime.common.protocol import CancelTask, CommandFrame, CommitStarted, TaskNotice
from tailrace.pipelines.runtime.stream_task.loop import input_thread
from tailrace.pipelines.runtime.stream_task.loop.input_thread import InputThread
from tailrace.pipelines.runtime.stream_task.loop.mailbox import Mailbox

OPEN: list[socket.socket] = []
"""Never closed: a thread that reads them would end this process."""

pytestmark = pytest.mark.timeout(2 * TIMEOUT_S)


@pytest.fixture
def sockets() -> tuple[socket.socket, socket.socket, socket.socket]:
    """Yields the sockets of the runtime, the process, and Spark's workers."""
    ours, theirs = socket.socketpair()
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    OPEN.extend((ours, theirs, listener))
    return ours, theirs, listener


@pytest.mark.parametrize("ends", [True, False], ids=["the transaction ends", "the transaction hangs"])
def test_process_cancelled_during_commit_ends_after_it(
    sockets: tuple[socket.socket, socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    exits: list[int] = []
    notices: list[TaskNotice] = []
    exit_lock = threading.Lock()
    monkeypatch.setattr(os, "_exit", exits.append)
    monkeypatch.setattr(input_thread, "CANCEL_GRACE_S", 0.01)
    monkeypatch.setattr(input_thread, "COMMIT_GRACE_S", TIMEOUT_S if ends else 0.3)
    ours, theirs, listener = sockets
    exit_lock.acquire()
    InputThread(Mailbox(), theirs, listener, lambda _, notice: notices.append(notice), exit_lock).start()
    ours.sendall(encode_frame(msgspec.msgpack.encode(CommandFrame(0, CancelTask()))))
    wait_until(lambda: notices == [CommitStarted()])
    assert exits == []
    if ends:
        exit_lock.release()
    wait_until(lambda: exits == [1])


def test_process_cancelled_in_user_code_ends_at_once(
    sockets: tuple[socket.socket, socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    exits: list[int] = []
    notices: list[TaskNotice] = []
    monkeypatch.setattr(os, "_exit", exits.append)
    monkeypatch.setattr(input_thread, "CANCEL_GRACE_S", 0.01)
    ours, theirs, listener = sockets
    InputThread(Mailbox(), theirs, listener, lambda _, notice: notices.append(notice)).start()
    ours.sendall(encode_frame(msgspec.msgpack.encode(CommandFrame(0, CancelTask()))))
    wait_until(lambda: exits == [1])
    assert notices == []
