"""The contract of everything with state in a subtask: writing all of it, and restoring what others wrote.

Operators, sources that the StreamTask reads, and accumulators implement it. Changes between commits go through
`take_changes`; this contract is what checkpoints need besides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Protocol

import msgspec

from ...graph.key_groups import key_groups_of_subtask

ORIGIN_KEY: Final = b"~origin"
"""In the place of an operator id: says whose messages follow (`origin_message`)."""


class Origin(msgspec.Struct, frozen=True):
    """A subtask before a change of parallelism, whose state is taken in whole or in part."""

    subtask_index: int
    parallelism: int
    max_parallelism: int

    @property
    def key_groups(self) -> range:
        """Those that were its own."""
        return key_groups_of_subtask(self.subtask_index, self.max_parallelism, self.parallelism)


class Stateful(Protocol):
    """Keeps state; for one thread, except that `full` runs in a forked process."""

    def full(self, sections: Sequence[range]) -> Iterator[tuple[range | None, bytes]]:
        """All state as messages which, restored onto nothing, give it; as of the last `take_changes`.

        `sections` are ranges of key groups. Each message holds keys of one of them and is given with it, section by
        section; those of no key (None) come first. Called where no thread, socket or client may be used.
        """

    def restore_from(self, origin: Origin | None) -> None:
        """What is restored from here on was written by that subtask: of it, take what is this one's own.

        None: by this one, once all origins have been taken in.
        """

    def restore(self, message: bytes) -> None:
        """Applies a message, in their order. Raises ValueError for what is none."""


def origin_message(operator_id: str, origin: Origin | None) -> tuple[bytes, bytes]:
    """Key and message that stand before those of an origin, and (None) behind those of all."""
    return ORIGIN_KEY, msgspec.msgpack.encode((operator_id, origin))


def read_origin(message: bytes) -> tuple[str, Origin | None]:
    """Operator id and origin. Raises msgspec.DecodeError."""
    return msgspec.msgpack.decode(message, type=tuple[str, Origin | None])
