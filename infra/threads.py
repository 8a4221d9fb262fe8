"""Threads of tailrace's own, of which none ends unseen.

An exception that a thread does not handle ends that thread only: the process looks alive, and lacks a part. So every
thread is started here, and what it does not handle goes to the one handler of the process, which ends it. Where a
process has set no handler, as in a program of a user, it is shown on stderr, as Python does.
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
"""(name of the thread, what it did not handle)."""
EXIT_CODE: Final = 70
"""Of a process that ends by a thread of its own: a mistake of tailrace."""

_handler: Handler | None = None


class ThreadFailed(Exception):
    """A thread of this process has ended by an exception that nobody expected; the message names both."""

    def __init__(self, name: str, error: BaseException) -> None:
        super().__init__(
            f"the thread {name!r} of process {os.getpid()} has ended by {type(error).__name__}: "
            f"{' '.join(str(error).split())} ({_place(error)}); the process ends, since it lacks a part; this is a "
            "mistake of tailrace: report it"
        )


class Thread(threading.Thread):
    """A thread whose exceptions are handled; a daemon unless it is said otherwise."""

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
    """Calls a function later, in a daemon thread whose exceptions are handled."""

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
    """Threads for calls whose outcome may be asked for; what nobody asks for is handled all the same."""

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
    """What threads do not handle goes to `handler` within it: called on the thread that fails."""
    global _handler
    before, _handler = _handler, handler
    try:
        yield
    finally:
        _handler = before


def handle(handler: Handler) -> None:
    """As `use_handler`, until the process ends."""
    global _handler
    _handler = handler


def failed(name: str, error: BaseException) -> None:
    """The thread of this name did not handle the error."""
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
    """A Handler: one line on stderr, and the process ends at once."""
    with contextlib.suppress(Exception):
        sys.stderr.write(f"tailrace: {ThreadFailed(name, error)}\n")
        sys.stderr.flush()
    os._exit(EXIT_CODE)


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f"{os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else "nowhere"
