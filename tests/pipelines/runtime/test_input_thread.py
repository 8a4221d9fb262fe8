"""A cancelled process ends after its grace, but not in the middle of a transaction."""

from __future__ import annotations

import os
import socket
import threading

import msgspec
import pytest
from polling import PATIENCE_S, eventually

from tailrace.pipelines.runtime.common.frames import frame
from tailrace.pipelines.runtime.common.protocol import Cancel, Committing, Notice
from tailrace.pipelines.runtime.stream_task.loop import input_thread
from tailrace.pipelines.runtime.stream_task.loop.input_thread import InputThread
from tailrace.pipelines.runtime.stream_task.loop.mailbox import Mailbox

OPEN: list[socket.socket] = []
"""Never closed: a thread that reads them would end this process."""

pytestmark = pytest.mark.timeout(2 * PATIENCE_S)


@pytest.fixture
def sockets() -> tuple[socket.socket, socket.socket, socket.socket]:
    """Of the runtime, the process, and Spark's workers."""
    ours, theirs = socket.socketpair()
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    OPEN.extend((ours, theirs, listener))
    return ours, theirs, listener


@pytest.mark.parametrize("ends", [True, False], ids=["the transaction ends", "the transaction hangs"])
def test_a_process_that_is_cancelled_while_it_commits(
    sockets: tuple[socket.socket, socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    exits: list[int] = []
    notices: list[Notice] = []
    exit_lock = threading.Lock()
    monkeypatch.setattr(os, "_exit", exits.append)
    monkeypatch.setattr(input_thread, "CANCEL_GRACE_S", 0.01)
    monkeypatch.setattr(input_thread, "COMMIT_GRACE_S", PATIENCE_S if ends else 0.3)
    ours, theirs, listener = sockets
    exit_lock.acquire()
    InputThread(Mailbox(), theirs, listener, notices.append, exit_lock).start()
    ours.sendall(frame(msgspec.msgpack.encode(Cancel())))
    eventually(lambda: notices == [Committing()])
    assert exits == []
    if ends:
        exit_lock.release()
    eventually(lambda: exits == [1])


def test_a_process_that_is_cancelled_in_user_code_ends_at_once(
    sockets: tuple[socket.socket, socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    exits: list[int] = []
    notices: list[Notice] = []
    monkeypatch.setattr(os, "_exit", exits.append)
    monkeypatch.setattr(input_thread, "CANCEL_GRACE_S", 0.01)
    ours, theirs, listener = sockets
    InputThread(Mailbox(), theirs, listener, notices.append).start()
    ours.sendall(frame(msgspec.msgpack.encode(Cancel())))
    eventually(lambda: exits == [1])
    assert notices == []
