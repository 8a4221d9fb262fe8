"""The input thread: everything that arrives at a StreamTask, put into its mailbox in order of arrival.

Three kinds of sockets: the control channel to the TaskExecutor, the connections of Spark's Python workers,
and the socket of a source. When the TaskExecutor is gone, so is this process, at once: what it had open is
aborted when the next attempt fences it.
"""

from __future__ import annotations

import os
import selectors
import socket
import threading
import time
import traceback
from collections.abc import Callable
from typing import Final

import msgspec

from ..frames import FrameReader
from ..protocol import BUFFER, HANDED_OVER, Cancel, Command, Open
from .sources.lines import LineSplitter
from .mailbox import InputBuffer, InputFailure, Letter, Mailbox, SourceEnded, SourceRead

CANCEL_GRACE_S: Final = 0.2
"""How long user code may stay busy after a Cancel before the process ends without it."""

_RECEIVE: Final = 1 << 16

Receive = Callable[[], list[tuple[Letter, int]]]
"""Reads what a socket has; raises EOFError when the peer is gone."""


class InputThread(threading.Thread):
    """Reads until the process ends. `control` and `listener` are already connected and listening."""

    def __init__(self, mailbox: Mailbox, control: socket.socket, listener: socket.socket) -> None:
        super().__init__(name="input", daemon=True)
        self._mailbox = mailbox
        self._control = FrameReader(control)
        self._commands = msgspec.msgpack.Decoder(Command)
        self._listener = listener
        self._selector = selectors.DefaultSelector()
        self._sources: dict[socket.socket, Receive] = {}
        self._reading = True
        self._adopted: list[tuple[socket.socket, Receive]] = []
        self._wake_in, self._wake_out = socket.socketpair()
        self.opened: Open | None = None
        self.open_arrived = threading.Event()
        mailbox.on_drained(self._wake)

    def read_lines(self, source: socket.socket, delimiter: str) -> None:
        """Has the thread read records from a connected socket from now on."""
        source.setblocking(False)
        splitter = LineSplitter(delimiter)
        self._adopted.append((source, lambda: _read_lines(source, splitter)))
        self._wake()

    def run(self) -> None:
        # Without this thread the task would wait for ever: its end must be the process's.
        try:
            self._read()
        except BaseException:
            traceback.print_exc()
            os._exit(70)

    def _read(self) -> None:
        own: dict[socket.socket, Callable[[], object]] = {
            self._control.socket: self._obey,
            self._listener: self._accept,
            self._wake_in: lambda: self._wake_in.recv(4096),
        }
        for each, handle in own.items():
            each.setblocking(False)
            self._selector.register(each, selectors.EVENT_READ, handle)
        while True:
            for key, _ in self._selector.select():
                key.data()
            self._adjust()

    def _wake(self) -> None:
        self._wake_out.send(b"w")

    def _obey(self) -> None:
        for data in self._control.receive():
            command: Command = self._commands.decode(data)
            match command:
                case Open():
                    self.opened = command
                    self.open_arrived.set()
                case Cancel():
                    self._mailbox.cancel()
                    last_resort = threading.Timer(CANCEL_GRACE_S, os._exit, (1,))
                    last_resort.daemon = True
                    last_resort.start()
        if self._control.ended:
            os._exit(1)

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        connection.setblocking(False)
        reader = FrameReader(connection)
        self._add(connection, lambda: _read_buffers(reader))

    def _add(self, source: socket.socket, receive: Receive) -> None:
        self._sources[source] = receive
        if self._reading:
            self._resume(source)

    def _resume(self, source: socket.socket) -> None:
        self._selector.register(source, selectors.EVENT_READ, lambda: self._receive(source))

    def _receive(self, source: socket.socket) -> None:
        try:
            letters = self._sources[source]()
        except EOFError:
            del self._sources[source]
            self._selector.unregister(source)
            source.close()
            return
        if letters:
            self._mailbox.put(letters)
            if any(isinstance(letter, SourceEnded) for letter, _ in letters):
                del self._sources[source]
                self._selector.unregister(source)
                source.close()

    def _adjust(self) -> None:
        """Takes up new sources; stops reading while the mailbox is full, and goes on afterwards."""
        while self._adopted:
            self._add(*self._adopted.pop())
        if self._reading is not self._mailbox.full:
            return
        self._reading = not self._reading
        for source in self._sources:
            if self._reading:
                self._resume(source)
            else:
                self._selector.unregister(source)


def _read_buffers(reader: FrameReader) -> list[tuple[Letter, int]]:
    letters: list[tuple[Letter, int]] = []
    for data in reader.receive():
        kind, input_index, offset = HANDED_OVER.unpack_from(data)
        content = data[HANDED_OVER.size :]
        if kind == BUFFER:
            letters.append((InputBuffer(input_index, offset, content), len(data)))
        else:
            letters.append((InputFailure(offset, content.decode()), len(data)))
    if reader.ended:
        raise EOFError
    return letters


def _read_lines(source: socket.socket, splitter: LineSplitter) -> list[tuple[Letter, int]]:
    try:
        data = source.recv(_RECEIVE)
    except (BlockingIOError, InterruptedError):
        return []
    except OSError as error:
        return [(SourceEnded(f"the connection to the source broke: {error.strerror}"), 0)]
    read_at = time.time_ns() // 1_000_000
    if data:
        records = splitter.feed(data)
        return [(SourceRead(read_at, records), len(data))] if records else []
    last = splitter.end()
    ending: list[tuple[Letter, int]] = [(SourceEnded(), 0)]
    return [(SourceRead(read_at, last), 0), *ending] if last else ending
