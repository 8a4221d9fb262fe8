"""The contract of everything with state in a subtask: writing all of it, and restoring state of earlier attempts.

Operators, sources that the StreamTask reads, and accumulators implement it. Changes between commits go through
`take_changes`; checkpoints need this contract in addition.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Protocol

import msgspec

from ...graph.key_groups import key_groups_of_subtask

ORIGIN_KEY: Final = b"~origin"
"""In place of an operator id: declares the writer of the following messages (`origin_message`)."""


class Origin(msgspec.Struct, frozen=True):
    """A subtask before a change of parallelism, whose state is taken over in whole or in part."""

    subtask_index: int
    parallelism: int
    max_parallelism: int

    @property
    def key_groups(self) -> range:
        """The key groups that it owned."""
        return key_groups_of_subtask(self.subtask_index, self.max_parallelism, self.parallelism)


class Stateful(Protocol):
    """An object with state. For one thread, except that `full` runs in a forked process."""

    def full(self, sections: Sequence[range]) -> Iterator[tuple[range | None, bytes]]:
        """Yields all state, as of the last `take_changes`, as messages that restore it from nothing.

        `sections` are ranges of key groups. Each message has keys of one range and is yielded with that range, section
        by section; messages without a key (None) come first. Called where no thread, socket or client may be used.
        """

    def restore_from(self, origin: Origin | None) -> None:
        """Declares the subtask that wrote the next messages: `restore` takes the part that belongs to this subtask
        now.

        None: this subtask wrote them; call it after all origins.
        """

    def restore(self, message: bytes) -> None:
        """Applies a message; call it in their order. Raises ValueError for an invalid one."""


def origin_message(operator_id: str, origin: Origin | None) -> tuple[bytes, bytes]:
    """Returns key and message that precede those of an origin; for None, those that follow the last origin."""
    return ORIGIN_KEY, msgspec.msgpack.encode((operator_id, origin))


def read_origin(message: bytes) -> tuple[str, Origin | None]:
    """Returns operator id and origin. Raises msgspec.DecodeError."""
    return msgspec.msgpack.decode(message, type=tuple[str, Origin | None])
