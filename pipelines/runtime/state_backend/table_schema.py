"""What the entries of a table are made of: written once before them, so that they can be read when a type has changed.

The message is of kind SCHEMA and carries the fingerprint of the entries that it is about. It lies in the changelog
before the first entries of an attempt that have this fingerprint, and in each file of all state.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import msgspec

from ..records.type_evolution import describe_layout, from_layout
from .changelog import ChangeKind, ChangelogMessage, rewrite


class TableSchema(msgspec.Struct, frozen=True, omit_defaults=True):
    """Of one table; types as `type_evolution.to_layout` has them."""

    kind: str
    """value, list, map or timer."""
    key: Any
    item: Any = None
    value: Any = None
    namespaced: bool = False

    @property
    def fingerprint(self) -> int:
        """Equal for equal layouts."""
        return zlib.crc32(msgspec.json.encode(self))

    def __str__(self) -> str:
        if self.item is not None:
            of = f" of {_in_words(self.item)} to {_in_words(self.value)}"
        else:
            of = "" if self.value is None else f" of {_in_words(self.value)}"
        return f"{self.kind}{of} by {_in_words(self.key)}"

    def messages(self, table: str) -> Iterator[bytes]:
        """Say what the entries of the fingerprint are made of."""
        return rewrite(
            ChangelogMessage(ChangeKind.SCHEMA, table, self.fingerprint, msgspec.json.encode(self))
        )

    @classmethod
    def from_message(cls, message: ChangelogMessage) -> TableSchema:
        """What a message of kind SCHEMA says. Raises ValueError."""
        return msgspec.json.decode(message.payload, type=cls)


def _in_words(layout: Any) -> str:
    return describe_layout(from_layout(layout))
