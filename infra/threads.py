"""Threads whose unhandled exceptions are never lost.

By default an unhandled exception ends its thread only: the process looks alive but lacks a part. All threads of
tailrace are therefore started here; an unhandled exception goes to the handler of the process, which ends it. In a
process without a handler, such as a user's program, it is printed to stderr, as in Python.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
Handler = Callable[[str, BaseException], None]
"""(name of the thread, unhandled exception)."""
EXIT_CODE: Final = 70
"""The exit code after a failed thread: a bug in tailrace."""

_handler: Handler | None = None


class ThreadFailed(Exception):
    """A thread of this process has ended with an unexpected exception; the message names both."""

    def __init__(self, name: str, error: BaseException) -> None:
        super().__init__(
            f"the thread {name!r} of process {os.getpid()} failed: {type(error).__name__}: "
            f"{' '.join(str(error).split())} ({_place(error)}); the process ends. This is a bug in "
            "tailrace: please report it"
        )


class Thread(threading.Thread):
    """A thread with handled exceptions; a daemon by default."""

    def __init__(
        self, *, target: Callable[..., object], name: str, args: Iterable[Any] = (), daemon: bool = True
    ) -> None:
        super().__init__(target=target, name=name, args=tuple(args), daemon=daemon)

    def run(self) -> None:
        try:
            super().run()
        except SystemExit:
            raise
        except BaseException as error:
            failed(self.name, error)


class Timer(threading.Timer):
    """Calls a function later, in a daemon thread with handled exceptions."""

    def __init__(
        self, seconds: float, function: Callable[..., object], args: Iterable[Any] = (), *, name: str
    ) -> None:
        super().__init__(seconds, function, tuple(args))
        self.name, self.daemon = name, True

    def run(self) -> None:
        try:
            super().run()
        except BaseException as error:
            failed(self.name, error)


class Pool(ThreadPoolExecutor):
    """A thread pool; exceptions go to the handler even if nobody reads the future."""

    def __init__(self, size: int, name: str) -> None:
        super().__init__(size, thread_name_prefix=name)
        self._name = name

    def submit(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        def call() -> T:
            try:
                return function(*args, **kwargs)
            except BaseException as error:
                failed(self._name, error)
                raise

        return super().submit(call)


@contextlib.contextmanager
def use_handler(handler: Handler) -> Iterator[None]:
    """A context in which `handler` receives unhandled exceptions, called on the failing thread."""
    global _handler
    before, _handler = _handler, handler
    try:
        yield
    finally:
        _handler = before


def handle(handler: Handler) -> None:
    """Like `use_handler`, until the process ends."""
    global _handler
    _handler = handler


def failed(name: str, error: BaseException) -> None:
    """Reports an unhandled exception of the named thread."""
    handler = _handler
    if handler is None:
        with contextlib.suppress(Exception):
            traceback.print_exception(error)
        return
    try:
        handler(name, error)
    except Exception:
        end_process(name, error)


def end_process(name: str, error: BaseException) -> None:
    """A Handler: prints one line to stderr and ends the process at once."""
    with contextlib.suppress(Exception):
        sys.stderr.write(f"tailrace: {ThreadFailed(name, error)}\n")
        sys.stderr.flush()
    os._exit(EXIT_CODE)


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f"{os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else "nowhere"
