"""Checks the law of message_queue.py: no function that may call a user function runs while a transaction is open."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .kafka import JointTransaction

OPERATOR_CALLS = (
    "open", "process", "on_woken", "advance_watermark", "advance_clock", "set_idle", "finish", "before_commit",
    "take_changes", "committed", "restore", "close",
)  # fmt: skip
CHANNEL_CALLS = ("write", "flush")
SOURCE_CALLS = ("restore", "open", "poll", "take_changes", "close")


def watch(called: Any, names: Sequence[str], transaction: JointTransaction) -> None:
    """Makes these methods fail while the transaction is open, also if it opens during a call."""

    def watched(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **more: Any) -> Any:
            assert not transaction.active, f"a transaction is open while {called} is to {name}"
            result = method(*arguments, **more)
            return list(result) if isinstance(result, Iterator) else result

        return call

    for name in names:
        setattr(called, name, watched(name, getattr(called, name)))
