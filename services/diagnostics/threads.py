"""The threads of a process and what they do now: Flink's thread dump."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from ...infra.redaction import redacted
from .server import JSON, Content, Handler

THREADS: Final = "threads"
"""The path."""


class ThreadInfo(msgspec.Struct, frozen=True, rename="camel"):
    """A thread and its stack, the innermost call first, as in Java."""

    thread_name: str
    stringified_thread_info: str

    @classmethod
    def of(cls, name: str, calls: Iterable[str]) -> ThreadInfo:
        """Returns the information of a stack, the outermost call first."""
        lines = "".join(f"\tat {call}\n" for call in reversed([*calls]))
        return cls(name, redacted(f'"{name}"\n{lines}\n'))


def describe_call(frame: traceback.FrameSummary) -> str:
    """Returns function, file and line."""
    return f"{frame.name} ({frame.filename}:{frame.lineno})"


def dump_threads() -> list[ThreadInfo]:
    """Returns the threads of this process. No thread stops for it."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    found = [
        ThreadInfo.of(names.get(ident, f"thread {ident}"), map(describe_call, traceback.extract_stack(frame)))
        for ident, frame in sys._current_frames().items()
    ]
    return sorted(found, key=lambda each: each.thread_name)


def serve_threads(of_others: Callable[[], Sequence[ThreadInfo]] = tuple) -> Handler:
    """Returns what answers with the threads of this process, and with `of_others`."""
    return lambda _query: Content(JSON, msgspec.json.encode([*dump_threads(), *of_others()]))
