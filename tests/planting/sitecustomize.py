"""Makes a thread fail in a process of a cluster. Python imports this file if PYTHONPATH has its directory.

A file `<kind>.<thread>` in the directory PLANTS requests the failure of one thread of that name (without the number at
its end) in one process of that kind: a running thread, or the next one that starts; with the content `starts`, only the
next one that starts. The process that renames the file to `planted.<thread>.<pid>` takes the failure. The files
`seen.<kind>.<thread>` list the threads of such processes.

A running thread raises the exception when it next runs Python code; a thread that waits in C code has to wake up first.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
import time
from pathlib import Path

PLANTS = Path(os.environ["PLANTS"])
MODULES = {
    "tailrace.pipelines.runtime.stream_task.loop.zygote": "stream_task",
    "taskexecutor": "taskexecutor",
    "run": "run",
}
LOOKS_S = 0.05


class Planted(BaseException):
    """The injected exception. No part of tailrace handles it."""

    def __init__(self) -> None:
        super().__init__("by a test")


def general(name: str) -> str:
    """Returns the name of a thread without the number at its end."""
    return name.rstrip("0123456789").rstrip("-")


def is_taken(kind: str, name: str) -> bool:
    """Returns whether this process takes the failure of such a thread."""
    try:
        thread = general(name)
        (PLANTS / f"{kind}.{thread}").rename(PLANTS / f"planted.{thread}.{os.getpid()}")
    except OSError:
        return False
    return True


def look(kind: str, seen: set[str]) -> None:
    wanted = {path.name.partition(".")[2] for path in PLANTS.glob(f"{kind}.*") if not path.read_bytes()}
    running = {general(thread.name): thread for thread in threading.enumerate()}
    for name, thread in running.items():
        if name not in seen:
            seen.add(name)
            (PLANTS / f"seen.{kind}.{name}").touch()
        # A StreamTask without a watchdog has no task yet: its thread would wait.
        is_at_work = kind != "stream_task" or "watchdog" in running
        if is_at_work and name in wanted and is_taken(kind, name):
            ident = ctypes.c_ulong(thread.ident or 0)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(Planted))


def watch(kind: str) -> None:
    seen = {"planter"}
    while True:
        with contextlib.suppress(OSError):
            look(kind, seen)
        time.sleep(LOOKS_S)


def begin(kind: str) -> None:
    run = threading.Thread.run

    def run_or_fail(thread: threading.Thread) -> None:
        with contextlib.suppress(OSError):
            (PLANTS / f"seen.{kind}.{general(thread.name)}").touch()
        if is_taken(kind, thread.name):
            thread._target, thread._args = fail, ()  # type: ignore[attr-defined]
        run(thread)

    threading.Thread.run = run_or_fail  # type: ignore[method-assign]
    threading.Thread(target=watch, args=(kind,), name="planter", daemon=True).start()


def fail() -> None:
    raise Planted


def begin_in_child(kind: str, zygote: int) -> None:
    # A StreamTask forks children of its own, which have one thread and keep it.
    if os.getppid() == zygote:
        begin(kind)


KIND = next((kind for word, kind in MODULES.items() if word in sys.orig_argv), None)
if KIND == "stream_task":
    ZYGOTE = os.getpid()
    os.register_at_fork(after_in_child=lambda: begin_in_child("stream_task", ZYGOTE))
elif KIND is not None:
    begin(KIND)
