"""The child: reads the log from one offset to another, and writes frames to standard output, each behind its length.

It decodes on while frames wait to be taken, a few of them at most. It ends when its standard input does.
"""

from __future__ import annotations

import queue
import struct
import sys
import threading
from typing import Final

from ...infra.interpreter import end_with_owner
from ..configuration import load
from ..connections import registry
from ..log import LogTruncated, LogUnavailable, Unreadable
from ..log.kafka import KafkaEventLog
from ..log.topics import log_topic
from ..replica import spare_the_collector
from .frames import CodecForFrames, chunks, pack

LENGTH: Final = struct.Struct("<Q")
_RECORDS = 2_000
"""Of a frame."""
_WAITING = 16
_POLL_S = 1.0


def main(arguments: list[str]) -> int:
    """`start` and `end`, which it reads to at least, are its arguments. Where it can't go on it ends; its owner goes
    on, and says why."""
    threading.Thread(target=end_with_owner, daemon=True).start()
    spare_the_collector()
    start, end = map(int, arguments)
    configuration = load()
    topic = log_topic(configuration.cluster_id)
    log = KafkaEventLog(
        configuration.bootstrap_servers, topic, CodecForFrames(topic, registry(configuration))
    )
    frames: queue.Queue[bytes | None] = queue.Queue(_WAITING)
    writer = threading.Thread(target=_write, args=(frames,))
    writer.start()
    try:
        _read(log, start, end, frames)
    except (LogUnavailable, LogTruncated):
        return 1
    finally:
        frames.put(None)
        writer.join()
    return 0


def _read(log: KafkaEventLog, start: int, end: int, frames: queue.Queue[bytes | None]) -> None:
    unreadable: list[Unreadable] = []
    tail = log.tail(start, on_unreadable=unreadable.append)
    read = 0
    try:
        while tail.position < end:
            # What lies behind the end and was read with it is passed on, too: then `bytes_read` is that of `position`.
            found = list(chunks(tail.poll(_POLL_S), _RECORDS))
            for each in found[:-1]:
                frames.put(pack(each, each[-1].offset + 1, 0))
            frames.put(pack(found[-1], tail.position, tail.bytes_read - read, unreadable))
            read = tail.bytes_read
            unreadable.clear()
    finally:
        tail.close()


def _write(frames: queue.Queue[bytes | None]) -> None:
    out = sys.stdout.buffer
    while (frame := frames.get()) is not None:
        out.write(LENGTH.pack(len(frame)))
        out.write(frame)
        out.flush()
