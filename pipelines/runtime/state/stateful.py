"""What whoever keeps state in a subtask can do with all of it: write it whole, and take in what others wrote.

Operators, sources read in the StreamTask and the accumulators are alike in this. What changes from commit to commit
goes by `take_changes` of each; here is what a checkpoint needs besides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Protocol

import msgspec

from ...graph.key_groups import key_groups_of_subtask

ORIGIN_KEY: Final = b"~origin"
"""In the place of an operator id: what follows was written by another subtask (an Origin)."""


class Origin(msgspec.Struct, frozen=True):
    """A subtask of an earlier deployment whose state is taken in, whole or in part, after a change of parallelism."""

    operator_id: str
    """`accumulators` for those."""
    subtask_index: int
    parallelism: int
    max_parallelism: int

    @property
    def key_groups(self) -> range:
        """Those that were its own."""
        return key_groups_of_subtask(self.subtask_index, self.max_parallelism, self.parallelism)

    def message(self) -> tuple[bytes, bytes]:
        """As what comes before the origin's messages."""
        return ORIGIN_KEY, msgspec.msgpack.encode(self)

    @classmethod
    def read(cls, message: bytes) -> Origin:
        """What `message` wrote. Raises msgspec.DecodeError."""
        return msgspec.msgpack.decode(message, type=cls)


class Stateful(Protocol):
    """Keeps state; for one thread, except that `full` runs in a forked process."""

    def full(self, sections: Sequence[range]) -> Iterator[tuple[range | None, bytes]]:
        """All state as messages which, restored onto nothing, give it; as of the last `take_changes`.

        `sections` are ranges of key groups. Each message holds keys of one of them and is given with it, section by
        section; those of no key (None) come first. Called where no thread, socket or client may be used.
        """

    def restore_from(self, origin: Origin) -> None:
        """What is restored from here on was written by that subtask; of it, take what is this one's own."""

    def restore(self, message: bytes) -> None:
        """Applies a message, in their order. Raises ValueError for what is none."""
